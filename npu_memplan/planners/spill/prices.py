"""Prices of bytes: what keeping a byte in a pool at a point is worth, and the least cost that this proves.

Invariant: sound for any prices >= 0: each item takes the pool that is cheapest with its rent, and the rent of all
pools' capacity is given back. Items whose overlaps may save bytes pay no rent. The best prices are looked
for by subgradients: what is overfull becomes dearer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from .assignment import Assigner

ROUNDS = 300
WORK = 3_000_000  # looks at items and points, at most
STALL = 12  # rounds without a better bound before the step is shortened


@dataclass(frozen=True, slots=True)
class Relaxation:
    """`bound` is a cost no assignment can go below; `extra[i][k]` is what it grows by when item i takes its k-th
    pool; `rent[i][k]` what item i pays there."""

    bound: float
    extra: list[list[float]]
    rent: list[list[float]]


def relax(assigner: Assigner, best: float) -> Relaxation:
    """The bound at good prices; `best` is the cost of a known assignment (or a guess of it)."""
    model = assigner.model
    bounded = [pool for pool, capacity in enumerate(model.capacity) if capacity is not None]
    room = [capacity or 0 for capacity in model.capacity]
    costs = [[model.spill_cost(item.index, pool) for pool in item.pools] for item in model.items]
    sizes = assigner.sure
    prices = {pool: [0.0] * assigner.width for pool in bounded}
    found: Relaxation | None = None
    step, stalled = 1.0, 0
    rounds = min(ROUNDS, WORK // (len(sizes) + assigner.width * len(bounded) + 1) + 1)
    for _ in range(rounds):
        sums = {pool: [0.0, *accumulate(prices[pool])] for pool in bounded}
        rent = [
            [sizes[i] * _over(sums[pool], assigner.spans[i]) if pool in sums else 0.0 for pool in item.pools]
            for i, item in enumerate(model.items)
        ]
        totals = [[c + r for c, r in zip(costs[i], rent[i], strict=True)] for i in range(len(sizes))]
        least = [min(total) for total in totals]
        bound = sum(least) - sum(room[pool] * sums[pool][-1] for pool in bounded)
        if found is None or bound > found.bound:
            found = Relaxation(bound, [[t - m for t in total] for total, m in zip(totals, least, strict=True)], rent)
            stalled = 0
        else:
            stalled += 1
            if stalled == STALL:
                step, stalled = step * 0.6, 0
        over = {pool: [0] * (assigner.width + 1) for pool in bounded}
        for i, item in enumerate(model.items):
            pool = item.pools[totals[i].index(least[i])]
            if pool in over and sizes[i]:
                for first, last in assigner.spans[i]:
                    over[pool][first] += sizes[i]
                    over[pool][last] -= sizes[i]
        slope = {
            pool: [
                load - room[pool] if load > room[pool] or price > 0 else 0
                for load, price in zip(accumulate(over[pool]), prices[pool], strict=False)
            ]
            for pool in bounded
        }
        norm = sum(s * s for mine in slope.values() for s in mine)
        if not norm or assigner.context.exhausted():
            break
        length = step * max(best - bound, 1e-6 * max(1.0, best)) / norm
        for pool in bounded:
            prices[pool] = [max(0.0, p + length * s) for p, s in zip(prices[pool], slope[pool], strict=True)]
    assert found is not None, "there is at least one round"
    return found


def _over(sums: Sequence[float], spans: Sequence[tuple[int, int]]) -> float:
    return sum(sums[last] - sums[first] for first, last in spans)
