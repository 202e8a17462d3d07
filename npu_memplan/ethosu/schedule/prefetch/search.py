"""The search for copies: which constants stay where they are, and which are sent later.

Invariant: deterministic; the work is bounded by a number of operations that are run on the clock, and the result is
never slower than the program without copies, nor than what was known before more work. For the same choice, C's
schedule is the one that the rule in Python makes (`tests/support/prefetch_oracle.py`): the same copies, the same
cycles. Without a C compiler no copies are searched.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice

from ....compiled import Struct, c_library, check_verdict, float_array, header_structure, int32s, int64s, random_state
from ...arch import Channel
from ...time import ResourceUse, TimingModel
from ..constants import ConstantBlock
from .copies import Choice, Copy, DmaSchedule, Found, FreeCapacity, OccupiedRange
from .timed_program import COPY_WORDS, TimedProgram, TimedRun, least_work

MEMORIES = CHANNELS = 8  # of prefetch.h
_MODELS = 4  # the same

_CHANNELS = tuple(Channel)
assert len(_CHANNELS) <= CHANNELS

_HEADER = "ethosu/schedule/prefetch/prefetch.h"
_TimedProgram, _FreeCapacity, _Choice, _DmaSchedule, _Search = (
    header_structure(_HEADER, name) for name in ("TimedProgram", "FreeCapacity", "Choice", "DmaSchedule", "Search")
)


@dataclass(frozen=True, slots=True)
class Goal:
    """The cost that a search lowers: the largest ratio of a schedule's cycles to `references`, under the model that
    makes it and under the models of `others`, which time the same program. Where its copies' parts of `alone` add up to
    more than `spare`, it costs so many times more.
    """

    others: tuple[TimedProgram, ...] = ()
    references: tuple[float, ...] = (1.0,)  # cycles, under each
    alone: tuple[float, ...] = ()  # by constant
    spare: float = math.inf

    def cost(self, schedule: DmaSchedule) -> float:
        """The cost of a schedule that was timed under all models."""
        cycles = (schedule.cycles, *schedule.others)
        most = max(one / reference for one, reference in zip(cycles, self.references, strict=False))
        excess = (sum(self.alone[copy.constant] for copy in schedule.copies) if self.alone else 0.0) - self.spare
        return most * (1 + excess) if excess > 0 else most


FEWEST_CYCLES = Goal()


class NativeSearch:
    """The schedules of a program in free bytes, and a local search among them (`search.c`)."""

    def __init__(self, timed: TimedProgram, space: FreeCapacity, seed: int = 0, goal: Goal = FEWEST_CYCLES) -> None:
        for one in (timed, *goal.others):
            if one.arrays is None:
                one.arrays = _program_struct(one)
        self.timed, self._timed, self._chance, self._goal = timed, timed.arrays, random_state(seed), goal
        self._others = (ctypes.c_void_p * _MODELS)(*(ctypes.addressof(one.arrays) for one in goal.others))
        limit, held = space.limit_bytes, space.held
        self._free = _FreeCapacity(
            limit=limit, grain=space.grain, placed=space.placed, rows=len(held), used=space.used, held=held.ravel()
        )

    @staticmethod
    def usable(timed: TimedProgram) -> bool:
        """Whether C can be called, and models so many memories."""
        return not (len(_memories(timed)) > MEMORIES or c_library().missing)

    def schedule(self, choice: Choice) -> DmaSchedule:
        """The schedule that the greedy rule makes of a choice."""
        return self._call_library(Found(choice, 0, DmaSchedule(0)), 0).best

    def without_copies(self) -> DmaSchedule:
        """All constants read where they are."""
        return self.schedule(Choice(kept=frozenset(range(len(self.timed.constants)))))

    def search_on(self, found: Found, operations: int) -> Found:
        """Search until `operations` operations were run on the clock."""
        return self._call_library(found, operations) if operations > 0 and self.timed.constants else found

    def _call_library(self, found: Found, operations: int) -> Found:
        """The answer of `search.c`: with no operations, the schedule of the choice as the best."""
        count, choice = len(self.timed.constants), found.choice
        stays = array("b", [constant in choice.kept for constant in range(count)])
        max_lead = int32s(choice.max_lead.get(constant, -1) for constant in range(count))
        rule = _Choice(fifo=choice.fifo, from_top=choice.from_top, stays=stays, max_lead=max_lead)
        reference = float_array(self._goal.references)
        search = _Search(
            cost=found.cost,
            left=operations,
            models=len(reference),
            reference=reference,
            chance=self._chance,
            alone=float_array(self._goal.alone or [0.0] * count),
            spare=self._goal.spare,
            least=self._goal.cost(found.best),
        )
        constant, before, unfinished = (int32s([0]) * count for _ in range(3))
        at, others = int64s([0]) * count, int64s([*found.best.others, *[0] * _MODELS][:_MODELS])
        schedule = _DmaSchedule(
            cycles=found.best.cycles, count=-1, constant=constant, before=before, unfinished=unfinished, at=at,
            others=others,
        )  # fmt: skip
        call = c_library().functions.npu_memplan_prefetch
        check_verdict(
            call(ctypes.byref(self._timed), self._others, *map(ctypes.byref, (self._free, search, rule, schedule)))
        )
        best = found.best
        if schedule.count >= 0:
            copies = zip(constant, before, at, unfinished, strict=True)
            made = tuple(Copy(*copy) for copy in islice(copies, schedule.count))
            best = DmaSchedule(schedule.cycles, made, tuple(others[: len(self._goal.others)]))
        kept = frozenset(k for k in range(count) if stays[k])
        early = {k: n for k, n in enumerate(max_lead) if n >= 0}
        return Found(replace(choice, kept=kept, max_lead=early), search.cost, best)


def _memories(timed: TimedProgram) -> list[str]:
    """All that operations, commands and copies pass."""
    return sorted({timed.memory_map.stream.name, *(memory.name for memory in timed.memory_map.regions.values())})


def _program_struct(timed: TimedProgram) -> Struct:
    """The program on its clock, as `prefetch.h` has it."""
    accelerator = timed.program.accelerator
    assumptions = timed.memory_map.assumptions
    clock, names = TimingModel.at_start(accelerator, timed.memory_map), _memories(timed)
    pulse = timed.memory_map.stream.pulse if clock.command_latency else None
    steps = [timed.step(index) for index in range(len(timed))]
    needs = _Needs()
    spans = [[timed.transfer(stop - start) for start, stop in constant.spans] for constant in timed.constants]
    return _TimedProgram(
        operations=len(timed),
        constants=len(timed.constants),
        memories=len(names),
        most_kernels=accelerator.max_outstanding_kernels,
        most_transfers=accelerator.max_outstanding_dma,
        awaits_response=accelerator.awaits_response,
        shares_ram=accelerator.shares_ram,
        stream=names.index(timed.memory_map.stream.name),
        far=names.index(timed.memory_map.regions[0].name),
        fetch_bytes=accelerator.command_fetch_bytes,
        copy_words=COPY_WORDS,
        command_latency=clock.command_latency,
        pause=pulse.off if pulse else 0,
        pause_period=2 * pulse.period if pulse else 0,
        begin=clock.now,
        launch=clock.launch,
        in_turn=assumptions.in_turn,
        transfer_start=assumptions.transfer_start,
        sharing=2 * assumptions.contention - 1,
        copy_fetch=clock.fetching(COPY_WORDS),
        fetch=float_array(clock.fetching(step.words) for step in steps),
        words=int32s(step.words for step in steps),
        reads=int32s(timed.reads.get(index, -1) for index in range(len(timed))),
        slow=int32s([needs.index(step.slow) for step in steps]),
        fast=int32s([needs.index(step.fast) for step in steps]),
        **_lists("wait", [step.kernels for step in steps]),
        **_lists("awaited", [sorted(step.transfers) for step in steps]),
        size=int64s(constant.size_bytes for constant in timed.constants),
        first=int32s(constant.readers[0] for constant in timed.constants),
        last=int32s(constant.readers[-1] for constant in timed.constants),
        readers=int32s(len(constant.readers) for constant in timed.constants),
        **_lists("span", [[needs.index(need) for need in some] for some in spans]),
        least=float_array(_least(timed, *both) for both in zip(timed.constants, spans, strict=True)),
        work=float_array(least_work(timed)),
        **needs.tables(names),
    )


def _least(timed: TimedProgram, constant: ConstantBlock, copied: Sequence[ResourceUse]) -> float:
    """Cycles of the constants' memory for a constant, copied or read where it is."""
    far, in_place = timed.memory_map.regions[0].name, [timed.step(index).slow for index in constant.readers]
    return min(sum(need.traffic.cycles_of(far) for need in some) for some in (copied, in_place))


