"""A program and free bytes as C sees them: arrays that are made once, and the schedules of many choices from them.

Invariant: deterministic; for the same choice, C's schedule is the one that the rule in Python makes
(`tests/support/prefetch_oracle.py`): the same copies, the same cycles.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice

from ....compiled import Struct, chances, compiled, floats, int32s, int64s, structure, verdict
from ...arch import Channel
from ...time import ResourceUse, TimingModel
from .free_space import FreeCapacity
from .least_work import least_work
from .reads import ConstantBlock
from .schedules import Choice, Copy, DmaSchedule, Found
from .timed_program import COPY_WORDS, TimedProgram

MEMORIES = CHANNELS = 8  # of prefetch.h
_MODELS = 4  # the same

_CHANNELS = tuple(Channel)
assert len(_CHANNELS) <= CHANNELS

_HEADER = "ethosu/schedule/prefetch/prefetch.h"
_Program, _Free, _Wish, _Sent, _Search = (
    structure(_HEADER, name) for name in ("Line", "Free", "Wish", "Sent", "Search")
)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a search lowers: the largest part of `references` that a schedule takes, under the model that makes it and
    under those of `others`, the same program.
    """

    others: tuple[TimedProgram, ...] = ()
    references: tuple[float, ...] = (1.0,)  # cycles, under each

    def cost(self, schedule: DmaSchedule) -> float:
        """Of a schedule that was timed under all."""
        cycles = (schedule.cycles, *schedule.others)
        return max(one / reference for one, reference in zip(cycles, self.references, strict=False))


FEWEST_CYCLES = Goal()


class NativeSearch:
    """The schedules of a program in free bytes, and a local search among them (`search.c`)."""

    def __init__(self, timed: TimedProgram, space: FreeCapacity, seed: int = 0, goal: Goal = FEWEST_CYCLES) -> None:
        for one in (timed, *goal.others):
            if one.arrays is None:
                one.arrays = _timed(one)
        self.timed, self._timed, self._chance, self._goal = timed, timed.arrays, chances(seed), goal
        self._others = (ctypes.c_void_p * _MODELS)(*(ctypes.addressof(one.arrays) for one in goal.others))
        limit, held = space.limit_bytes, space.held
        self._free = _Free(
            limit=limit, grain=space.grain, placed=space.placed, rows=len(held), used=space.used, held=held.ravel()
        )

    @staticmethod
    def usable(timed: TimedProgram) -> bool:
        """Whether C can be called, and models so many memories."""
        return not (len(_memories(timed)) > MEMORIES or compiled().missing)

    def schedule(self, choice: Choice) -> DmaSchedule:
        """What the greedy rule makes of a choice."""
        return self._called(Found(choice, 0, DmaSchedule(0)), 0).best

    def without_copies(self) -> DmaSchedule:
        """All constants read where they are."""
        return self.schedule(Choice(kept=frozenset(range(len(self.timed.constants)))))

    def further(self, found: Found, operations: int) -> Found:
        """Look on until so many operations were run on the clock."""
        return self._called(found, operations) if operations > 0 and self.timed.constants else found

    def _called(self, found: Found, operations: int) -> Found:
        """The answer of `search.c`: with no operations, the schedule of the choice as the best."""
        count, choice = len(self.timed.constants), found.choice
        stays = array("b", [constant in choice.kept for constant in range(count)])
        max_lead = int32s(choice.max_lead.get(constant, -1) for constant in range(count))
        wish = _Wish(fifo=choice.fifo, from_top=choice.from_top, stays=stays, max_lead=max_lead)
        reference = floats(self._goal.references)
        search = _Search(
            cost=found.cost, left=operations, models=len(reference), reference=reference, chance=self._chance
        )
        constant, before, unfinished = (int32s([0]) * count for _ in range(3))
        at, others = int64s([0]) * count, int64s([*found.best.others, *[0] * _MODELS][:_MODELS])
        sent = _Sent(
            cycles=found.best.cycles, count=-1, constant=constant, before=before, unfinished=unfinished, at=at,
            others=others,
        )  # fmt: skip
        call = compiled().functions.npu_memplan_prefetch
        verdict(call(ctypes.byref(self._timed), self._others, *map(ctypes.byref, (self._free, search, wish, sent))))
        best = found.best
        if sent.count >= 0:
            copies = zip(constant, before, at, unfinished, strict=True)
            made = tuple(Copy(*copy) for copy in islice(copies, sent.count))
            best = DmaSchedule(sent.cycles, made, tuple(others[: len(self._goal.others)]))
        kept = frozenset(k for k in range(count) if stays[k])
        early = {k: n for k, n in enumerate(max_lead) if n >= 0}
        return Found(replace(choice, kept=kept, max_lead=early), search.cost, best)


def _memories(timed: TimedProgram) -> list[str]:
    """All that operations, commands and copies pass."""
    return sorted({timed.memory_map.stream.name, *(memory.name for memory in timed.memory_map.regions.values())})


def _timed(timed: TimedProgram) -> Struct:
    accelerator = timed.program.accelerator
    assumptions = timed.memory_map.assumptions
    clock, names = TimingModel.of(accelerator, timed.memory_map), _memories(timed)
    steps = [timed.step(index) for index in range(len(timed))]
    needs = _Needs()
    spans = [[timed.transfer(stop - start) for start, stop in constant.spans] for constant in timed.constants]
    return _Program(
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
        fetch_latency=timed.memory_map.stream.latency(False),
        fetch_cycles=accelerator.command_fetch_bytes / accelerator.port_bytes,
        begin=clock.now,
        launch=clock.launch,
        in_turn=assumptions.in_turn,
        transfer_start=assumptions.transfer_start,
        sharing=2 * assumptions.contention - 1,
        copy_fetch=clock.fetching(COPY_WORDS),
        fetch=floats(clock.fetching(step.words) for step in steps),
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
        least=floats(_least(timed, *both) for both in zip(timed.constants, spans, strict=True)),
        work=floats(least_work(timed)),
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
        traffics = [needs.traffic for needs in self._all]
        passed = [[(occupied, latency) for _, occupied, latency in p.memories] for p in traffics]
        requested = [[(latency, asking) for _, latency, asking in p.requested] for p in traffics]
        return {
            "transfers": array("b", [needs.is_transfer for needs in self._all]),
            **{name: floats(getattr(needs, name) for needs in self._all)
               for name in ("output", "blocks", "jobs", "depends")},
            "multipliers": floats(needs.multiplying for needs in self._all),
            **{name: floats(getattr(traffic, name) for traffic in traffics)
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
    return {f"{name}_at": _starts(lists), name: floats(chain.from_iterable(chain.from_iterable(lists)))}
