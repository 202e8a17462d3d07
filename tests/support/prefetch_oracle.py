"""The search for copies in Python, in the words of its rules: an oracle for `prefetch.h` and its C sources.

Invariant: the same schedules, chance, trials and acceptance as in C, to the last bit of a double.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from npu_memplan.compiled import random_state
from npu_memplan.ethosu.schedule.prefetch.copies import Choice, Copy, DmaSchedule, Found, FreeCapacity
from npu_memplan.ethosu.schedule.prefetch.search import FEWEST_CYCLES, Goal
from npu_memplan.ethosu.schedule.prefetch.timed_program import TimedProgram, TimedRun
from npu_memplan.ethosu.time import TimingModel
from npu_memplan.ethosu.time.sharing import SharedMemory

_NO_HOLE = 1 << 62
_LEAST = 8  # operations that a trial counts for at least
_AHEAD = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 24, 32)  # operations before its first reader that a copy starts at most
_TOGETHER, _NEAR, _NEARBY = 4, 3, 0.7  # how many change at once, how far apart, and how often no farther
_STAY, _SENT = 0.25, 0.85  # shares: read where they are; these, and sent at a time that is drawn
_AS_SOON = Choice()
_MASK = (1 << 64) - 1


class Room:
    """What is left of free bytes while copies take their places in them."""

    def __init__(self, space: FreeCapacity | Room) -> None:
        self.limit_bytes, self.grain, self.placed = space.limit_bytes, space.grain, space.placed
        self.used, self.held = space.used.copy(), space.held.copy()

    def free_at(self, operation: int) -> int:
        """Bytes that are free while an operation runs."""
        return self.limit_bytes - int(self.used[operation])

    def full_at(self, size_bytes: int, first: int, last: int) -> int:
        """The last operation in `[first, last]` at which less than `size_bytes` are free; -1: none."""
        full = (self.used[first : last + 1] > self.limit_bytes - size_bytes).nonzero()[0]
        return first + int(full[-1]) if len(full) else -1

    def find(self, size_bytes: int, first: int, last: int, from_top: bool = False) -> int | None:
        """The start of the smallest hole that has `size_bytes` from operation `first` to `last`; the top comes last.

        `from_top`: the highest place there is, and nothing else matters. Where copies have no places: 0.
        """
        if not self.placed:
            return 0 if self.full_at(size_bytes, first, last) < 0 else None
        taken = self.held[(self.held[:, 0] <= last) & (self.held[:, 1] >= first)]
        if from_top:
            return self._highest(size_bytes + -size_bytes % self.grain, taken)
        if not len(taken):
            return 0 if size_bytes <= self.limit_bytes else None
        ends = np.maximum.accumulate(taken[:, 3])
        begins = np.concatenate(([0], ends[:-1]))
        holes = taken[:, 2] - begins
        holes[holes < size_bytes] = _NO_HOLE
        best = int(holes.argmin())
        if holes[best] < _NO_HOLE:
            return int(begins[best])
        top = int(ends[-1])
        return top if size_bytes <= self.limit_bytes - top else None

    def _highest(self, size_bytes: int, taken: NDArray[np.int64]) -> int | None:
        ends = np.concatenate(([0], np.maximum.accumulate(taken[:, 3])))
        starts = np.concatenate((taken[:, 2], [self.limit_bytes]))
        fits = (starts - ends >= size_bytes).nonzero()[0]
        return int(starts[fits[-1]]) - size_bytes if len(fits) else None

    def tight_until(self, first: int, last: int) -> int:
        """Where `find` found nothing: the operation at which the first of what is in the way ends."""
        taken = self.held[(self.held[:, 0] <= last) & (self.held[:, 1] >= first)]
        return int(taken[:, 1].min()) if len(taken) else last

    def take(self, size_bytes: int, first: int, last: int, at: int) -> None:
        """Fill what `find` found."""
        size = size_bytes + -size_bytes % self.grain
        self.used[first : last + 1] += size
        if self.placed:
            where = int(self.held[:, 2].searchsorted(at))
            row = np.array([[first, last, at, at + size]], np.int64)
            self.held = np.concatenate((self.held[:where], row, self.held[where:]))


def forked(run: TimedRun) -> TimedRun:
    """The same moment, to go on otherwise."""
    other, clock = TimedRun(run.timed), run.clock
    other.started = list(run.started)
    memories = {
        name: SharedMemory((replace(shared.clients[0]), replace(shared.clients[1])))
        for name, shared in clock.memories.items()
    }
    other.clock = replace(
        clock,
        kernels=clock.kernels[-clock.accelerator.max_outstanding_kernels :],
        transfers=clock.transfers[-clock.accelerator.max_outstanding_dma :],
        memories=memories,
        answers=list(clock.answers),
        asking=dict(clock.asking),
    )
    return other


def idle(clock: TimingModel) -> float:
    """How long another transfer can start without making the kernels behind it late; negative: it would."""
    limit = clock.accelerator.max_outstanding_dma
    free = clock.transfers[-limit] if len(clock.transfers) >= limit else 0.0
    return max(clock.now, clock.engines.fetch) - free


def earliest(choice: Choice, timed: TimedProgram, constant: int) -> int:
    """The operation before which a constant may be sent; the one that reads it first where it stays."""
    first = timed.constants[constant].readers[0]
    if constant in choice.kept:
        return first
    return max(0, first - choice.max_lead[constant]) if constant in choice.max_lead else 0


class Greedy:
    """The schedule of a choice."""

    def __init__(self, timed: TimedProgram, space: FreeCapacity, choice: Choice = _AS_SOON) -> None:
        self.timed, self.choice, self.space, self.run = timed, choice, Room(space), TimedRun(timed)
        self.copies: dict[int, Copy] = {}
        self.waiting = [k for k in range(len(timed.constants)) if k not in choice.kept]
        self.not_before = {k: earliest(choice, timed, k) for k in self.waiting}
        self.made = self._made()

    def _made(self) -> DmaSchedule:
        timed = self.timed
        for index in range(len(timed)):
            constant = timed.reads.get(index, -1)
            if constant in self.waiting and timed.constants[constant].readers[0] == index:
                self.waiting.remove(constant)
                self._in_time(constant, index)
            self._ahead(index)
            self.run.step(index, constant in self.copies)
        return DmaSchedule(self.run.cycles, tuple(self.copies.values()))

    def _ahead(self, index: int) -> None:
        """Send what is read later, while the port is idle."""
        if idle(self.run.clock) < 0:
            return
        for constant in list(self.waiting):
            if self.not_before[constant] <= index < self.timed.constants[constant].readers[0]:
                copy = self._place(constant, index)
                if copy is not None:
                    self._send(copy)
                    self.waiting.remove(constant)
                    if idle(self.run.clock) < 0:
                        return
            if self.choice.fifo and constant in self.waiting and earliest(self.choice, self.timed, constant) <= index:
                return

    def _in_time(self, constant: int, index: int) -> None:
        """Send what is read next, or leave it where it is."""
        copy = self._place(constant, index) or self._place(constant, index, 0)
        if copy is None:
            return
        here, copied = forked(self.run), forked(self.run)
        copied.copy(constant, copy.unfinished)
        copied.step(index, True)
        here.step(index, False)
        if len(self.timed.constants[constant].readers) > 1 or copied.clock.engines.end < here.clock.engines.end:
            self._send(copy)

    def _place(self, constant: int, index: int, unfinished: int = 1) -> Copy | None:
        """A copy before operation `index` into bytes that all but the last `unfinished` operations have left."""
        size, last = self.timed.constants[constant].size_bytes, self.timed.constants[constant].readers[-1]
        first = max(0, index - unfinished)
        full = self.space.full_at(size, first, last)
        if full >= 0:
            if unfinished:
                self.not_before[constant] = max(self.not_before[constant], full + 1)
            return None
        if unfinished == 1 and index > 1:
            at = self.space.find(size, first - 1, last, self.choice.from_top)
            if at is not None:
                return Copy(constant, index, at)
        at = self.space.find(size, first, last, self.choice.from_top)
        if at is None and unfinished:
            self.not_before[constant] = max(
                self.not_before[constant], self.space.tight_until(first, last) + unfinished + 1
            )
        return None if at is None else Copy(constant, index, at, unfinished)

    def _send(self, copy: Copy) -> None:
        constant = self.timed.constants[copy.constant]
        first = max(0, copy.before - copy.unfinished)
        self.space.take(constant.size_bytes, first, constant.readers[-1], copy.at)
        self.run.copy(copy.constant, copy.unfinished)
        self.copies[copy.constant] = copy


def replayed(timed: TimedProgram, copies: tuple[Copy, ...]) -> DmaSchedule:
    """What `copies`, in this order, make of the program's time on its clock."""
    run, there = TimedRun(timed), {copy.constant for copy in copies}
    for index in range(len(timed)):
        for copy in copies:
            if copy.before == index:
                run.copy(copy.constant, copy.unfinished)
        run.step(index, timed.reads.get(index, -1) in there)
    return DmaSchedule(run.cycles, copies)


