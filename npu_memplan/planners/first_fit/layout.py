"""First fit with reuse of holes: each item at the lowest place that its placed neighbours leave.

Invariant: a `Layout` that is complete is valid; candidate places are the pool's start
and the ends of forbidden zones, so in-place and partial overlaps are found by the same
rule as plain holes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..model import Model


@dataclass(slots=True)
class Layout:
    """Pool and origin of every item (-1: not placed), and the heights that result."""

    pools: list[int]
    origins: list[int]
    heights: list[int] = field(default_factory=list)
    cost: float = 0.0  # of items that are not in their first pool

    @property
    def key(self) -> tuple[float, int]:
        """What is minimised: spilling first, then bytes."""
        return self.cost, sum(self.heights)


def fixed_first(model: Model, order: Iterable[int]) -> list[int]:
    """`order` with the fixed items in front."""
    wanted = list(order)
    return [i for i in wanted if model.items[i].fixed is not None] + [i for i in wanted if model.items[i].fixed is None]


def lowest_place(model: Model, i: int, pool: int, pools: Sequence[int], origins: Sequence[int]) -> int:
    """Lowest origin for item `i` in `pool` beside its placed neighbours."""
    item = model.items[i]
    zones: list[tuple[int, int]] = []
    if model.special:
        for j in model.neighbours[i]:
            if pools[j] == pool:
                at = origins[j]
                for low, high in model.zones(i, j):
                    zones.append((at + low, at + high))
    else:
        size = item.size
        items = model.items
        for j in model.neighbours[i]:
            if pools[j] == pool:
                at = origins[j]
                zones.append((at - size, at + items[j].size))
    zones.sort()
    at = item.align(0)
    for low, high in zones:
        if at <= low:
            break
        if at < high:
            at = item.align(high)
    return at


def first_fit(
    model: Model, order: Iterable[int], limit: Sequence[int | None] | None = None, forced: Sequence[int] | None = None
) -> Layout | int:
    """Place items in `order`; the layout, or the index of the item that found no place.

    `limit` are heights not to exceed, by pool; the pools' hard sizes unless given. `forced` are the
    items' pools, when these are decided already. `OutOfTime` when the model's time is over.
    """
    if limit is None:
        limit = model.capacity
    neighbours = model.neighbours
    work = 0
    count = len(model.items)
    pools, origins = [-1] * count, [-1] * count
    heights = [0] * len(limit)
    cost = 0.0
    for i in order:
        item = model.items[i]
        work = model.checked(work + 4 * len(neighbours[i]) + 10)
        if item.fixed is not None:
            pool = item.pools[0]
            if not fits_at(model, i, pool, item.fixed, pools, origins):
                return i
            pools[i], origins[i] = pool, item.fixed
            top = item.fixed + item.size
            room = limit[pool]
            if room is not None and top > room:
                return i
            heights[pool] = max(heights[pool], top)
            continue
        for pool in item.pools if forced is None else forced[i : i + 1]:
            at = lowest_place(model, i, pool, pools, origins)
            room = limit[pool]
            if room is None or at + item.size <= room:
                pools[i], origins[i] = pool, at
                if at + item.size > heights[pool]:
                    heights[pool] = at + item.size
                if pool != item.pools[0]:
                    cost += model.spill_cost(i, pool)
                break
        else:
            return i
    return Layout(pools, origins, heights, cost)


def fits_at(model: Model, i: int, pool: int, at: int, pools: Sequence[int], origins: Sequence[int]) -> bool:
    """Whether item `i` may have origin `at` in `pool` beside its placed neighbours."""
    for j in model.neighbours[i]:
        if pools[j] == pool:
            distance = at - origins[j]
            if any(low < distance < high for low, high in model.zones(i, j)):
                return False
    return True
