"""A layout that is taken as it is, with what is proven of it.

Invariant: no buffer is moved; a plan over several pools is never said to be optimal.
"""

from __future__ import annotations

from dataclasses import replace

from ..problem import Plan, PlanStatus, PoolUsage, Problem, used_bytes
from .bounds import forced, load_peak
from .model import Model


def with_bounds(problem: Problem, plan: Plan) -> Plan:
    """`plan` with the heights of its placements, and the bounds of the buffers that only one pool may hold."""
    model = Model(problem)
    heights, only = used_bytes(problem, plan.placements), forced(model)
    usage = tuple(
        PoolUsage(pool.name, heights[pool.name], min(heights[pool.name], load_peak(model, index, only).bytes))
        for index, pool in enumerate(problem.pools)
    )
    proven = len(usage) == 1 and usage[0].used_bytes == usage[0].lower_bound_bytes
    return replace(plan, usage=usage, status=PlanStatus.OPTIMAL if proven else PlanStatus.FEASIBLE)
