"""The last pool when it has no size: planners fill several pools by the cost of spilling; here its height counts too.

Invariant: the other pools stay as they are, and the last one is never higher than it was, nor than a plan that was
found with everything in it.
"""

from __future__ import annotations

from dataclasses import replace

from .. import planners
from ..problem import Buffer, Placement, Plan, PoolUsage, Problem, used_bytes
from . import prefetch
from .bounds import load_peak
from .model import Model


def plan(problem: Problem, planner: str, seed: int) -> Plan:
    """What `prefetch.plan` answers; with several pools, the last of which has no size, that one as low as is found."""
    answer = prefetch.plan(problem, planner, seed=seed)
    writable = [p for p in problem.pools if not p.read_only]
    if planner not in prefetch.SEARCHING or len(writable) < 2 or writable[-1].size_bytes is not None:
        return answer
    return lower(problem, answer, writable[-1].name)


def lower(problem: Problem, answer: Plan, last: str) -> Plan:
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
    heights = used_bytes(problem, placements)
    if heights[last] >= used_bytes(problem, answer.placements)[last]:
        return answer
    usage = tuple(PoolUsage(u.pool, heights[u.pool], min(u.lower_bound_bytes, heights[u.pool])) for u in answer.usage)
    return replace(answer, placements=placements, usage=usage)


def _only(problem: Problem, buffer: Buffer, last: str) -> Buffer:
    """`buffer` in the last pool where it may be there."""
    able = buffer.fixed is None and last in [p.name for p in problem.candidates(buffer)]
    return replace(buffer, pools=(last,)) if able else buffer
