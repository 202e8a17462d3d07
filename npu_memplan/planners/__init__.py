"""Planners: a problem in, a plan out, verified whatever made it.

Invariant: `plan()` returns only plans that `npu_memplan.verify` accepts, says `OPTIMAL` only when every pool's height
equals a proven bound and nothing was spilled without need, and never returns worse than `incumbent`. A time limit
bounds every planner. Imports no TVM; the compiled searches are loaded, and numpy imported (for many buffers), only once
a cheap planner has not met the bound.

One folder a family, explained in its `__init__`: `first_fit` (every order of it), `exact` (one pool, plain conflicts),
`general` (anything), `scale` (very many), `spill` (several pools); `auto` chooses among them. At the top is what all
share: the `registry`, the context of a planner and the message of a problem that does not fit, the problem restated,
with its errors (`model`), and heights that no plan can go below (`bounds`).
"""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..clock import clock_s, left_of
from ..errors import InternalError
from ..problem import Placement, Plan, PlanStatus, PoolUsage, Problem, used_bytes
from ..verify import VerificationError, check, check_own, violations_of
from . import (
    auto,  # noqa: F401  registers planners, as do the next two
    first_fit,  # noqa: F401
)
from .bounds import load_peak
from .first_fit import QUICK, placing, quick_layout
from .model import Model, OutOfTime, PlannerUseError, PlanningError
from .registry import DEFAULT_NODES, Context, Planner, does_not_fit, find, planner_names, register

__all__ = ["Context", "Planner", "PlannerUseError", "PlanningError", "gc_paused", "plan", "planner_names", "register"]


_lock = threading.Lock()
_quiet, _was_enabled = 0, True  # blocks without collection, of all threads; whether there was one before


@contextmanager
def gc_paused() -> Iterator[None]:
    """No garbage collection inside: planners make no cycles, and walking millions of live objects takes seconds."""
    global _quiet, _was_enabled
    with _lock:
        if not _quiet:
            _was_enabled = gc.isenabled()
            gc.disable()
        _quiet += 1
    try:
        yield
    finally:
        with _lock:
            _quiet -= 1
            if not _quiet and _was_enabled:
                gc.enable()


@gc_paused()
def plan(
    problem: Problem,
    planner: str = "auto",
    time_limit_s: float | None = None,
    seed: int = 0,
    node_budget: int | None = None,
    incumbent: Plan | None = None,
    model: Model | None = None,
) -> Plan:
    """Place every buffer of `problem`.

    `planner` is a registered name (`planner_names()`). The search ends at a proven optimum, after `time_limit_s`
    seconds (fewer inside `clock.limit_searches`) or `node_budget` units of work; with neither, after a default number
    of units, so the plan then depends on the problem and `seed` only. `incumbent` is a valid plan that the answer is
    never worse than. `model` is that of the problem, where it has been made.

    Raises `ProblemError` (the problem contradicts itself), `PlanningError` (nothing fits the pools), `PlannerUseError`
    (unknown planner, unusable budget), `VerificationError` (the incumbent violates a constraint), `InternalError` (the
    planner's own plan does).
    """
    function = find(planner)  # an unknown name is an error before any work
    if time_limit_s is not None and not (math.isfinite(time_limit_s) and time_limit_s >= 0):
        raise PlannerUseError(f"a time limit of {time_limit_s!r} seconds is no limit; give a finite number >= 0")
    if node_budget is not None and (type(node_budget) is not int or node_budget < 0):
        raise PlannerUseError(f"a node budget of {node_budget!r} is no budget; give a whole number >= 0")
    started = clock_s()
    model = Model(problem) if model is None else model
    if incumbent is not None:
        check(problem, incumbent)
    nodes = DEFAULT_NODES if time_limit_s is None and node_budget is None else node_budget
    deadline = None
    if time_limit_s is not None:
        # verifying a plan takes about three times as long as restating the problem
        restating_s = clock_s() - started
        left_s = left_of(time_limit_s)
        deadline = started + left_s - min(3 * restating_s, left_s / 2)
        model.deadline = deadline - restating_s  # and the quick layout after an interruption takes about as long
    context = Context(model, seed, nodes, deadline, started=started)
    context.incumbent = incumbent
    name = planner
    try:
        placements = tuple(function(problem, context))
    except OutOfTime:
        placements = _in_no_time(context)
    except PlanningError:
        if incumbent is None:
            raise
        placements, name = incumbent.placements, incumbent.planner
    known = {buffer.name for buffer in problem.buffers}
    if len(placements) != len(known) or any(
        p.buffer not in known or p.pool not in model.pool_names for p in placements
    ):
        check_own(problem, Plan(placements, (), PlanStatus.FEASIBLE, planner))  # says which are missing or unknown
    if incumbent is not None and _key(model, incumbent.placements) <= _key(model, placements):
        placements, name = incumbent.placements, incumbent.planner
        if len(model.pool_names) > 1:
            context.bounds.clear()  # they hold for the other assignment to pools
    limits = [] if time_limit_s is None else [f"{time_limit_s:g} s"]
    limits += [] if nodes is None else [f"{nodes} nodes"]
    answer = _assemble(model, placements, name, context, ", ".join(limits))
    checked = incumbent is not None and placements is incumbent.placements
    violations = () if checked else violations_of(problem, answer)
    if violations:
        raise InternalError(str(VerificationError(problem, answer, violations)))
    return answer


def _in_no_time(context: Context) -> tuple[Placement, ...]:
    """The placements of a planner that has none when its time is over."""
    context.stopped_early = True
    layout = quick_layout(context.model)
    if isinstance(layout, int):
        if context.incumbent is not None:
            return context.incumbent.placements
        raise does_not_fit(context, layout, placing(context.model))
    context.note(QUICK)
    return context.model.placements(layout.pools, layout.origins)


def _key(model: Model, placements: tuple[Placement, ...]) -> tuple[float, int]:
    """The cost that is minimised: of spilling, then bytes of all pools."""
    heights = used_bytes(model.problem, placements)
    if len(model.pool_names) == 1:
        return 0.0, sum(heights.values())
    pools, _ = model.layout(placements)
    return model.cost_of(pools), sum(heights.values())


def _assemble(model: Model, placements: tuple[Placement, ...], planner: str, context: Context, budget: str) -> Plan:
    """The plan of `placements`, with heights, bounds and what they prove."""
    heights = used_bytes(model.problem, placements)
    pools: list[int] | None = None
    cost = 0.0
    if len(model.pool_names) > 1 and len(placements) == len(model.problem.buffers):
        pools, _ = model.layout(placements)
        cost = model.cost_of(pools)
    usage = []
    for index, name in enumerate(model.pool_names):
        bound = min(max(load_peak(model, index, pools).bytes, context.bounds.get(index, 0)), heights[name])
        usage.append(PoolUsage(name, heights[name], bound))
    met = all(u.used_bytes == u.lower_bound_bytes for u in usage) and (cost == 0 or context.cost_proven)
    return Plan(
        placements,
        tuple(usage),
        PlanStatus.OPTIMAL if met else PlanStatus.FEASIBLE,
        planner,
        context.seed,
        budget,
        context.stopped_early and not met,
        "" if met else "; ".join(context.notes),
    )
