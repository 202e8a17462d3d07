"""First fit with reuse of holes: each item at the lowest place that its placed neighbours leave.

Invariant: a `Layout` that is complete is valid; candidate places are the pool's start
and the ends of forbidden zones, so in-place and partial overlaps are found by the same
rule as plain holes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..problem import Placement, Problem
from .bounds import load_peak
from .errors import PlanningError
from .model import Model
from .registry import Context, register


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
    model: Model,
    order: Iterable[int],
    limit: Sequence[int | None] | None = None,
    forced: Sequence[int] | None = None,
) -> Layout | int:
    """Place items in `order`; the layout, or the index of the item that found no place.

    `limit` are heights not to exceed, by pool; the pools' hard sizes unless given. `forced` are the
    items' pools, when these are decided already.
    """
    if limit is None:
        limit = model.capacity
    count = len(model.items)
    pools, origins = [-1] * count, [-1] * count
    heights = [0] * len(limit)
    cost = 0.0
    for i in order:
        item = model.items[i]
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


def by_size(model: Model) -> list[int]:
    """Largest first (the canonical order of items)."""
    return list(range(len(model.items)))


def by_conflicts(model: Model) -> list[int]:
    """Most neighbours first, then largest."""
    neighbours = model.neighbours
    return sorted(range(len(model.items)), key=lambda i: (-len(neighbours[i]), i))


def by_duration(model: Model) -> list[int]:
    """Longest-lived first, then largest."""
    return sorted(range(len(model.items)), key=lambda i: (model.items[i].first - model.items[i].last, i))


def by_area(model: Model) -> list[int]:
    """Largest bytes x points first."""
    return sorted(
        range(len(model.items)), key=lambda i: (-model.items[i].size * (model.items[i].last - model.items[i].first), i)
    )


def by_start(model: Model) -> list[int]:
    """In order of first use."""
    return sorted(range(len(model.items)), key=lambda i: (model.items[i].first, i))


def by_end(model: Model) -> list[int]:
    """In reverse order of last use."""
    return sorted(range(len(model.items)), key=lambda i: (-model.items[i].last, i))


def by_weight(model: Model) -> list[int]:
    """Largest size x conflicts first."""
    neighbours = model.neighbours
    return sorted(range(len(model.items)), key=lambda i: (-model.items[i].size * len(neighbours[i]), i))


def by_pressure(model: Model) -> list[int]:
    """Items live where memory is fullest first, then largest: the peak decides, so it gets the lowest places."""
    neighbours = model.neighbours
    items = model.items
    around = [items[i].size + sum(items[j].size for j in neighbours[i]) for i in range(len(items))]
    return sorted(range(len(items)), key=lambda i: (-around[i], i))


ORDERS: tuple[Callable[[Model], list[int]], ...] = (
    by_size,
    by_weight,
    by_area,
    by_duration,
    by_conflicts,
    by_pressure,
    by_start,
    by_end,
)


def no_room(context: Context, item: int | None = None) -> PlanningError:
    """The error of a problem that found no place for `item`."""
    from .explain import explain_no_room

    return explain_no_room(context.model, item)


def best_first_fit(context: Context, orders: Sequence[Callable[[Model], list[int]]] = ORDERS) -> Layout | int:
    """The best layout over several orders, stopping at the bound; else the item that failed first."""
    model = context.model
    best: Layout | None = None
    failed = -1
    bound = sum(load_peak(model, pool).bytes for pool in range(len(model.pool_names)))
    for order in orders:
        if best is not None and context.exhausted():
            break
        result = first_fit(model, fixed_first(model, order(model)))
        context.spend(len(model.items))
        if isinstance(result, int):
            failed = result if failed < 0 else failed
        elif best is None or result.key < best.key:
            best = result
            if best.key <= (0.0, bound):
                break
    return failed if best is None else best


def _planned(context: Context, result: Layout | int) -> tuple[Placement, ...]:
    if isinstance(result, int):
        raise no_room(context, result)
    return context.model.placements(result.pools, result.origins)


@register("first-fit")
def plan_first_fit(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit with hole reuse, the best of several orders."""
    return _planned(context, best_first_fit(context))


@register("greedy-by-size")
def plan_by_size(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit, largest buffer first."""
    return _planned(context, first_fit(context.model, fixed_first(context.model, by_size(context.model))))


@register("greedy-by-conflicts")
def plan_by_conflicts(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit, buffer with most conflicts first."""
    return _planned(context, first_fit(context.model, fixed_first(context.model, by_conflicts(context.model))))


@register("linear")
def plan_linear(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """No reuse at all: items one after the other, in order of first use. For debugging a program."""
    model = context.model
    count = len(model.items)
    pools, origins = [-1] * count, [-1] * count
    tops = [0] * len(model.pool_names)
    for i in fixed_first(model, by_start(model)):
        item = model.items[i]
        if item.fixed is not None:
            if not fits_at(model, i, item.pools[0], item.fixed, pools, origins):
                raise no_room(context, i)
            room = model.capacity[item.pools[0]]
            if room is not None and item.fixed + item.size > room:
                raise no_room(context, i)
            pools[i], origins[i] = item.pools[0], item.fixed
            tops[item.pools[0]] = max(tops[item.pools[0]], item.fixed + item.size)
            continue
        for pool in item.pools:
            at = item.align(tops[pool])
            room = model.capacity[pool]
            if room is None or at + item.size <= room:
                pools[i], origins[i], tops[pool] = pool, at, at + item.size
                break
        else:
            raise no_room(context, i)
    return model.placements(pools, origins)
