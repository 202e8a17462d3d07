"""First fit: each item at the lowest place that what is placed already leaves it.

The idea. Go through the items in some order; put each one at the least origin without a conflict. Candidates are the
pool's start and the ends of forbidden zones, so holes are reused, and in-place and trailing overlaps are found by the
same rule as plain holes. One pass is cheap, always gives a complete and valid layout where the pools have no limit, and
every other planner begins with one.

The order decides everything. No single one is good for all problems: largest first packs well where sizes differ,
longest-lived first where lifetimes do, those live at the peak first where the peak is narrow. So `best_first_fit` tries
eight and keeps the best, stopping at a proven bound. `hill_climb` goes on from there: the item at the top of the layout
determines its height, so it changes places with a neighbour that comes earlier in the order, or is moved forward; equal
steps are taken too, since plateaus are wide, and now and then a worse one.

Under a time limit a pass that has no time left stops looking for holes and stacks what remains on top: the layout is
complete all the same.

Registered are `first-fit`, `greedy-by-size`, `greedy-by-conflicts`, `hill-climb` and `linear` (no reuse at all). Pure
Python, a few microseconds an item and neighbour.

Invariant: every pass is a valid layout, whatever the order; where pools have no limit it is complete.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from ..problem import Placement, Problem
from .bounds import load_peak
from .model import Item, Model, OutOfTime
from .registry import Context, Limits, Place, does_not_fit, register


@dataclass(slots=True)
class Layout:
    """Pool and origin of every item (-1: not placed), and the heights that result."""

    pools: list[int]
    origins: list[int]
    heights: list[int] = field(default_factory=list)
    cost: float = 0.0  # of items that are not in their first pool

    @property
    def key(self) -> tuple[float, int]:
        """The cost that is minimised: spilling first, then bytes."""
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


SPANS = 256
QUICK = "the time was over before the planner had a plan; this one reuses no holes"


def quick_layout(model: Model, limit: Sequence[int | None] | None = None) -> Layout | int:
    """The layout, or the index of the item without a place, in heights of at most `limit`, by pool."""
    limit = model.capacity if limit is None else limit
    points = sorted({span[0] for item in model.items for span in item.lifetimes})
    points = points[:: 1 + len(points) // SPANS]  # each stands for those up to the next
    tops = [[0] * len(points) for _ in model.capacity]
    layout = Layout([-1] * len(model.items), [-1] * len(model.items), [0] * len(model.capacity))
    largest_area = sorted(model.items, key=lambda item: (-item.size * (item.last - item.first), item.index))
    for i in fixed_first(model, (item.index for item in largest_area)):
        item = model.items[i]
        # the spans that the hull of its lifetimes meets
        first, last = max(0, bisect_right(points, item.first) - 1), bisect_left(points, item.last)
        for pool in item.pools:
            at = _top(model, layout, item, pool, tops[pool][first:last])
            end, room = at + item.size, limit[pool]
            if room is None or end <= room:
                break
        else:
            return i
        layout.pools[i], layout.origins[i] = pool, at
        layout.heights[pool] = max(layout.heights[pool], end)
        if pool != item.pools[0]:
            layout.cost += model.spill_cost(i, pool)
        if item.size:
            raised = tops[pool][first:last]
            tops[pool][first:last] = (
                [max(end, top) for top in raised] if item.fixed is not None else [end] * len(raised)
            )
    return layout


def _top(model: Model, layout: Layout, item: Item, pool: int, tops: list[int]) -> int:
    """Its fixed origin; else the least one above what is live in its time or conflicts with it otherwise."""
    if item.fixed is not None or not item.size:
        return item.home
    others = [j for j in model.extra.get(item.index, ()) if layout.pools[j] == pool]
    above = max((layout.origins[j] + model.items[j].size for j in others), default=0)
    return item.align(max(above, max(tops, default=0)))


Order = Callable[[Model], list[int]]


def _sort_by(key: Callable[[Model, int], int]) -> Order:
    """Items of least `key` first; of equal ones the largest, which come first in a model."""
    return lambda model: sorted(range(len(model.items)), key=lambda i: (key(model, i), i))


def _duration(model: Model, i: int) -> int:
    return model.items[i].last - model.items[i].first


def _bytes_around(model: Model, i: int) -> int:
    return model.items[i].size + sum(model.items[j].size for j in model.neighbours[i])


by_size = _sort_by(lambda model, i: i)
by_start = _sort_by(lambda model, i: model.items[i].first)
by_conflicts = _sort_by(lambda model, i: -len(model.neighbours[i]))
ORDERS = (
    by_size,
    _sort_by(lambda model, i: -model.items[i].size * len(model.neighbours[i])),
    _sort_by(lambda model, i: -model.items[i].size * _duration(model, i)),
    _sort_by(lambda model, i: -_duration(model, i)),
    by_conflicts,
    _sort_by(
        lambda model, i: -_bytes_around(model, i)
    ),  # the peak decides, so what is live there gets the lowest places
    by_start,
    _sort_by(lambda model, i: -model.items[i].last),
)


def best_first_fit(context: Context, orders: Sequence[Order] = ORDERS) -> Layout | int:
    """The best layout over several orders, stopping at the bound; else the item that failed first."""
    model = context.model
    best: Layout | None = None
    failed = -1
    bound = sum(load_peak(model, pool).bytes for pool in range(len(model.pool_names)))
    for order in orders:
        if best is not None and context.is_exhausted():
            break
        try:
            result = first_fit(model, fixed_first(model, order(model)))
        except OutOfTime:
            if best is None:
                raise
            break
        context.spend(len(model.items))
        if isinstance(result, int):
            failed = result if failed < 0 else failed
        elif best is None or result.key < best.key:
            best = result
            if best.key <= (0.0, bound):
                break
    return failed if best is None else best


def placing(model: Model, order: Order = by_size) -> Place:
    """Heights of first fit in `order`, under other limits, for the message of a plan that does not fit."""

    def place(limits: Limits) -> tuple[Sequence[int], str] | None:
        try:
            layout, source = first_fit(model, fixed_first(model, order(model)), limits), "by first fit"
        except OutOfTime:
            layout, source = quick_layout(model, limits), "without reuse of holes"
        return None if isinstance(layout, int) else (layout.heights, source)

    return place


@register("first-fit")
def plan_first_fit(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit with hole reuse, the best of several orders."""
    return _place_or_raise(context, best_first_fit(context), by_size)


