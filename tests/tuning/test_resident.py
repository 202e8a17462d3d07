"""The choice of resident constants among a few is the best one."""

from __future__ import annotations

import random
from itertools import chain, combinations

from npu_memplan.ethosu.schedule.prefetch.copies import _knapsack


def test_the_choice_is_the_best_of_all() -> None:
    rng = random.Random(3)
    for _ in range(60):
        count = rng.randrange(1, 9)
        sizes = [16 * rng.randrange(1, 12) for _ in range(count)]
        gains = [rng.randrange(-3, 30) for _ in range(count)]
        room = rng.randrange(0, 500)
        subsets = chain.from_iterable(combinations(range(count), n) for n in range(count + 1))
        best = max(sum(gains[i] for i in s) for s in subsets if sum(sizes[i] for i in s) <= room - room % 16)
        picked = _knapsack(sizes, gains, room)
        assert sum(sizes[i] for i in picked) <= room
        assert sum(gains[i] for i in picked) == best