class LocalSearch:
    """`NativeSearch` in Python."""

    def __init__(self, timed: TimedProgram, space: FreeCapacity, seed: int = 0, goal: Goal = FEWEST_CYCLES) -> None:
        self.timed, self._space, self._chance, self._goal = timed, space, random_state(seed), goal

    def schedule(self, choice: Choice) -> DmaSchedule:
        """What the greedy rule makes of a choice, timed under the other models too."""
        made = Greedy(self.timed, self._space, choice).made
        return replace(made, others=tuple(replayed(other, made.copies).cycles for other in self._goal.others))

    def search_on(self, found: Found, operations: int) -> Found:
        """Look on until so many operations were run on the clock."""
        while operations > 0 and self.timed.constants:
            choice = self._changed(found.choice)
            made = self.schedule(choice)
            if made.cycles <= int(found.cost * self._goal.references[0] + 0.5):
                cost = self._goal.cost(made)
                if cost <= found.cost:
                    found = Found(choice, cost, made if cost < self._goal.cost(found.best) else found.best)
            operations -= max(_LEAST, len(self.timed))
        return found

    def _changed(self, choice: Choice) -> Choice:
        """Some constants, read near one another or any, stay where they are or are sent when they can be, most so many
        operations early.
        """
        kept, max_lead, count = set(choice.kept), dict(choice.max_lead), len(self.timed.constants)
        near = self._draw(count)
        for _ in range(1 + self._draw(_TOGETHER)):
            nearby = self._random() < _NEARBY
            constant = (near + self._draw(2 * _NEAR + 1) - _NEAR) % count if nearby else self._draw(count)
            kept.discard(constant)
            max_lead.pop(constant, None)
            what = self._random()
            if what < _STAY:
                kept.add(constant)
            elif what < _SENT:
                max_lead[constant] = _AHEAD[self._draw(len(_AHEAD))]
        return replace(choice, kept=frozenset(kept), max_lead=max_lead)

    def _draw(self, count: int) -> int:
        return int(self._random() * count)

    def _random(self) -> float:
        """`chance` of common.h: in [0, 1)."""
        x = self._chance[0]
        x ^= x << 13 & _MASK
        x ^= x >> 7
        x ^= x << 17 & _MASK
        self._chance[0] = x
        return (x >> 11) / (1 << 53)
