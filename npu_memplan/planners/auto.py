"""The cheapest planner that proves its plan; else the best plan the budget allows.

Invariant: running out of time or nodes is never an error; a plan that was found is
returned, with what is known of it.
"""

from __future__ import annotations

from ..problem import Placement, Problem
from .first_fit import best_first_fit, no_room
from .hill_climb import hill_climb
from .registry import Context, register


@register("auto")
def plan_auto(problem: Problem, context: Context) -> tuple[Placement, ...]:
    """First fit over several orders, then search until the bound or the budget is met."""
    result = best_first_fit(context)
    best = hill_climb(context, None if isinstance(result, int) else result)
    if best is None:
        raise no_room(context, result if isinstance(result, int) else None)
    return context.model.placements(best.pools, best.origins)