@register("greedy-by-size")
def plan_by_size(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit, largest buffer first."""
    return _in_order(context, by_size)


@register("greedy-by-conflicts")
def plan_by_conflicts(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit, buffer with most conflicts first."""
    return _in_order(context, by_conflicts)


def _in_order(context: Context, order: Order) -> tuple[Placement, ...]:
    return _place_or_raise(context, first_fit(context.model, fixed_first(context.model, order(context.model))), order)


def _place_or_raise(context: Context, result: Layout | int, order: Order) -> tuple[Placement, ...]:
    """The placements of a layout; the error of the pool that is too small for `order`."""
    if isinstance(result, int):
        raise does_not_fit(context, result, placing(context.model, order))
    return context.model.placements(result.pools, result.origins)


@register("linear")
def plan_linear(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """No reuse at all: items one after the other, in order of first use. For debugging a program."""
    model = context.model
    in_a_row = partial(first_fit, model, fixed_first(model, by_start(model)), place=_on_top)
    placed = in_a_row()
    if isinstance(placed, int):

        def place(limits: Limits) -> tuple[Sequence[int], str] | None:
            layout = in_a_row(limits)
            return None if isinstance(layout, int) else (layout.heights, "without any reuse")

        raise does_not_fit(context, placed, place)
    return model.placements(placed.pools, placed.origins)


def _on_top(model: Model, layout: Layout, item: Item, pool: int) -> int:
    """Above everything in the pool; what has no bytes conflicts with nothing."""
    return item.home if item.fixed is not None or not item.size else item.align(layout.heights[pool])


ROUNDS = 2_000  # orders tried when nothing else limits the search


def hill_climb(context: Context, start: Layout | None = None, rounds: int = ROUNDS) -> Layout | None:
    """The best layout of up to `rounds` orders; None when not one of them fits the pools."""
    model = context.model
    random = Random(context.seed)
    bound = sum(load_peak(model, pool).bytes for pool in range(len(model.pool_names)))
    best = start
    if best is not None and best.key <= (0.0, bound):
        return best
    order = fixed_first(model, by_size(model))
    fixed = sum(item.fixed is not None for item in model.items)
    current: tuple[float, int] | None = None
    current_order = order
    for _ in range(rounds):
        if context.is_exhausted():
            break
        try:
            result = first_fit(model, order)
        except OutOfTime:
            if best is None:
                raise
            break
        context.spend(len(model.items))
        if isinstance(result, int):
            blamed = result  # what found no place goes first
            if current is None:
                current_order = order
        else:
            if best is None or result.key < best.key:
                best = result
                if best.key <= (0.0, bound):
                    break
            # equal steps are taken too: plateaus are wide; a worse one now and then
            if current is None or result.key <= current or random.random() < 0.02:
                current, current_order = result.key, order
            tops = [
                i
                for i, pool in enumerate(result.pools)
                if result.origins[i] + model.items[i].size == result.heights[pool] and model.items[i].fixed is None
            ]
            blamed = random.choice(tops) if tops else random.randrange(len(order))
        order = list(current_order)
        place = order.index(blamed)
        if place > fixed and model.items[blamed].fixed is None:
            # swap the top item with an earlier neighbour, or move it to a random earlier place
            neighbours = set(model.neighbours[blamed])
            earlier = [k for k in range(fixed, place) if order[k] in neighbours]
            if earlier and random.random() < 0.6:
                other = random.choice(earlier)
                order[place], order[other] = order[other], order[place]
            else:
                order.insert(random.randrange(fixed, place), order.pop(place))
        if len(order) - fixed >= 2 and random.random() < 0.5:
            a, b = random.randrange(fixed, len(order)), random.randrange(fixed, len(order))
            order[a], order[b] = order[b], order[a]
    return best


@register("hill-climb")
def plan_hill_climb(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit improved by exchanging places in the order."""
    result = best_first_fit(context, ORDERS[:3])
    best = hill_climb(context, None if isinstance(result, int) else result)
    if best is None:
        assert isinstance(result, int), "a layout that first fit found is kept"
        raise does_not_fit(context, result, placing(context.model))
    return context.model.placements(best.pools, best.origins)
