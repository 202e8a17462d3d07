"""A planned program with copies of constants that are not in its module yet: cheap to compare, made when it is taken.

Invariant: `rank` is that of the program that `made` makes, whose copies lie where they were weighed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .. import planners
from ..errors import InternalError
from ..ethosu.arch import Architecture
from ..ethosu.program.hazards import stream_of
from ..ethosu.program.program import NpuProgram
from ..ethosu.stream.decode import Command
from ..ethosu.time import MODELS
from ..ethosu.time import cycles_by_model as by_model
from ..problem import Placement, Plan, PlanStatus, PoolUsage, used_bytes
from ..stages import Extracted, Planned
from ..verify import VerificationError
from .placed import PlacedCall, npu_calls
from .ranking import Rank, Ranking
from .rebuild import rebuild_problem


@dataclass(frozen=True, slots=True)
class Moved:
    """A call with another program, which has copies at `places` of the fast pool."""

    call: PlacedCall
    program: NpuProgram
    places: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProgramCandidate:
    """`plain`, with the programs of some of its calls replaced."""

    plain: Planned
    rank: Rank
    moved: tuple[Moved, ...] = ()
    fast: int = -1  # the pool of their copies
    cycles: tuple[int, ...] = ()  # under each model, where that is known

    def made(self, ranking: Ranking) -> Planned:
        """The program."""
        if not self.moved:
            return self.plain
        again = rebuild_problem(self.plain.extracted, {m.call.invoke.function: m.program for m in self.moved})
        pool = again.problem.pools[self.fast].name
        made = Planned(again, _same_places(again, self.plain.plan, self.moved, pool))
        ranking.note(made, self.rank)
        return made


def with_copies(plain: Planned, moved: Sequence[Moved], fast: int, ranking: Ranking) -> ProgramCandidate:
    """`plain` with the programs of `moved`, which differ from those of their calls in copies to pool `fast`."""
    cycles = _by_model(plain, moved, fast, ranking)
    used = {usage.pool: usage.used_bytes for usage in plain.plan.usage}
    pool = plain.extracted.problem.pools[fast].name
    for m in moved:
        sizes = {b.name: b.size_bytes for b in m.program.buffers}
        used[pool] = max([used[pool], *(at + sizes[name] for name, at in m.places.items())])
    ranked = cycles[MODELS.index(ranking.memory_map.assumptions)]
    return ProgramCandidate(plain, (ranked, sum(used.values())), tuple(moved), fast, cycles)


def cycles_by_model(candidate: ProgramCandidate, ranking: Ranking) -> tuple[int, ...]:
    """Of a program, under each model of what no count decides."""
    return candidate.cycles or _by_model(candidate.plain, candidate.moved, candidate.fast, ranking)


def _by_model(plain: Planned, moved: Sequence[Moved], fast: int, ranking: Ranking) -> tuple[int, ...]:
    """All at once: to make the stream takes longer than its time under three models."""
    streams = _streams(plain, moved, fast, ranking)
    found = by_model(streams, ranking.memory_map, resource_uses=lambda npu: ranking.demand_cache(npu).resource_uses)
    return tuple(found.values())


def _streams(
    plain: Planned, moved: Sequence[Moved], fast: int, ranking: Ranking
) -> Iterator[tuple[Sequence[Command], Architecture]]:
    """The streams of all calls; those of `plain` are not made where no call is without a change."""
    problem, plan = plain.extracted.problem, plain.plan
    changed = {m.call.first: m for m in moved}
    for index, call in enumerate(npu_calls(plain.extracted.program)):
        if call.first in changed:
            places = call.places(problem, plan)
            places |= {name: (fast + 1, at) for name, at in changed[call.first].places.items()}
            yield stream_of(changed[call.first].program, places.__getitem__), call.program.accelerator
        else:
            yield ranking.streams(plain)[index][1], call.program.accelerator


def _same_places(extracted: Extracted, plan: Plan, moved: Sequence[Moved], pool: str) -> Plan:
    """The plan of the program with copies: everything where it was, the copies where they were put."""
    at = {p.buffer: p for p in plan.placements}
    calls = {call.invoke.function: call for call in npu_calls(extracted.program)}
    for m in moved:
        storages = calls[m.call.invoke.function].storages
        at |= {storages[name]: Placement(storages[name], pool, offset) for name, offset in m.places.items()}
    placements = tuple(at[buffer.name] for buffer in extracted.problem.buffers)
    usage = tuple(PoolUsage(name, used, 0) for name, used in used_bytes(extracted.problem, placements).items())
    known = Plan(placements, usage, PlanStatus.FEASIBLE, plan.planner, plan.seed)
    try:
        return planners.plan(extracted.problem, "linear", seed=plan.seed, incumbent=known)
    except VerificationError as error:
        raise InternalError(str(error)) from error