class _Needs:
    """Needs of operations and copies, each once."""

    def __init__(self) -> None:
        self._at: dict[tuple[int, int], int] = {}
        self._all: list[ResourceUse] = []

    def index(self, needs: ResourceUse) -> int:
        key = id(needs.traffic), needs.depends
        if key not in self._at:
            self._at[key] = len(self._all)
            self._all.append(needs)
        return self._at[key]

    def tables(self, names: Sequence[str]) -> dict[str, object]:
        traffics, layouts = [needs.traffic for needs in self._all], dict[Hashable, int]()
        passed = [[(occupied, latency) for _, occupied, latency in p.memories] for p in traffics]
        requested = [[(latency, asking) for _, latency, asking in p.requested] for p in traffics]
        return {
            "transfers": array("b", [needs.is_transfer for needs in self._all]),
            **{name: float_array(getattr(needs, name) for needs in self._all)
               for name in ("output", "blocks", "jobs", "depends")},
            "multipliers": float_array(needs.multiplying for needs in self._all),
            "layout": int32s(layouts.setdefault(needs.layout, 1 + len(layouts)) for needs in self._all),
            **{name: float_array(getattr(traffic, name) for traffic in traffics)
               for name in ("input_latency", "input_asking", "output_latency", "output_cycles")},
            **_pairs("input", [traffic.inputs for traffic in traffics]),
            **_pairs("weight", [traffic.weights for traffic in traffics]),
            **_pairs("pass", passed),
            "memory": int32s(names.index(name) for traffic in traffics for name, _, _ in traffic.memories),
            **_pairs("request", requested),
            "channel": int32s(_CHANNELS.index(channel) for traffic in traffics for channel, _, _ in traffic.requested),
        }  # fmt: skip


