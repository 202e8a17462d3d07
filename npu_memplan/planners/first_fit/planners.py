"""The planners that place each item once: first fit in one order or the best of several, and no reuse at all.

Invariant: what does not fit is an error that says so; nothing else is.
"""

from __future__ import annotations

from ...problem import Placement, Problem
from ..explain import no_room
from ..registry import Context, register
from .layout import Layout, first_fit, fits_at
from .orders import best_first_fit, by_conflicts, by_size, by_start, fixed_first


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
