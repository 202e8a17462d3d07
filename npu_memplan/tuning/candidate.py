"""Candidates of the search: programs with copies of their constants that are in no module yet.

Invariant: `rank` is that of the program that `build` makes, whose copies lie where they were estimated. Optimistic
cycles assume that each buffer may lie anywhere below the limit; a candidate is compared only when it is allocated: maps
and copies together, or copies around maps that keep their offsets. What is not replaced in a program stays as it is,
the attributes of replaced functions included. All limits of the search are units of work, never seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from operator import gt
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from .. import planners
from ..errors import InternalError
from ..ethosu.arch import Architecture
from ..ethosu.program.hazards import stream_of
from ..ethosu.program.primfunc import cache_program, from_primfunc, to_primfunc
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.constants import Slicer, Slices, constant_blocks
from ..ethosu.schedule.prefetch.copies import Copy, FreeCapacity, FreeRanges, OccupiedRange, insert
from ..ethosu.schedule.prefetch.search import FEWEST_CYCLES, WORK, CopySearch, Goal
from ..ethosu.schedule.prefetch.timed_program import (
    TimedProgram,
    cycles_alone,
    in_context,
    least_work,
    port_cycles,
    unit_cycles,
)
from ..ethosu.stream.decode import Command
from ..ethosu.time import ALONE, JUDGED, MODELS, Assumptions
from ..ethosu.time import cycles_by_model as by_model
from ..extract.program import Fixed
from ..extract.tir import operator_of
from ..names import Names
from ..problem import Buffer, BufferKind, Lifetime, Placement, Plan, PlanStatus, PoolUsage, used_bytes
from ..stages import Extracted, Planned, extract_problem
from ..verify import VerificationError
from ..vocabulary import is_npu
from .ranking import DecodedConstants, PlacedCall, Rank, Ranking, npu_calls

# Chosen by hand: on the benchmark networks each of them gives the best program of some. Others may be better.
_SHARES = (1.0, 0.85, 0.75, 0.6, 0.45, 0.3, 0.2)


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """The limits of a search; `work` is in the units of `prefetch.search.WORK`."""

    rounds: tuple[tuple[int, int], ...]  # so many of the best candidates are searched on, to so much work each
    allocation_work: int  # of copies that get addresses
    plan_nodes: int  # of each plan of maps and copies
    last_work: int  # of the best candidate, once some have addresses; 0: none
    shares: tuple[float, ...]  # of the pool, for stripes whose weights are prefetched
    in_place_shares: tuple[float, ...]  # the same, whose weights are read in place
    read_once_shares: tuple[float, ...]  # the same, whose weights are prefetched where they are read again
    both_lowerings: bool  # for few bytes too, for its stripes, in a default compile whose maps are in the fast pool
    sliced_forms: int  # candidates that are cut into slices of other sizes
    least_gain: float = 0.0  # part of the cycles: stripes are made where about so much may be gained

    @property
    def stripes(self) -> bool:
        """Whether operations are cut into stripes."""
        return bool(self.shares or self.in_place_shares or self.read_once_shares)


# `normal` is successive halving: fewer candidates, each with more work. `quick` is one round, with no stripes but those
# of pools with a size. `normal` has one of the shares, and slices of one size: on the benchmark networks more of either
# find nothing better, but for less than 1 % on single ones.
BUDGETS = {
    "quick": SearchBudget(((4, WORK // 10),), WORK // 16, 20_000, 0, (), (), (), False, 0),
    "normal": SearchBudget(
        ((8, WORK // 16), (4, WORK // 8), (2, WORK // 4)), WORK // 8, 4_000, 0, (0.6,), (), (), False, 0,
        least_gain=0.07,
    ),
    "max": SearchBudget(
        ((32, WORK // 4), (16, WORK), (8, 2 * WORK)), WORK, 20_000, 8 * WORK,
        (1.0, 0.92, 0.85, 0.8, 0.75, 0.67, 0.6, 0.52, 0.45, 0.37, 0.3, 0.25, 0.2), _SHARES[:4], _SHARES[:3], True, 4,
    ),
}  # fmt: skip

# For a second search where the program is slower than Vela's stream: with stripes that leave their constants in place
_MORE_STRIPES = replace(
    BUDGETS["normal"],
    rounds=((16, WORK // 10), (8, WORK // 4), (4, WORK // 2)),
    allocation_work=WORK // 4,
    shares=_SHARES,
    sliced_forms=2,
    in_place_shares=_SHARES[:2],
    read_once_shares=_SHARES[1:2],
    least_gain=0.0,
)


def further_budget(budget: SearchBudget) -> SearchBudget | None:
    """The budget of a second search, where a program is slower than Vela's stream; None where there is none."""
    later = {BUDGETS["quick"]: BUDGETS["normal"], BUDGETS["normal"]: _MORE_STRIPES}
    return later.get(budget)


