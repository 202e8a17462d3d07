"""The cheapest planner that proves its plan; else the best plan the budget allows.

Invariant: running out of time or nodes is never an error; a plan that was found is
returned, with what is known of it.
"""

from __future__ import annotations

from ..problem import Placement, Problem
from . import exact
from . import general as general
from .bounds import load_peak
from .first_fit import ORDERS, Layout, best_first_fit, hill_climb, placing, quick_layout
from .general import General, SmallSearch, small_subset
from .model import Item, OutOfTime
from .registry import Context, does_not_fit, proven, register
from .spill import assign

LARGE_ITEMS = 500  # from here on the compiled passes pay
SMALL_ITEMS = 40  # more are left to the compiled search
GENERAL_ITEMS = 400  # where sections can not say everything (overlaps, aliases, fixed places): a short try
GENERAL_WORK = 60_000  # of it, before the search over distances
SMALL_NODES = 3_000
EXACT_ENTRIES = 4_000_000
CLIMB_ROUNDS = 60  # before the compiled searches
FIRST_PAIRS = 40_000  # looked at by first fit and the climb, where the compiled search can follow
LARGE_PAIRS = 20_000_000  # looked at by first fit and the climb, where no compiled pass can follow
SPECIAL_WORK = 4_000  # items placed in them, where placing one means a look at zones


def improve_pools(context: Context, layout: Layout) -> Layout:
    """Lower the pools of `layout` one by one, the assignment to pools unchanged."""
    for pool in range(len(layout.heights)):
        if context.is_exhausted():
            break
        try:
            layout = improve_pool(context, layout, pool)
        except OutOfTime:
            break
    return layout


def improve_pool(context: Context, layout: Layout, pool: int) -> Layout:
    """Lower one pool of `layout` until its bound is met or the budget is spent."""
    model = context.model
    inside = [item for item in model.items if layout.pools[item.index] == pool and item.size]
    low = max(load_peak(model, pool, layout.pools).bytes, context.bounds.get(pool, 0))
    if layout.heights[pool] <= low:
        return layout
    if not context.has_compiled():
        return layout
    search = exact.search_for(model, inside, low) if _countable(inside) else None
    if len(inside) <= (GENERAL_ITEMS if search is None else SMALL_ITEMS):
        layout, low = _improve_small(context, layout, pool, inside, low)
    if search is not None and layout.heights[pool] > low and not context.is_exhausted():
        search.low = low = max(low, search.low)
        search.best = layout.heights[pool]
        search.offsets = [layout.origins[item.index] for item in inside]
        part = context.share(_sections_share(inside))
        if search.best > search.low:
            exact.run(search, part)
        context.spend(search.nodes)
        context.stopped_early |= part.stopped_early
        low = max(low, search.low)
        layout = _replace_origins(layout, pool, inside, search.offsets)
    if len(inside) <= exact.MOST_ITEMS and layout.heights[pool] > low and not context.is_exhausted():
        rest = General.over(model, inside, low, [layout.origins[item.index] for item in inside])
        if rest is not None:
            general.run(rest, context)
            low = rest.low
            layout = _replace_origins(layout, pool, inside, rest.origins)
    context.bounds[pool] = min(low, layout.heights[pool])
    return layout


def _sections_share(inside: list[Item]) -> float:
    """Share of the budget for the search by sections, which does not see the padding that is still to come."""
    if all(item.size % item.modulus == 0 for item in inside) and len({item.modulus for item in inside}) == 1:
        return 1.0
    return 0.5 if len({item.modulus for item in inside}) == 1 else 0.1


def _improve_small(context: Context, layout: Layout, pool: int, inside: list[Item], low: int) -> tuple[Layout, int]:
    """The layout and the bound after the small search: at the bound first, then just below the best."""
    small = SmallSearch.over(context.model, inside, SMALL_NODES)
    if len(inside) > SMALL_ITEMS:
        small.work = GENERAL_WORK
    ceiling = low
    while layout.heights[pool] > low and not context.is_exhausted():
        before = small.nodes
        found = small.below(ceiling)
        context.spend(max(1, before - small.nodes))
        if found:
            layout = _replace_origins(layout, pool, inside, small.origins)
        elif found is False:
            low = ceiling + 1
        elif small.nodes < 0 or small.work < 0:
            break
        ceiling = layout.heights[pool] - 1
    return layout, low


def _countable(inside: list[Item]) -> bool:
    """Whether there are few enough items and points for the exact search to be of use."""
    points = {point for item in inside for point in (item.first, item.last)}
    return len(inside) <= exact.MOST_ITEMS and len(inside) * len(points) <= EXACT_ENTRIES


def _replace_origins(layout: Layout, pool: int, inside: list[Item], origins: list[int]) -> Layout:
    """`layout` with other origins for the items of one pool."""
    moved, heights = list(layout.origins), list(layout.heights)
    for item, at in zip(inside, origins, strict=True):
        moved[item.index] = at
    heights[pool] = max((at + item.size for item, at in zip(inside, origins, strict=True)), default=0)
    return Layout(list(layout.pools), moved, heights, layout.cost)


