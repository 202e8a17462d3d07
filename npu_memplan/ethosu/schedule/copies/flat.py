"""A course and free bytes as C sees them: arrays that are made once, and the schedules of many choices from them.

Invariant: for the same choice, C's schedule is `Greedy`'s: the same copies, the same cycles.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice

from ....compiled import Struct, compiled, floats, int32s, int64s, structure, verdict
from ...time import Clock, Demand
from .bounds import least_work
from .course import COPY_WORDS, Course
from .greedy import Choice, Copy, Itinerary
from .reads import Parcel
from .room import Volume
from .trials import Found, Trials

MEMORIES = 8  # of travel.h

_HEADER = "ethosu/schedule/copies/travel.h"
_Flat, _Free, _Wish, _Sent, _Search = (structure(_HEADER, name) for name in ("Line", "Free", "Wish", "Sent", "Search"))


class Flat(Trials):
    """The same by C."""

    speed = 36

    def __init__(self, line: Course, room: Volume, seed: int = 0) -> None:
        super().__init__(line, room, seed)
        self._line = _line(line)
        limit, held = room.limit_bytes, room.held
        self._free = _Free(
            limit=limit, grain=room.grain, placed=room.placed, rows=len(held), used=room.used, held=held.ravel()
        )

    @staticmethod
    def usable(line: Course) -> bool:
        """Whether C can be called, and knows all that this NPU has."""
        accelerator, names = line.program.accelerator, _memories(line)
        return not (
            accelerator.command_fetch_bytes
            or accelerator.in_flight_bytes
            or len(names) > MEMORIES
            or compiled().missing
        )

    def schedule(self, choice: Choice) -> Itinerary:
        """What the greedy rule makes of a choice."""
        return self._called(Found(choice, 0, Itinerary(0)), 0).best

    def further(self, found: Found, operations: int) -> Found:
        """Look on until so many operations were run on the clock."""
        return self._called(found, operations) if operations > 0 and self.line.pieces else found

    def _called(self, found: Found, operations: int) -> Found:
        """The answer of `search.c`: with no operations, the schedule of the choice as the best."""
        count, choice = len(self.line.pieces), found.choice
        stays = array("b", [piece in choice.kept for piece in range(count)])
        sooner = int32s(choice.sooner.get(piece, -1) for piece in range(count))
        wish = _Wish(in_turn=choice.in_turn, from_top=choice.from_top, stays=stays, sooner=sooner)
        search = _Search(cycles=found.cycles, left=operations, chance=self._chance)
        piece, before, unfinished = (int32s([0]) * count for _ in range(3))
        at = int64s([0]) * count
        sent = _Sent(cycles=found.best.cycles, count=-1, piece=piece, before=before, unfinished=unfinished, at=at)
        call = compiled().functions.npu_memplan_copies
        verdict(call(*map(ctypes.byref, (self._line, self._free, search, wish, sent))))
        best = found.best
        if sent.count >= 0:
            copies = zip(piece, before, at, unfinished, strict=True)
            best = Itinerary(sent.cycles, tuple(Copy(*copy) for copy in islice(copies, sent.count)))
        kept = frozenset(k for k in range(count) if stays[k])
        early = {k: n for k, n in enumerate(sooner) if n >= 0}
        return Found(replace(choice, kept=kept, sooner=early), search.cycles, best)


def _memories(line: Course) -> list[str]:
    """All that operations, commands and copies pass."""
    return sorted({line.where.stream.name, *(memory.name for memory in line.where.regions.values())})


def _line(line: Course) -> Struct:
    accelerator = line.program.accelerator
    clock, names = Clock.of(accelerator, line.where), _memories(line)
    steps = [line.step(index) for index in range(len(line))]
    needs = _Needs()
    spans = [[line.transfer(stop - start) for start, stop in piece.spans] for piece in line.pieces]
    return _Flat(
        operations=len(line),
        pieces=len(line.pieces),
        memories=len(names),
        most_kernels=accelerator.max_outstanding_kernels,
        most_transfers=accelerator.max_outstanding_dma,
        awaits_response=accelerator.awaits_response,
        stream=names.index(line.where.stream.name),
        far=names.index(line.where.regions[0].name),
        begin=clock.now,
        launch=accelerator.launch_cycles,
        copy_fetch=clock.fetching(COPY_WORDS),
        fetch=floats(clock.fetching(step.words) for step in steps),
        reads=int32s(line.reads.get(index, -1) for index in range(len(line))),
        slow=int32s([needs.index(step.slow) for step in steps]),
        fast=int32s([needs.index(step.fast) for step in steps]),
        **_lists("wait", [step.kernels for step in steps]),
        **_lists("behind", [sorted(step.transfers) for step in steps]),
        size=int64s(piece.size_bytes for piece in line.pieces),
        first=int32s(piece.readers[0] for piece in line.pieces),
        last=int32s(piece.readers[-1] for piece in line.pieces),
        readers=int32s(len(piece.readers) for piece in line.pieces),
        **_lists("span", [[needs.index(need) for need in some] for some in spans]),
        least=floats(_least(line, *both) for both in zip(line.pieces, spans, strict=True)),
        work=floats(least_work(line)),
        **needs.tables(names),
    )


def _least(line: Course, piece: Parcel, copied: Sequence[Demand]) -> float:
    """Cycles of the constants' memory for a piece, copied or read where it is."""
    far, in_place = line.where.regions[0].name, [line.step(index).slow for index in piece.readers]
    return min(sum(need.passage.cycles_of(far) for need in some) for some in (copied, in_place))


class _Needs:
    """Needs of operations and copies, each once."""

    def __init__(self) -> None:
        self._at: dict[tuple[int, int], int] = {}
        self._all: list[Demand] = []

    def index(self, needs: Demand) -> int:
        key = id(needs.passage), needs.depends
        if key not in self._at:
            self._at[key] = len(self._all)
            self._all.append(needs)
        return self._at[key]

    def tables(self, names: Sequence[str]) -> dict[str, object]:
        passages = [needs.passage for needs in self._all]
        passed = [[(occupied, latency) for _, occupied, latency in p.memories] for p in passages]
        return {
            "transfers": array("b", [needs.is_transfer for needs in self._all]),
            **{name: floats(getattr(needs, name) for needs in self._all)
               for name in ("multipliers", "output", "blocks", "jobs", "depends")},
            **{name: floats(getattr(passage, name) for passage in passages)
               for name in ("input_latency", "input_asking", "output_latency", "output_cycles")},
            **_pairs("input", [passage.inputs for passage in passages]),
            **_pairs("weight", [passage.weights for passage in passages]),
            **_pairs("pass", passed),
            "memory": int32s(names.index(name) for passage in passages for name, _, _ in passage.memories),
        }  # fmt: skip


def _starts(lists: Sequence[Sequence[object]]) -> array[int]:
    return int32s(accumulate(map(len, lists), initial=0))


def _lists(name: str, lists: Sequence[Sequence[int]]) -> dict[str, object]:
    return {f"{name}_at": _starts(lists), name: int32s(chain.from_iterable(lists))}


def _pairs(name: str, lists: Sequence[Sequence[Iterable[float]]]) -> dict[str, object]:
    return {f"{name}_at": _starts(lists), name: floats(chain.from_iterable(chain.from_iterable(lists)))}