Cutters = Mapping[str, tuple[Any, Slicer]]  # NPU function -> its constants in main, and its slicer


def npu_programs(extracted: Extracted) -> dict[Any, NpuProgram]:
    """The programs of the NPU functions, by their variables."""
    return {v: from_primfunc(f) for v, f in extracted.loaded.module.functions.items() if is_npu(f)}


def called_once(extracted: Extracted) -> list[PlacedCall]:
    """NPU calls whose function has no other call."""
    called = Counter(call.function for call in extracted.program.calls)
    return [call for call in npu_calls(extracted.program) if called[call.invoke.function] == 1]


def slicers(extracted: Extracted, slices: dict[bytes, Slices], decoded: DecodedConstants) -> Cutters:
    """The slicers of NPU functions with one buffer of constants. `slices`: the slices made so far, by constants; all
    slicers of the same constants share them, and the weights in `decoded`.
    """
    found = {}
    for call in called_once(extracted):
        held = [(a.expr, a.expr.value.numpy()) for a in call.invoke.arguments if isinstance(a, Fixed)]
        if len(held) == 1 and held[0][1].dtype == np.uint8:
            data = held[0][1].tobytes()
            made = slices.setdefault(data, Slices(data, decoded.setdefault(data, {})))
            found[call.invoke.function] = held[0][0], Slicer(call.program, made)
    return found


def rebuild_problem(
    extracted: Extracted,
    changed: Mapping[str, NpuProgram],
    constants: Sequence[tuple[Any, bytes]] = (),
    added: Mapping[str, bytes] | None = None,
) -> Extracted:
    """`extracted` with other programs for some NPU functions, and other bytes for some constants of main.

    `added`: for functions that get one parameter more, behind their constants: the bytes of that argument.
    """
    module = extracted.loaded.module
    functions = dict(module.functions.items())
    for variable, function in module.functions.items():
        if variable.name_hint in changed:
            made = changed[variable.name_hint]
            functions[variable] = cache_program(with_attributes_of(function, to_primfunc(made)), made)
        elif variable.name_hint == "main" and constants:
            functions[variable] = tvm_ffi.structural_map(function, (tvm.ir.GenericConst, _replacing(constants)))
        if variable.name_hint == "main" and added:
            functions[variable] = _with_arguments(functions[variable], added)
    loaded = replace(extracted.loaded, module=tvm.IRModule(functions, module.attrs))
    again = extract_problem(loaded).under_terms(extracted.terms)
    return replace(again, problem=replace(again.problem, pools=extracted.problem.pools))


def constants_argument(extracted: Extracted, call: PlacedCall) -> Any | None:
    """The constant of main that a call reads as its only buffer of constants; None where it has another form."""
    for arguments in _arguments(extracted.loaded.module["main"], {call.invoke.function}).values():
        held = [field for field in arguments.fields if isinstance(field, tvm.ir.GenericConst)]
        if len(held) == 1 and held[0].value.dtype == "uint8":
            return held[0]
    return None


def _arguments(main: Any, names: Collection[str]) -> dict[str, Any]:
    """The tuple of arguments of each call of a function in `names`."""
    found: dict[str, Any] = {}

    def visit(expr: Any) -> None:
        if isinstance(expr, tvm.ir.Call) and operator_of(expr) == "relax.call_tir":
            name = expr.args[0].name_hint
            found.update({name: expr.args[1]} if name in names else {})

    relax.analysis.post_order_visit(main, visit)
    return found


def _with_arguments(main: Any, added: Mapping[str, bytes]) -> Any:
    """`main` with a constant more in the arguments of some functions, behind the one that is there."""
    tuples = [(old, added[name]) for name, old in _arguments(main, added.keys()).items()]

    def map_tuple(given: Any) -> Any:
        data = next((data for old, data in tuples if given.same_as(old)), None)
        if data is None:
            return given
        fields: list[Any] = []
        for field in given.fields:
            fields.append(field)
            if isinstance(field, tvm.ir.GenericConst):
                fields.append(relax.const(np.frombuffer(data, np.uint8), "uint8"))
        return relax.Tuple(fields)

    return tvm_ffi.structural_map(main, (tvm.ir.Tuple, map_tuple))


