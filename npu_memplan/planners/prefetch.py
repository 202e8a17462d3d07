"""Plans with room for weights to be copied while the operation before still runs, and a low last pool without a size.

Invariant: what is planned here is valid for the problem as it was given; unless more room is requested, pools and what
is proven of them are those that the planner reached alone, and no height is above its own. A copy may start early when
its destination holds nothing that a running operation uses: a lifetime that begins one point sooner says that it
should. The last pool is never higher than it was, nor than a plan that was found with everything in it; the others stay
as they are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from .. import planners
from ..problem import Buffer, BufferKind, Lifetime, Placement, Plan, PoolUsage, Problem, used_bytes
from ..verify import check_own
from .bounds import load_peak, points_above
from .model import Model

SEARCHING = ("auto", "optimal")  # other planners are taken at their word
NODES = 20_000  # of planning again
MOST_FULL = 200  # points without room for a copy, up to which there is a gain in planning again


def plan(
    problem: Problem,
    planner: str = "auto",
    time_limit_s: float | None = None,
    seed: int = 0,
    node_budget: int | None = None,
) -> Plan:
    """The plan that `planners.plan` answers, with the same heights and, where these have room for it, fewer waits."""
    answer = planners.plan(problem, planner, time_limit_s=time_limit_s, seed=seed, node_budget=node_budget)
    return run_ahead(problem, answer) if planner in SEARCHING else answer


def solve(problem: Problem, planner: str, time_limit_s: float | None, seed: int, room: bool) -> tuple[Problem, Plan]:
    """The plan that `plan` answers, and its problem: with `room`, that of `with_room` where pools have it."""
    if room:
        try:
            return (roomy := with_room(problem)), planners.plan(roomy, planner, time_limit_s, seed)
        except planners.PlanningError:
            pass
    return problem, plan(problem, planner, time_limit_s, seed)


def with_room(problem: Problem) -> Problem:
    """`problem` with every copy's buffer alive one point sooner, so that the copy can run ahead."""
    return _earlier(problem, _copies(problem))


def run_ahead(problem: Problem, plan: Plan) -> Plan:
    """`plan`, or one that is no higher, in which more copies need not wait for the operation before them."""
    copies = _copies(problem)
    if not copies:
        return plan
    held = _fix_pools(problem, plan)
    copies = _affordable(held, copies)
    sizes = {buffer.name: buffer.size_bytes for buffer in problem.buffers}
    while copies:
        try:
            placements = planners.plan(_earlier(held, copies), "fit", seed=plan.seed, node_budget=NODES).placements
        except planners.PlanningError:
            # there are bytes enough, but no places: the larger half can wait
            copies = set(sorted(copies, key=lambda name: (sizes[name], name))[: len(copies) // 2])
        else:
            found = _place_again(problem, plan, placements)
            check_own(problem, found)
            return found
    return plan


def _place_again(problem: Problem, plan: Plan, placements: tuple[Placement, ...]) -> Plan:
    """`plan` with other placements in the same pools."""
    heights = used_bytes(problem, placements)
    usage = tuple(PoolUsage(u.pool, heights[u.pool], min(u.lower_bound_bytes, heights[u.pool])) for u in plan.usage)
    return replace(plan, placements=placements, usage=usage)


def _copies(problem: Problem) -> set[str]:
    """Buffers that weights are copied into after the first operation."""
    return {
        buffer.name
        for buffer in problem.buffers
        if buffer.kind is BufferKind.WEIGHTS and buffer.lifetimes and buffer.lifetimes[0].first > 0
    }


def _fix_pools(problem: Problem, plan: Plan) -> Problem:
    """`problem` with every buffer in its pool and every pool as high as `plan` makes it."""
    pool_of = {placement.buffer: placement.pool for placement in plan.placements}
    heights = {usage.pool: usage.used_bytes for usage in plan.usage}
    return replace(
        problem,
        buffers=tuple(replace(buffer, pools=(pool_of[buffer.name],)) for buffer in problem.buffers),
        pools=tuple(replace(pool, size_bytes=heights[pool.name]) for pool in problem.pools),
    )


def _affordable(held: Problem, copies: Collection[str]) -> set[str]:
    """Those of `copies` for which there is room at every point; none where there is too little at many points.

    A copy begins one point before its lifetime and changes the bytes of that point alone, so all points are looked at
    once.
    """
    model = Model(_earlier(held, copies))
    full = {at for k, pool in enumerate(held.pools) for at in points_above(model, k, pool.size_bytes or 0)}
    if len(full) >= MOST_FULL:
        return set()
    left = {b.name for b in held.buffers if b.name in copies and b.lifetimes[0].first - 1 not in full}
    model = Model(_earlier(held, left)) if full else model
    fits = all(load_peak(model, k).bytes <= (pool.size_bytes or 0) for k, pool in enumerate(held.pools))
    return left if fits else set()


def _earlier(problem: Problem, copies: Collection[str]) -> Problem:
    """`problem` with the buffers called `copies` alive one point sooner."""

    def earlier(buffer: Buffer) -> Buffer:
        if buffer.name not in copies:
            return buffer
        first, *later = buffer.lifetimes
        return replace(buffer, lifetimes=(Lifetime(first.first - 1, first.last), *later))

    return replace(problem, buffers=tuple(earlier(buffer) for buffer in problem.buffers))


def plan_last_pool(problem: Problem, planner: str, seed: int) -> Plan:
    """The plan that `prefetch.plan` answers; of several pools, the last without a size as low as is found."""
    answer = plan(problem, planner, seed=seed)
    writable = [p for p in problem.pools if not p.read_only]
    if planner not in SEARCHING or len(writable) < 2 or writable[-1].size_bytes is not None:
        return answer
    lower = lower_last_pool(problem, answer, writable[-1].name)
    check_own(problem, lower)
    return lower


def lower_last_pool(problem: Problem, answer: Plan, last: str) -> Plan:
    """`answer` with what is in the pool `last` packed on its own."""
    homes = {p.buffer: p for p in answer.placements}
    kept = tuple(
        replace(b, pools=(last,))
        if homes[b.name].pool == last
        else replace(b, fixed=(homes[b.name].pool, homes[b.name].offset_bytes))
        for b in problem.buffers
    )
    inside = replace(problem, buffers=kept)
    best = _better(problem, answer, planners.plan(inside, seed=answer.seed).placements, last)
    model = Model(inside)
    if used_bytes(problem, best.placements)[last] > load_peak(model, model.pool_names.index(last)).bytes:
        everyone = replace(problem, buffers=tuple(_only(problem, b, last) for b in problem.buffers))
        alone = {p.buffer: p for p in planners.plan(everyone, seed=answer.seed).placements}
        mixed = tuple(alone[p.buffer] if p.pool == last else p for p in best.placements)
        if all(p.pool == last or p == homes[p.buffer] for p in mixed):
            best = _better(problem, best, mixed, last)
    return best


def _better(problem: Problem, answer: Plan, placements: tuple[Placement, ...], last: str) -> Plan:
    """`answer`, or the same with other `placements` if the pool `last` is lower with them."""
    lower = used_bytes(problem, placements)[last] < used_bytes(problem, answer.placements)[last]
    return _place_again(problem, answer, placements) if lower else answer


def _only(problem: Problem, buffer: Buffer, last: str) -> Buffer:
    """`buffer` in the last pool where it may be there."""
    able = buffer.fixed is None and last in [p.name for p in problem.candidates(buffer)]
    return replace(buffer, pools=(last,)) if able else buffer
