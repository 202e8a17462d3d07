"""A program that reads its constants in place, and the copies that are found for it.

Invariant: optimistic cycles assume that each buffer may lie anywhere below the limit. A candidate is compared only when
it is allocated: maps and copies together, or copies around maps that keep their offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial

from .. import planners
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.prefetch.free_space import FreeCapacity, FreeRanges, OccupiedRange
from ..ethosu.schedule.prefetch.insert import insert
from ..ethosu.schedule.prefetch.least_work import least_work, port_cycles, unit_cycles
from ..ethosu.schedule.prefetch.native_search import FEWEST_CYCLES, Goal
from ..ethosu.schedule.prefetch.reads import constant_blocks
from ..ethosu.schedule.prefetch.schedules import Copy
from ..ethosu.schedule.prefetch.search import CopySearch
from ..ethosu.schedule.prefetch.slice_tuning import tune_slices
from ..ethosu.schedule.prefetch.timed_program import TimedProgram
from ..ethosu.stream.decode import Command
from ..ethosu.time import MODELS, Assumptions
from ..names import Names
from ..problem import Buffer, BufferKind, Lifetime, PlanStatus, PoolUsage, used_bytes
from ..stages import Extracted, Planned
from .budget import SearchBudget
from .candidate import Moved, ProgramCandidate, with_copies
from .placed import PlacedCall
from .ranking import Ranking
from .rebuild import Cutters, called_once

_NODES = 20_000  # of each plan of a program without copies
_ENDLESS = 1 << 30  # bytes more: room for all copies
_EXCESS = 8  # a part of the limit: what does not fit by more is not tried with less
_LESS = (256, 128, 64, 32)  # by which parts of it, at least, there is less for a program that does not fit
Copies = Sequence[tuple[Copy, ...]]  # of each call
TimedCalls = list[tuple[PlacedCall, TimedProgram]]


class PrefetchCandidate:
    """`plain`, whose constants may be copied to pool `fast`, which ends at `limit` bytes."""

    def __init__(
        self,
        plain: Planned,
        rank: Ranking,
        fast: int,
        limit: int,
    ) -> None:
        self.plain, self._rank, self._fast, self._limit = plain, rank, fast, limit
        self._allocated: dict[tuple[Copies, int | None, int], tuple[Planned, Copies] | int] = {}
        self._timed_calls = self._timed(rank.memory_map.assumptions)
        self._goals = [FEWEST_CYCLES] * len(self._timed_calls)
        self._searches = self._begun(FreeCapacity, limit)

    def _timed(self, assumptions: Assumptions) -> TimedCalls:
        """The calls on the clock of a model of time."""
        problem, plan = self.plain.extracted.problem, self.plain.plan
        streams = {call.invoke.function: commands for call, commands in self._rank.streams(self.plain)}
        return [
            (
                call,
                self._timed_program(
                    call.places(problem, plan), call.program, streams[call.invoke.function], assumptions
                ),
            )
            for call in called_once(self.plain.extracted)
        ]

    def _timed_program(
        self,
        places: Mapping[str, tuple[int, int]],
        program: NpuProgram,
        commands: Sequence[Command] | None = None,
        assumptions: Assumptions | None = None,
    ) -> TimedProgram:
        demand_cache, constants = self._rank.demand_cache(program.accelerator, assumptions), constant_blocks(program)
        return TimedProgram(program, constants, places.__getitem__, demand_cache, self._fast + 1, commands)

    @property
    def optimistic_cycles(self) -> int:
        """Optimistic cycles of the calls whose constants may be prefetched: before copies are allocated."""
        return sum(search.best.cycles for search in self._searches)

    @property
    def least_cycles(self) -> int:
        """What the same operations take at least, whatever is copied: a bound of the calls that are searched, which
        holds for them in slices as well.
        """
        clocks = [(timed, sum(constant.size_bytes for constant in timed.constants)) for _, timed in self._timed_calls]
        return sum(
            round(max(least_work(timed)[0], port_cycles(size_bytes, timed.program.accelerator, timed.memory_map)))
            for timed, size_bytes in clocks
        )

    @property
    def possible_gain(self) -> float:
        """About the part of its cycles that the same operations in parts may spare: what room for all copies spares,
        and what the largest operation takes, during which copies for others may be made.
        """
        room = sum(search.best.cycles for search in self._begun(FreeCapacity, self._limit + _ENDLESS))
        steps = (timed.step(index) for _, timed in self._timed_calls for index in range(len(timed)))
        largest = max((unit_cycles(step.fast) for step in steps), default=0.0)
        return (max(0, self.optimistic_cycles - room) + largest) / max(1, self.optimistic_cycles)

    def search(self, work: int) -> None:
        """Lower the optimistic cycles, until `work` operations of the timing model are spent."""
        _further(self._searches, work)

    def under(self, assumptions: Assumptions) -> PrefetchCandidate:
        """The same on the clock of another model of time, with the copies that were found."""
        return self._otherwise(self._timed(assumptions), self._goals)

    def under_all(self, reference: Sequence[int]) -> PrefetchCandidate:
        """The same, whose copies are searched for under all models at once, from those that were found on: for the
        least part of `reference`, cycles under each model, where that is most. Programs are ranked as before.
        """
        own = MODELS.index(self._rank.memory_map.assumptions)
        order = [own, *(index for index in range(len(MODELS)) if index != own)]
        calls = [self._timed(MODELS[index]) for index in order[1:]]
        goals = []
        for index, search in enumerate(self._searches):
            share = search.best.cycles / max(1, self.optimistic_cycles)  # of the whole
            references = tuple(max(1.0, reference[model] * share) for model in order)
            goals.append(Goal(tuple(timed[index][1] for timed in calls), references))
        return self._otherwise(self._timed_calls, goals)

    def _otherwise(self, timed_calls: TimedCalls, goals: list[Goal]) -> PrefetchCandidate:
        """The same with other clocks or goals, from the copies that were found on."""
        other = copy(self)
        other._timed_calls, other._goals = timed_calls, goals
        other._searches = other._begun(FreeCapacity, self._limit)
        for search, known in zip(other._searches, self._searches, strict=True):
            search.try_out(known.choice)
        return other

    @property
    def cost(self) -> float:
        """By what is searched for, before copies are allocated."""
        return max((search.cost for search in self._searches), default=0)

    def instead(self, extracted: Extracted) -> PrefetchCandidate | None:
        """Another program in the same pool; None where it does not fit."""
        planned = planned_again(self.plain, extracted, self._fast, self._limit)
        return None if planned is None else PrefetchCandidate(planned, self._rank, self._fast, self._limit)

    def tune_slices(self, cutters: Cutters, most_bytes: int, cut: PrefetchCandidate) -> dict[str, Mapping[int, int]]:
        """Of each function that can be cut the most bytes of slices of single operations, where that estimates less
        than `cut`, which is this program with `most_bytes` for all.
        """
        found = {}
        for (call, _), known in zip(self._timed_calls, cut._searches, strict=True):
            name, others = call.invoke.function, held(self.plain, call, self._fast)
            if name in cutters:
                timed_program = partial(self._timed_program, call.places(self.plain.extracted.problem, self.plain.plan))
                found[name] = tune_slices(
                    cutters[name][1], most_bytes, timed_program, others, self._limit, known.best.cycles
                )
        return found

    def candidates(self, budget: SearchBudget) -> Iterator[ProgramCandidate]:
        """The program with copies that have places: those that were found, planned together with the maps, or fewer
        where they do not fit; and what is found around the maps where they lie, or would lie beside the copies in a
        larger pool.
        """
        work, nodes = budget.allocation_work, budget.plan_nodes
        found = [search.best.copies for search in self._searches]
        if not any(found):
            yield ProgramCandidate(self.plain, self._rank(self.plain))
        together, less = self._together(found, self._limit, nodes), 0
        for part in _LESS:
            if isinstance(together, int) and together < self._limit // _EXCESS:
                less += max(together, self._limit // part)
                fewer = _further(self._begun(FreeCapacity, self._limit - less), work)
                together = self._together([search.best.copies for search in fewer], self._limit, nodes)
        if not isinstance(together, int):
            yield from self._with(*together)
        yield from self._around(self.plain, work)
        endless = self._together(found, None, nodes)
        if not isinstance(endless, int) and self._used(endless[0]) <= self._limit:
            yield from self._around(endless[0], work)

    def _begun(self, kind: type[FreeCapacity], limit: int, plain: Planned | None = None) -> list[CopySearch]:
        """A search for each call."""
        there = plain or self.plain
        return [
            CopySearch(timed, kind(held(there, call, self._fast), limit, len(timed)), goal)
            for (call, timed), goal in zip(self._timed_calls, self._goals, strict=True)
        ]

    def _around(self, plain: Planned, work: int) -> Iterator[ProgramCandidate]:
        """Copies around maps that stay where they lie, from those on that were found where they need not."""
        searches = self._begun(FreeRanges, self._limit, plain)
        for search, known in zip(searches, self._searches, strict=True):
            search.try_out(known.choice)
        yield from self._with(plain, [search.best.copies for search in _further(searches, work)])

    def _used(self, plain: Planned) -> int:
        """Bytes of the pool that maps take."""
        return next(u.used_bytes for u in plain.plan.usage if u.pool == plain.extracted.problem.pools[self._fast].name)

    def _with(self, plain: Planned, copies: Copies) -> Iterator[ProgramCandidate]:
        """Candidates with these copies, which have their places: kernels in their own blocks, or in better ones."""
        candidate: ProgramCandidate | None = None
        for reblocked in (False, True):
            inserted = [
                Moved(call, *insert(timed, made, self._fast + 1, reblocked))
                for (call, timed), made in zip(self._timed_calls, copies, strict=True)
            ]
            moved = tuple(m for m in inserted if m.program is not m.call.program)
            if moved:
                if candidate is None or candidate.moved != moved:  # no kernel has better blocks
                    candidate = with_copies(plain, moved, self._fast, self._rank)
                yield candidate

    def _together(self, copies: Copies, limit: int | None, nodes: int) -> tuple[Planned, Copies] | int:
        """Places for the maps of the pool and the copies below a limit; else the bytes that are missing. The same
        copies, which another model of time may lead to, have the same places.
        """
        key = tuple(copies), limit, nodes
        if key not in self._allocated:
            self._allocated[key] = self._allocate(copies, limit, nodes)
        return self._allocated[key]

    def _allocate(self, copies: Copies, limit: int | None, nodes: int) -> tuple[Planned, Copies] | int:
        problem, plan = self.plain.extracted.problem, self.plain.plan
        pool = problem.pools[self._fast]
        inside = {p.buffer for p in plan.placements if p.pool == pool.name}
        names = Names(b.name for b in problem.buffers)
        made: list[Buffer] = []
        for (call, timed), sent in zip(self._timed_calls, copies, strict=True):
            for one in sent:
                constant, start = timed.constants[one.constant], call.first + max(0, one.before - one.unfinished)
                life = Lifetime(start, call.first + constant.readers[-1] + 1)
                kind = BufferKind.WEIGHTS
                made.append(Buffer(names.unique("copy"), constant.size_bytes, (life,), pools=(pool.name,), kind=kind))
        whole = replace(
            problem,
            buffers=(*(replace(b, pools=()) for b in problem.buffers if b.name in inside), *made),
            pools=(replace(pool, size_bytes=limit),),
            conflicts=tuple(pair for pair in problem.conflicts if inside.issuperset(pair)),
            aliases=tuple(a for a in problem.aliases if inside.issuperset(name for name, _ in a.members)),
            overlaps=tuple(o for o in problem.overlaps if inside.issuperset((o.first, o.second))),
            streams=tuple(s for s in problem.streams if s.buffer in inside),
            accesses=(),  # those of the program without the copies
        )
        planner = "auto" if limit is None else "fit"
        try:
            found = planners.plan(whole, planner, seed=plan.seed, node_budget=nodes)
        except planners.PlanningError as error:
            return max(1, error.excess_bytes)
        at = {p.buffer: p for p in found.placements}
        placements = tuple(at.get(p.buffer, p) for p in plan.placements)
        usage = tuple(PoolUsage(name, used, 0) for name, used in used_bytes(problem, placements).items())
        placed = replace(plan, placements=placements, usage=usage, status=PlanStatus.FEASIBLE)
        offsets = iter(at[b.name].offset_bytes for b in made)
        return Planned(self.plain.extracted, placed), [
            tuple(replace(copy, at=next(offsets)) for copy in sent) for sent in copies
        ]


def _further(searches: list[CopySearch], work: int) -> list[CopySearch]:
    """`work`: of all calls together."""
    operations = sum(len(search.timed) for search in searches)
    for search in searches:
        search.further(work * len(search.timed) // operations)
    return searches


def held(planned: Planned, call: PlacedCall, fast: int) -> list[OccupiedRange]:
    """What lies in the pool while a call runs, in operations of the call."""
    problem, pool = planned.extracted.problem, planned.extracted.problem.pools[fast].name
    end = call.first + len(call.program.operations)
    at = {p.buffer: p.offset_bytes for p in planned.plan.placements if p.pool == pool}
    return [
        OccupiedRange(
            max(life.first, call.first) - call.first,
            min(life.last, end) - 1 - call.first,
            at[buffer.name],
            at[buffer.name] + buffer.size_bytes,
        )
        for buffer in problem.buffers
        if buffer.name in at
        for life in buffer.lifetimes
        if life.first < end and life.last > call.first
    ]


def planned_again(planned: Planned, without: Extracted, fast: int, limit: int) -> Planned | None:
    """A plan of another program in the same pools, which are no higher; None where there is none."""
    extracted = planned.extracted
    heights = {usage.pool: usage.used_bytes for usage in planned.plan.usage}
    heights[extracted.problem.pools[fast].name] = limit
    held = tuple(
        pool if pool.read_only else replace(pool, size_bytes=heights[pool.name]) for pool in without.problem.pools
    )
    try:
        plan = planners.plan(
            replace(without.problem, pools=held), planned.plan.planner, seed=planned.plan.seed, node_budget=_NODES
        )
    except planners.PlanningError:
        return None
    return Planned(without, plan)