def _starts(lists: Sequence[Sequence[object]]) -> array[int]:
    return int32s(accumulate(map(len, lists), initial=0))


def _lists(name: str, lists: Sequence[Sequence[int]]) -> dict[str, object]:
    return {f"{name}_at": _starts(lists), name: int32s(chain.from_iterable(lists))}


def _pairs(name: str, lists: Sequence[Sequence[Iterable[float]]]) -> dict[str, object]:
    return {f"{name}_at": _starts(lists), name: float_array(chain.from_iterable(chain.from_iterable(lists)))}


WORK = 60_000  # units of work of a long search
_OPERATIONS = 36  # on the clock, for a unit of work: WORK units take some tenths of a CPU second
_CHANGES = 500  # of each constant that a search of WORK units makes at most
_POLICIES = (Choice(fifo=True), Choice(from_top=True), Choice(fifo=True, from_top=True))
_MAX_LEADS = (1, 2, 3, 4, 6, 9)  # operations before its first reader that a copy starts at most, of all constants


def without_copies(timed: TimedProgram) -> DmaSchedule:
    run = TimedRun(timed)
    for index in range(len(timed)):
        run.step(index, False)
    return DmaSchedule(run.cycles)


class CopySearch:
    """A search for the copies of a program in free bytes, which goes on as long as it is asked to; each step changes a
    few copies.
    """

    def __init__(self, timed: TimedProgram, space: FreeCapacity, goal: Goal = FEWEST_CYCLES) -> None:
        self.timed, self.spent, self._goal = timed, 0, goal
        self._native = NativeSearch(timed, space, goal=goal) if timed.constants and NativeSearch.usable(timed) else None
        plain = without_copies(timed) if self._native is None else self._native.without_copies()
        self._found = Found(Choice(), goal.cost(plain), plain)
        self._begun = False
        if self._native is not None:
            first = self._native.schedule(Choice())
            self._found = Found(Choice(), goal.cost(first), self._cheaper(plain, first))
        for policy in _POLICIES:
            if space.placed or not policy.from_top:
                self.try_out(policy)

    @property
    def best(self) -> DmaSchedule:
        """The fastest so far."""
        return self._found.best

    @property
    def cost(self) -> float:
        """The cost of the best, by the goal."""
        return self._goal.cost(self.best)

    @property
    def choice(self) -> Choice:
        """The choice that the search stands at."""
        return self._found.choice

    def search_on(self, work: int) -> None:
        """Search until `work` units were spent since the beginning; fewer where there are few choices."""
        choices = _CHANGES * len(self.timed.constants) * len(self.timed) // _OPERATIONS  # units that try each so often
        work = work * min(WORK, choices) // WORK
        if not self._begun and self.spent < work:
            self._begun = True
            everyone, policy = range(len(self.timed.constants)), self._found.choice
            for max_lead in _MAX_LEADS:
                self.try_out(replace(policy, max_lead=dict.fromkeys(everyone, max_lead)))
        if self._native is not None:
            self._found = self._native.search_on(self._found, (work - self.spent) * _OPERATIONS)
            self.spent = max(self.spent, work)

    def try_out(self, choice: Choice) -> None:
        """Schedule `choice`, and search on from it where it costs no more."""
        if self._native is None:
            return
        made = self._native.schedule(choice)
        self.spent += len(self.timed)
        cost = self._goal.cost(made)
        if cost <= self._found.cost:
            self._found = Found(choice, cost, self._cheaper(self.best, made))

    def _cheaper(self, one: DmaSchedule, other: DmaSchedule) -> DmaSchedule:
        """The cheaper schedule; `one` where both cost the same."""
        return other if self._goal.cost(other) < self._goal.cost(one) else one


def stretch_ranges(held: Sequence[OccupiedRange], counts: Sequence[int]) -> Iterator[OccupiedRange]:
    """The ranges `held`, in operations of a program that has so many for each."""
    ends = [*accumulate(counts)]
    for h in held:
        yield OccupiedRange(ends[h.first] - counts[h.first], ends[h.last] - 1, h.start, h.stop)