def _replacing(constants: Sequence[tuple[Any, bytes]]) -> Callable[[Any], Any]:
    made = [(old, relax.const(np.frombuffer(data, np.uint8), "uint8")) for old, data in constants]
    return lambda constant: next((new for old, new in made if constant.same_as(old)), constant)


def with_attributes_of(function: Any, made: Any) -> Any:
    """`made`, with those attributes of `function` that it lacks."""
    kept = {str(k): v for k, v in function.attrs.items() if str(k) not in made.attrs}
    return made.with_attr(kept) if kept else made


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
    cycles: tuple[int, ...] = ()  # under each model of `JUDGED`, where that is known

    def build(self, ranking: Ranking) -> Planned:
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
    cycles = ranking.time_streams(plain, _streams(plain, moved, fast, ranking), JUDGED)
    used = {usage.pool: usage.used_bytes for usage in plain.plan.usage}
    pool = plain.extracted.problem.pools[fast].name
    for m in moved:
        sizes = {b.name: b.size_bytes for b in m.program.buffers}
        used[pool] = max([used[pool], *(at + sizes[name] for name, at in m.places.items())])
    ranked = cycles[MODELS.index(ranking.memory_map.assumptions)]
    return ProgramCandidate(plain, (ranked, sum(used.values())), tuple(moved), fast, cycles)


def cycles_by_model(candidate: ProgramCandidate, ranking: Ranking) -> tuple[int, ...]:
    """The cycles of a program under each timing model of `ethosu.time.JUDGED`."""
    if candidate.cycles or not candidate.moved:
        return candidate.cycles or ranking.by_model(candidate.plain)
    streams = _streams(candidate.plain, candidate.moved, candidate.fast, ranking)
    return ranking.time_streams(candidate.plain, streams, JUDGED)


def _streams(
    plain: Planned, moved: Sequence[Moved], fast: int, ranking: Ranking
) -> Iterator[tuple[Sequence[Command], Architecture]]:
    """The streams of all calls; those of `plain` are made only where some call is unchanged."""
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


_NODES = 20_000  # of each plan of a program without copies
_NODES_A_BUFFER = 32  # of a plan with copies, up to as many: one of 500 buffers finds no room with 8,000
_ENDLESS = 1 << 30  # bytes more: room for all copies
_EXCESS_COST = 8  # times the part by which a program exceeds the cycles that it may take alone: what it costs more
_EXCESS = 8  # a part of the limit: what does not fit by more is not tried with less
_LESS = (256, 128, 64, 32)  # by which parts of it, at least, there is less for a program that does not fit
Copies = Sequence[tuple[Copy, ...]]  # of each call
TimedCalls = list[tuple[PlacedCall, TimedProgram]]


