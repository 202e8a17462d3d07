"""What a planner claims about a problem, held against `solver`.

Invariant: `false_claims` says nothing where a planner claims nothing: a plan that is merely feasible, or an error that
is not proven, may be worse than what the solver finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from npu_memplan.planners import PlanningError, plan
from npu_memplan.problem import Plan, PlanStatus, Problem, ProblemError

from .solver import Exact, Unknown, broken, cost, only, unlimited


def outcome(problem: Problem, planner: str = "auto", **limits: Any) -> Plan | PlanningError | None:
    """The plan, why there is none, or None for a problem that contradicts itself."""
    try:
        return plan(problem, planner, **limits)
    except PlanningError as error:
        return error
    except ProblemError:
        return None


def false_claims(
    problem: Problem, answer: Plan | PlanningError | None, seen: Counter[str], limit_s: float = 10.0
) -> Iterator[str]:
    """Each false claim of `answer`, in words; `seen` counts what was claimed and what was confirmed."""
    try:
        if answer is None:
            seen["contradicts itself"] += 1
        elif isinstance(answer, PlanningError):
            yield from _of_error(problem, answer, seen, limit_s)
        else:
            yield from _of_plan(problem, answer, seen, limit_s)
    except Unknown:
        seen["not decided by the solver"] += 1


def _of_error(problem: Problem, error: PlanningError, seen: Counter[str], limit_s: float) -> Iterator[str]:
    if not error.required_bytes - error.available_bytes == error.excess_bytes > 0:
        yield f"an error with excess {error.excess_bytes}"
    if not error.proven:
        seen["no plan, not proven"] += 1
        return
    if Exact(problem, limit_s=limit_s).least() is not None:
        yield "what is called infeasible has a plan"
    if error.subset and Exact(only(problem, error.subset, error.pool), limit_s=limit_s).least() is not None:
        yield f"{error.subset} can be together"
    if len(problem.pools) == 1:
        least = Exact(unlimited(problem), limit_s=limit_s).least([error.pool])
        if least is not None and least < error.required_bytes:
            yield f"{error.required_bytes} bytes are called required, {least} are enough"
    seen["infeasible, confirmed"] += 1


def _of_plan(problem: Problem, answer: Plan, seen: Counter[str], limit_s: float) -> Iterator[str]:
    yield from broken(problem, answer.placements)
    pools = [pool.name for pool in problem.pools]
    assigned = {p.buffer: p.pool for p in answer.placements}
    least = Exact(unlimited(problem), assigned, limit_s).least(pools) or 0
    used, bound = (sum(getattr(u, what) for u in answer.usage) for what in ("used_bytes", "lower_bound_bytes"))
    if bound > least:
        yield f"a bound of {bound} bytes, {least} are enough"
    if answer.status is not PlanStatus.OPTIMAL:
        seen["feasible" + (", and least" if used == least else "")] += 1
        return
    if used > least:
        yield f"{used} bytes are called optimal, {least} are enough"
    if len(pools) > 1:
        mine = sum(cost(problem, b, assigned[b.name]) for b in problem.buffers)
        cheapest = Exact(problem, limit_s=limit_s).least(costs=True)
        if cheapest is None or mine > cheapest:
            yield f"an assignment at {mine} is called optimal, {cheapest} is possible"
    seen["optimal, confirmed"] += 1
