"""Each constant is sent as soon as the port is idle and its bytes are free, the one that is read first before the
others.

Invariant: a copy holds its bytes from the kernel before its transfer to its last reader; a constant whose turn has come
is read in place where that ends sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .free_space import FreeCapacity
from .timed_program import TimedProgram, TimedRun


@dataclass(frozen=True, slots=True)
class Copy:
    """A constant (by its index) is copied before operation `before` to byte `at` of the pool."""

    constant: int
    before: int
    at: int
    unfinished: int = 2  # its bytes are free once so many kernels before it, at most, have not ended


@dataclass(frozen=True, slots=True)
class DmaSchedule:
    """Copies in the order of the stream, and what they make of its time."""

    cycles: int
    copies: tuple[Copy, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """Parameters of the greedy rule: constants that stay, and how many operations early others are sent at most."""

    kept: frozenset[int] = frozenset()
    max_lead: Mapping[int, int] = field(default_factory=dict)
    fifo: bool = False  # none is sent while one that is read before has no room
    from_top: bool = False  # copies lie as high in the pool as they can

    def earliest(self, timed: TimedProgram, constant: int) -> int:
        """The operation before which a constant may be sent; the one that reads it first where it stays."""
        first = timed.constants[constant].readers[0]
        if constant in self.kept:
            return first
        return max(0, first - self.max_lead[constant]) if constant in self.max_lead else 0


_AHEAD = Choice()


class Greedy:
    """The schedule of a choice."""

    def __init__(self, timed: TimedProgram, space: FreeCapacity, choice: Choice = _AHEAD) -> None:
        self.timed, self.choice, self.space, self.run = timed, choice, space.copy(), TimedRun(timed)
        self.copies: dict[int, Copy] = {}
        self.waiting = [k for k in range(len(timed.constants)) if k not in choice.kept]
        self.not_before = {k: choice.earliest(timed, k) for k in self.waiting}
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
        if self.run.clock.idle < 0:
            return
        for constant in list(self.waiting):
            if self.not_before[constant] <= index < self.timed.constants[constant].readers[0]:
                copy = self._place(constant, index)
                if copy is not None:
                    self._send(copy)
                    self.waiting.remove(constant)
                    if self.run.clock.idle < 0:
                        return
            if self.choice.fifo and constant in self.waiting and self.choice.earliest(self.timed, constant) <= index:
                return

    def _in_time(self, constant: int, index: int) -> None:
        """Send what is read next, or leave it where it is."""
        copy = self._place(constant, index) or self._place(constant, index, 0)
        if copy is None:
            return
        here, copied = self.run.fork(), self.run.fork()
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
