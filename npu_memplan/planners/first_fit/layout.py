"""First fit with reuse of holes: each item at the lowest place that its placed neighbours leave.

Invariant: a `Layout` that is complete is valid; candidate places are the pool's start
and the ends of forbidden zones, so in-place and partial overlaps are found by the same
rule as plain holes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..model import Item, Model


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


def lowest_place(model: Model, layout: Layout, item: Item, pool: int) -> int | None:
    """Lowest origin of `item` in `pool` among its placed neighbours; its fixed one, None where that is taken."""
    pools, origins, fixed = layout.pools, layout.origins, item.fixed
    near = model.neighbours[item.index]
    model.look(4 * len(near) + 10)
    zones: list[tuple[int, int]] = []
    size, sizes = item.size, model.sizes
    if model.special or fixed is not None:
        i, in_parts, allowing = item.index, model.in_parts, model.allowing.get(item.index, ())
        for j in near:
            if pools[j] == pool:
                at = origins[j]
                if j in allowing or j in in_parts or i in in_parts:  # `model.is_special`, a call for each pair less
                    zones += [(at + low, at + high) for low, high in model.zones(i, j)]
                elif size and sizes[j]:
                    zones.append((at - size, at + sizes[j]))
        if fixed is not None:
            return None if any(low < fixed < high for low, high in zones) else fixed
    else:
        for j in near:
            if pools[j] == pool:
                at = origins[j]
                zones.append((at - size, at + sizes[j]))
    zones.sort()
    at = item.align(0)
    for low, high in zones:
        if at <= low:
            break
        if at < high:
            at = item.align(high)
    return at


def first_fit(
    model: Model,
    order: Iterable[int],
    limit: Sequence[int | None] | None = None,
    forced: Sequence[int] | None = None,
    place: Callable[[Model, Layout, Item, int], int | None] = lowest_place,
) -> Layout | int:
    """Place items in `order`; the layout, or the index of the item that found no place.

    `limit` are heights not to exceed, by pool; the pools' hard sizes unless given. `forced` are the
    items' pools, when these are decided already. `place` gives the origin of an item in a pool, None when it
    cannot be there. `OutOfTime` when the model's time is over.
    """
    limit = model.capacity if limit is None else limit
    pools, origins, heights = [-1] * len(model.items), [-1] * len(model.items), [0] * len(limit)
    layout = Layout(pools, origins, heights)
    for i in order:
        item = model.items[i]
        for pool in item.pools if forced is None else forced[i : i + 1]:
            at, room = place(model, layout, item, pool), limit[pool]
            if at is not None and (room is None or at + item.size <= room):
                break
        else:
            return i
        pools[i], origins[i] = pool, at
        if at + item.size > heights[pool]:
            heights[pool] = at + item.size
        if pool != item.pools[0]:
            layout.cost += model.spill_cost(i, pool)
    return layout
