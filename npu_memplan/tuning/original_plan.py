"""The plan that a stream's compiler had made.

Invariant: every buffer has the offset that the compiler gave it, and no constraint is violated; else there is no plan.
"""

from __future__ import annotations

from .. import verify
from ..planners.given import with_bounds
from ..problem import Placement, Plan, PlanStatus
from ..stages import Planned
from .placed import npu_calls

ORIGINAL = "the offsets are those of the stream's compiler"


def original_plan(planned: Planned) -> Planned | None:
    """The program with its compiler's own offsets; None where a buffer had none, or they violate a constraint. It
    names the planner and seed of `planned`, with which it is planned again.
    """
    extracted = planned.extracted
    problem = extracted.problem
    found: dict[str, Placement] = {}
    for call in npu_calls(extracted.program):
        for buffer in call.program.buffers:
            storage, pool = call.storages.get(buffer.name), buffer.original_region - 1
            if storage is not None and 0 <= pool < len(problem.pools) and buffer.original_offset >= 0:
                found[storage] = Placement(storage, problem.pools[pool].name, buffer.original_offset)
    if any(buffer.name not in found for buffer in problem.buffers):
        return None
    placements = tuple(found[buffer.name] for buffer in problem.buffers)
    own = planned.plan
    made = Plan(placements, (), PlanStatus.FEASIBLE, own.planner, own.seed, note=ORIGINAL)
    plan = with_bounds(problem, made)
    return None if verify.verify(problem, plan) else Planned(extracted, plan)
