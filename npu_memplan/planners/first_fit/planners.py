"""The planners that place each item once: first fit in one order or the best of several, and no reuse at all.

Invariant: what does not fit is an error that says so; nothing else is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...problem import Placement, Problem
from ..explain import Limits, no_room
from ..model import Model
from ..registry import Context, register
from .layout import Layout, first_fit, fixed_first
from .orders import Order, best_first_fit, by_conflicts, by_size, by_start, placing


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


def _in_order(context: Context, order: Order) -> tuple[Placement, ...]:
    return _planned(context, first_fit(context.model, fixed_first(context.model, order(context.model))), order)


def _planned(context: Context, result: Layout | int, order: Order) -> tuple[Placement, ...]:
    if isinstance(result, int):
        raise no_room(context, result, placing(context.model, order))
    return context.model.placements(result.pools, result.origins)


@register("linear")
def plan_linear(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """No reuse at all: items one after the other, in order of first use. For debugging a program."""
    model = context.model
    placed = _in_a_row(model, model.capacity)
    if isinstance(placed, int):

        def place(limits: Limits) -> tuple[Sequence[int], str] | None:
            layout = _in_a_row(model, limits)
            return None if isinstance(layout, int) else (layout.heights, "without any reuse")

        raise no_room(context, placed, place)
    return model.placements(placed.pools, placed.origins)


def _in_a_row(model: Model, limit: Limits) -> Layout | int:
    """The layout, or the index of the item that found no place within `limit`."""
    layout = Layout([-1] * len(model.items), [-1] * len(model.items), [0] * len(limit))
    tops = layout.heights
    for i in fixed_first(model, by_start(model)):
        item = model.items[i]
        for pool in item.pools:
            room = limit[pool]
            # what has no bytes is in nobody's way
            at = item.home if item.fixed is not None or not item.size else item.align(tops[pool])
            if room is None or at + item.size <= room:
                layout.pools[i], layout.origins[i], tops[pool] = pool, at, max(tops[pool], at + item.size)
                break
        else:
            return i
    return layout