def into_capacity(context: Context, failed: int) -> Layout | None:
    """A layout in one pool that first fit could not squeeze; None: none found. `PlanningError`: none exists."""
    model = context.model
    if any(item.pools != (0,) for item in model.items):
        return None
    capacity = model.capacity[0]
    assert capacity is not None, "first fit always succeeds in an unbounded pool"
    inside = [item for item in model.items if item.size]
    low = load_peak(model, 0).bytes
    if low > capacity:
        raise does_not_fit(context, failed, placing(context.model))
    if not context.has_compiled():
        return None
    zero = Layout([0] * len(model.items), [item.home for item in model.items], [0])
    if len(inside) <= SMALL_ITEMS:
        small = SmallSearch.over(model, inside, SMALL_NODES)
        found = small.below(capacity)
        context.spend(SMALL_NODES - small.nodes)
        if found:
            return _replace_origins(zero, 0, inside, small.origins)
        if found is False:
            raise proven(context, capacity + 1, small_subset(context, inside, capacity, SMALL_NODES))
    search = exact.search_for(model, inside, low)
    if search is None:
        return _general_into(context, inside, low, zero)
    if search.low <= capacity:
        exact.run(search, context, capacity, capacity)
    if search.best is not None:
        context.bounds[0] = search.low
        return _replace_origins(zero, 0, inside, search.offsets)
    if search.low > capacity:
        kept = [inside[k] for k in exact.infeasible_subset(search, capacity, context)]
        raise proven(context, search.low, kept)
    return None


def _general_into(context: Context, inside: list[Item], low: int, zero: Layout) -> Layout | None:
    """`into_capacity` for items that sections do not describe completely."""
    model = context.model
    capacity = model.capacity[0]
    assert capacity is not None, "requested by the caller"
    search = general.search_within(context, inside, 0, low, capacity) if len(inside) <= exact.MOST_ITEMS else None
    if search is None:
        return None
    context.bounds[0] = search.low
    if search.low > capacity:
        kept = [inside[k] for k in general.infeasible_subset(search, model, capacity, context)]
        raise proven(context, search.low, kept)
    if search.best > capacity:
        context.least_found = search.best
        return None
    return _replace_origins(zero, 0, inside, search.origins)


def _auto(context: Context, enough: bool) -> Layout:
    model, count = context.model, len(context.model.items)
    if count > LARGE_ITEMS and context.has_compiled():
        from .scale import place_large  # imports numpy

        large = place_large(context)
        if large is not None:
            return large if enough else improve_pools(context, large)
    passes = len(ORDERS) + CLIMB_ROUNDS
    if len(model.capacity) == 1 and SMALL_ITEMS < count <= exact.MOST_ITEMS and context.has_compiled():
        passes = min(passes, FIRST_PAIRS // (1 + sum(map(len, model.neighbours)) // 2))
    if count > LARGE_ITEMS:
        passes = min(passes, LARGE_PAIRS // (1 + sum(map(len, model.neighbours)) // 2))
    result = best_first_fit(context, ORDERS[: max(1, passes)])
    layout = _in_pools(context, result)
    if layout is None:
        raise does_not_fit(context, result if isinstance(result, int) else -1, placing(context.model))
    if enough:
        return layout
    if count > SMALL_ITEMS:
        rounds = max(0, passes - len(ORDERS))
        rounds = min(rounds, SPECIAL_WORK // count) if model.special else rounds
        layout = hill_climb(context, layout, rounds) or layout
    layout = improve_pools(context, layout)
    if not context.has_compiled():
        layout = hill_climb(context, layout) or layout
    return layout


def _in_pools(context: Context, first: Layout | int) -> Layout | None:
    """A layout within the pools, at the least cost that is found, from what first fit reached."""
    failed = first if isinstance(first, int) else -1
    layout = None if isinstance(first, int) else first
    try:
        if len(context.model.capacity) == 1:
            if layout is None:
                layout = into_capacity(context, failed)
        elif layout is None or layout.cost > 0:
            layout = assign(context, layout)
        if layout is None:
            layout = hill_climb(context)
    except OutOfTime:
        context.stopped_early = True
    if layout is None:
        quick = quick_layout(context.model)
        layout = None if isinstance(quick, int) else quick
    return layout


@register("auto")
@register("optimal")  # a name for the aim; the plan's status says what was reached
def plan_auto(problem: Problem, context: Context, enough: bool = False) -> tuple[Placement, ...]:
    """First fit over several orders, then exact search until the bound or the budget is met, or there is `enough`."""
    layout = _auto(context, enough)
    return context.model.placements(layout.pools, layout.origins)


@register("fit")
def plan_fit(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """Stop at the first plan that the pools can hold."""
    return plan_auto(problem, context, enough=True)
