"""The compiled search where alignments differ: what it learned under one ceiling holds under another."""

from __future__ import annotations

from random import Random

import pytest

from npu_memplan.planners import exact
from npu_memplan.planners.general import SmallSearch
from npu_memplan.planners.model import Model
from npu_memplan.planners.registry import Context
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem


def mixed_alignments(seed: int) -> Model:
    """6 to 14 buffers of up to 20 bytes, aligned to 1, 4, 6 or 16."""
    random = Random(seed)
    count = random.randint(6, 14)
    buffers = []
    for k in range(count):
        at = random.randint(0, count // 2)
        lives = (Lifetime(at, at + random.randint(1, 5)),)
        buffers.append(Buffer(f"b{k}", random.randint(1, 20), lives, random.choice([1, 1, 4, 6, 16])))
    return Model(Problem(tuple(buffers), (Pool("m"),)))


def test_a_dead_end_of_one_ceiling_is_none_where_alignment_falls_otherwise() -> None:
    """66 bytes are too few; remembering that by headroom alone once made 67 look impossible too."""
    rows = ((20, 6, 2, 7), (17, 16, 0, 4), (15, 6, 0, 5), (13, 1, 0, 2), (6, 1, 3, 4), (5, 4, 2, 6))
    buffers = tuple(Buffer(f"b{k}", size, (Lifetime(a, b),), align) for k, (size, align, a, b) in enumerate(rows))
    model = Model(Problem(buffers, (Pool("m"),)))
    search = exact.search_for(model, model.items, 0)
    assert search is not None
    exact.run(search, Context(model, 43, 100_000))
    assert (search.low, search.best) == (67, 67)


@pytest.mark.parametrize("block", range(2))
def test_what_is_called_least_is_least(block: int) -> None:
    """Against the pure Python search, which has no memory of dead ends."""
    proven = 0
    for seed in range(50 * block, 50 * block + 50):
        model = mixed_alignments(seed)
        search = exact.search_for(model, model.items, 0)
        assert search is not None
        exact.run(search, Context(model, seed, 4_000))
        if search.best is not None and search.low >= search.best:
            assert not SmallSearch.over(model, model.items, 20_000).below(search.best - 1), seed
            proven += 1
    assert proven > 30
