"""The planners that place each item once: first fit in one order or the best of several, and no reuse at all.

Invariant: what does not fit is an error that says so; nothing else is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...problem import Placement, Problem
from ..explain import Limits, does_not_fit
from ..model import Item, Model
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
