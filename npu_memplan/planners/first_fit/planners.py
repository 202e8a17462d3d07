"""The planners that place each item once: first fit in one order or the best of several, and no reuse at all.

Invariant: what does not fit is an error that says so; nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...problem import Placement, Problem
from ..explain import Need, no_room
from ..model import Model
from ..registry import Context, register
from .layout import Layout, first_fit, fixed_first
from .orders import best_first_fit, by_conflicts, by_size, by_start, needed


@register("first-fit")
def plan_first_fit(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit with hole reuse, the best of several orders."""
    return _planned(context, best_first_fit(context), by_size)


@register("greedy-by-size")
def plan_by_size(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit, largest buffer first."""
    return _in_order(context, by_size)


@register("greedy-by-conflicts")
def plan_by_conflicts(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit, buffer with most conflicts first."""
    return _in_order(context, by_conflicts)


def _in_order(context: Context, order: Callable[[Model], list[int]]) -> tuple[Placement, ...]:
    return _planned(context, first_fit(context.model, fixed_first(context.model, order(context.model))), order)


def _planned(context: Context, result: Layout | int, order: Callable[[Model], list[int]]) -> tuple[Placement, ...]:
    if isinstance(result, int):
        raise no_room(context, result, needed(context, order))
    return context.model.placements(result.pools, result.origins)


@register("linear")
def plan_linear(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """No reuse at all: items one after the other, in order of first use. For debugging a program."""
    model = context.model
    pools, origins, failed = _in_a_row(model, model.capacity)
    if failed is not None:

        def needs(pool: int) -> Need:
            unlimited = [None if k == pool else size for k, size in enumerate(model.capacity)]
            pools, origins, _ = _in_a_row(model, unlimited)
            tops = (at + item.size for item, p, at in zip(model.items, pools, origins, strict=True) if p == pool)
            return Need(max(tops, default=0), "without any reuse")

        raise no_room(context, failed, needs)
    return model.placements(pools, origins)


def _in_a_row(model: Model, limit: Sequence[int | None]) -> tuple[list[int], list[int], int | None]:
    """Pools and origins of the items, and the first one that found no place within `limit`."""
    pools, origins = [-1] * len(model.items), [-1] * len(model.items)
    tops = [0] * len(limit)
    failed = None
    for i in fixed_first(model, by_start(model)):
        item = model.items[i]
        for pool in item.pools:
            room = limit[pool]
            # what has no bytes is in nobody's way; where a fixed item ends, the next may begin
            at = item.home if item.fixed is not None or not item.size else item.align(tops[pool])
            if room is None or at + item.size <= room:
                pools[i], origins[i], tops[pool] = pool, at, max(tops[pool], at + item.size)
                break
        else:
            failed = i if failed is None else failed
    return pools, origins, failed