class PrefetchCandidate:
    """`plain`, whose constants may be copied to pool `fast`, which ends at `limit` bytes. `most_alone`: the cycles that
    it may take where one operation runs at a time.
    """

    def __init__(self, plain: Planned, rank: Ranking, fast: int, limit: int, most_alone: float = math.inf) -> None:
        self.plain, self._rank, self._fast, self._limit, self._most_alone = plain, rank, fast, limit, most_alone
        self._allocated: dict[tuple[Copies, int | None, int], tuple[Planned, Copies] | int] = {}
        self.host_cycles = rank.host_cycles(plain.extracted.loaded)
        self._timed_calls = self._time_calls(rank.memory_map.assumptions)
        self.is_hopeless = False  # whether it takes more alone than it may, whatever is copied
        self._goals = self._limit_goals() if math.isfinite(most_alone) else [FEWEST_CYCLES] * len(self._timed_calls)
        self._searches = self._start_searches(FreeCapacity, limit)

    def _limit_goals(self) -> list[Goal]:
        """The goal of each call: with copies it takes no more than its share of the cycles that all may take alone."""
        alone = [cycles_alone(timed) for _, timed in self._timed_calls]
        searched = {call.first for call, _ in self._timed_calls}
        others = [
            (made, call.program.accelerator)
            for call, made in self._rank.streams(self.plain)
            if call.first not in searched
        ]
        rest = self.host_cycles + sum(by_model(others, self._rank.memory_map, (ALONE,)).values())
        whole = sum(own for own, _ in alone)
        spare = self._most_alone - rest - whole
        self.is_hopeless = spare < sum(min(0.0, more) for _, copies in alone for more in copies)
        scale = _EXCESS_COST / max(1.0, self._most_alone)
        return [
            Goal(alone=tuple(scale * more for more in copies), spare=scale * spare * own / max(1, whole))
            for own, copies in alone
        ]

    def _time_calls(self, assumptions: Assumptions) -> TimedCalls:
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
        """Optimistic cycles of the calls whose constants may be prefetched, before copies have places, and the rest."""
        return self.host_cycles + sum(search.best.cycles for search in self._searches)

    @property
    def least_cycles(self) -> int:
        """The cycles that the same operations take at least, whatever is copied: a bound of the calls that are
        searched, which but for a block's output holds for them in slices as well.
        """
        return self.host_cycles + sum(
            round(max(least_work(timed)[0], _reading_cycles(timed))) for _, timed in self._timed_calls
        )

    @property
    def possible_gain(self) -> float:
        """About the share of its cycles that stripes may save: what room for all copies saves, and the cycles of the
        largest operation, during which copies for others may be made; all but those of reading constants once.
        """
        room = sum(search.best.cycles for search in self._start_searches(FreeCapacity, self._limit + _ENDLESS))
        room += self.host_cycles
        steps = (timed.step(index) for _, timed in self._timed_calls for index in range(len(timed)))
        largest = max((unit_cycles(step.fast) for step in steps), default=0.0)
        cycles, least = self.optimistic_cycles, sum(_reading_cycles(timed) for _, timed in self._timed_calls)
        return min(max(0, cycles - room) + largest, max(0, cycles - self.host_cycles - least)) / max(1, cycles)

    def search(self, work: int) -> None:
        """Lower the optimistic cycles, until `work` operations of the timing model are spent."""
        _continue_searches(self._searches, work)

    def with_assumptions(self, assumptions: Assumptions) -> PrefetchCandidate:
        """The same on the clock of another model of time, with the copies that were found."""
        return self._with_clocks(self._time_calls(assumptions), self._goals)

    def under_all(self, reference: Sequence[int]) -> PrefetchCandidate:
        """The same, with copies searched under all models at once, from those found so far on: for the lowest worst
        ratio to `reference`, cycles under each model. Programs are ranked as before.
        """
        own = MODELS.index(self._rank.memory_map.assumptions)
        order = [own, *(index for index in range(len(MODELS)) if index != own)]
        calls = [self._time_calls(MODELS[index]) for index in order[1:]]
        goals = []
        for index, search in enumerate(self._searches):
            share = search.best.cycles / max(1, self.optimistic_cycles)  # of the whole
            references = tuple(max(1.0, reference[model] * share) for model in order)
            others = tuple(timed[index][1] for timed in calls)
            goals.append(replace(self._goals[index], others=others, references=references))
        return self._with_clocks(self._timed_calls, goals)

    def _with_clocks(self, timed_calls: TimedCalls, goals: list[Goal]) -> PrefetchCandidate:
        """The same with other clocks or goals, from the copies that were found on."""
        other = copy(self)
        other._timed_calls, other._goals = timed_calls, goals
        other._searches = other._start_searches(FreeCapacity, self._limit)
        for search, known in zip(other._searches, self._searches, strict=True):
            search.try_out(known.choice)
        return other

    @property
    def cost(self) -> float:
        """The cost that the search lowers, before copies are allocated."""
        return max((search.cost for search in self._searches), default=0)

    def replan_program(self, extracted: Extracted) -> PrefetchCandidate | None:
        """Another program in the same pool; None where it does not fit."""
        planned = planned_again(self.plain, extracted, self._fast, self._limit)
        known = self._rank, self._fast, self._limit, self._most_alone
        return None if planned is None else PrefetchCandidate(planned, *known)

    def candidates(self, budget: SearchBudget) -> Iterator[ProgramCandidate]:
        """The program with copies that have places: those that were found, planned together with the maps, or fewer
        where they do not fit; and what is found around the maps where they lie, or would lie beside the copies in a
        larger pool.
        """
        work, nodes = budget.allocation_work, budget.plan_nodes
        found = [search.best.copies for search in self._searches]
        if not any(found):
            yield ProgramCandidate(self.plain, self._rank(self.plain))
        together, less = self._allocate_together(found, self._limit, nodes), 0
        for part in _LESS:
            if isinstance(together, int) and together < self._limit // _EXCESS:
                less += max(together, self._limit // part)
                fewer = _continue_searches(self._start_searches(FreeCapacity, self._limit - less), work)
                together = self._allocate_together([search.best.copies for search in fewer], self._limit, nodes)
        if not isinstance(together, int):
            yield from self._insert_copies(*together)
        yield from self._copy_around_maps(self.plain, work)
        endless = self._allocate_together(found, None, nodes)
        if not isinstance(endless, int) and self._map_bytes(endless[0]) <= self._limit:
            yield from self._copy_around_maps(endless[0], work)

    def _start_searches(self, kind: type[FreeCapacity], limit: int, plain: Planned | None = None) -> list[CopySearch]:
        """A search for each call."""
        there = plain or self.plain
        return [
            CopySearch(timed, kind(occupied_ranges(there, call, self._fast), limit, len(timed)), goal)
            for (call, timed), goal in zip(self._timed_calls, self._goals, strict=True)
        ]

    def _copy_around_maps(self, plain: Planned, work: int) -> Iterator[ProgramCandidate]:
        """Copies around maps that keep their offsets; the search begins with the copies found without that
        condition.
        """
        searches = self._start_searches(FreeRanges, self._limit, plain)
        for search, known in zip(searches, self._searches, strict=True):
            search.try_out(known.choice)
        yield from self._insert_copies(plain, [search.best.copies for search in _continue_searches(searches, work)])

    def _map_bytes(self, plain: Planned) -> int:
        """Bytes of the pool that maps take."""
        return next(u.used_bytes for u in plain.plan.usage if u.pool == plain.extracted.problem.pools[self._fast].name)

    def _insert_copies(self, plain: Planned, copies: Copies) -> Iterator[ProgramCandidate]:
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

    def _allocate_together(self, copies: Copies, limit: int | None, nodes: int) -> tuple[Planned, Copies] | int:
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
                made.append(
                    Buffer(names.unique_name("copy"), constant.size_bytes, (life,), pools=(pool.name,), kind=kind)
                )
        whole = replace(
            problem,
            buffers=(*(replace(b, pools=()) for b in problem.buffers if b.name in inside), *made),
            pools=(replace(pool, size_bytes=limit),),
            conflicts=tuple(pair for pair in problem.conflicts if inside.issuperset(pair)),
            aliases=tuple(a for a in problem.aliases if inside.issuperset(name for name, _ in a.members)),
            overlaps=tuple(o for o in problem.overlaps if inside.issuperset((o.first, o.second))),
            accesses=(),  # those of the program without the copies
        )
        planner = "auto" if limit is None else "fit"
        try:
            nodes = max(nodes, min(_NODES, _NODES_A_BUFFER * len(whole.buffers)))
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


def _reading_cycles(timed: TimedProgram) -> float:
    """Cycles of the port for each constant once."""
    size_bytes = sum(constant.size_bytes for constant in timed.constants)
    return port_cycles(size_bytes, timed.program.accelerator, timed.memory_map)


def _continue_searches(searches: list[CopySearch], work: int) -> list[CopySearch]:
    """`work`: of all calls together."""
    operations = sum(len(search.timed) for search in searches)
    for search in searches:
        search.search_on(work * len(search.timed) // operations)
    return searches


def occupied_ranges(planned: Planned, call: PlacedCall, fast: int) -> list[OccupiedRange]:
    """The ranges of the pool that are occupied while a call runs, in operations of the call."""
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


def reblock_worst(candidate: ProgramCandidate, rank: Ranking, reference: Sequence[float]) -> ProgramCandidate | None:
    """The program that the clock of one model makes of `candidate`, the model in which it takes most of the cycles of
    the `reference`; None where that is no gain.
    """
    own = cycles_by_model(candidate, rank)
    worst = max(range(len(MODELS)), key=lambda index: own[index] / max(1, reference[index]))
    made = _choose_blocks(candidate, rank, rank.with_assumptions(MODELS[worst]))
    return made if made is not None and made.cycles != own and not any(map(gt, made.cycles, own)) else None


def _choose_blocks(candidate: ProgramCandidate, rank: Ranking, clock: Ranking) -> ProgramCandidate | None:
    """The program by one clock; None where no blocks change."""
    plain, known = candidate.plain, {moved.call.first: moved for moved in candidate.moved}
    old = [known.get(call.first, Moved(call, call.program, {})) for call in called_once(plain.extracted)]
    new = []
    for moved in old:
        places = moved.call.places(plain.extracted.problem, plain.plan)
        places |= {name: (candidate.fast + 1, at) for name, at in moved.places.items()}
        demand_cache = clock.demand_cache(moved.program.accelerator)
        new.append(Moved(moved.call, in_context(moved.program, places.__getitem__, demand_cache), moved.places))
    if all(one.program is other.program for one, other in zip(new, old, strict=True)):
        return None
    return with_copies(plain, new, candidate.fast, rank)
