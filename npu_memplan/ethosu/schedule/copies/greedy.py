"""Each piece is sent as soon as the port is idle and its bytes are free, the one that is read first before the others.

Invariant: a copy holds its bytes from the kernel before its transfer to its last reader; a piece whose turn has come
is read in place where that ends sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .course import Course, Run
from .room import Volume


@dataclass(frozen=True, slots=True)
class Copy:
    """A piece (by its index) is copied before operation `before` to byte `at` of the pool."""

    piece: int
    before: int
    at: int
    unfinished: int = 2  # its bytes are free once so many kernels before it, at most, have not ended


@dataclass(frozen=True, slots=True)
class Itinerary:
    """Copies in the order of the stream, and what they make of its time."""

    cycles: int
    copies: tuple[Copy, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What the greedy rule is told: pieces that stay, and how many operations early others are sent at most."""

    kept: frozenset[int] = frozenset()
    sooner: Mapping[int, int] = field(default_factory=dict)
    in_turn: bool = False  # none is sent while one that is read before has no room
    from_top: bool = False  # copies lie as high in the pool as they can

    def earliest(self, line: Course, piece: int) -> int:
        """The operation before which a piece may be sent; the one that reads it first where it stays."""
        first = line.pieces[piece].readers[0]
        if piece in self.kept:
            return first
        return max(0, first - self.sooner[piece]) if piece in self.sooner else 0


_AHEAD = Choice()


class Greedy:
    """The schedule of a choice."""

    def __init__(self, line: Course, room: Volume, choice: Choice = _AHEAD) -> None:
        self.line, self.choice, self.room, self.run = line, choice, room.copy(), Run(line)
        self.copies: dict[int, Copy] = {}
        self.waiting = [k for k in range(len(line.pieces)) if k not in choice.kept]
        self.not_before = {k: choice.earliest(line, k) for k in self.waiting}
        self.made = self._made()

    def _made(self) -> Itinerary:
        line = self.line
        for index in range(len(line)):
            piece = line.reads.get(index, -1)
            if piece in self.waiting and line.pieces[piece].readers[0] == index:
                self.waiting.remove(piece)
                self._in_time(piece, index)
            self._ahead(index)
            self.run.step(index, piece in self.copies)
        return Itinerary(self.run.cycles, tuple(self.copies.values()))

    def _ahead(self, index: int) -> None:
        """Send what is read later, while the port is idle."""
        if self.run.clock.idle < 0:
            return
        for piece in list(self.waiting):
            if self.not_before[piece] <= index < self.line.pieces[piece].readers[0]:
                copy = self._place(piece, index)
                if copy is not None:
                    self._send(copy)
                    self.waiting.remove(piece)
                    if self.run.clock.idle < 0:
                        return
            if self.choice.in_turn and piece in self.waiting and self.choice.earliest(self.line, piece) <= index:
                return

    def _in_time(self, piece: int, index: int) -> None:
        """Send what is read next, or leave it where it is."""
        copy = self._place(piece, index) or self._place(piece, index, 0)
        if copy is None:
            return
        here, copied = self.run.fork(), self.run.fork()
        copied.copy(piece, copy.unfinished)
        copied.step(index, True)
        here.step(index, False)
        if len(self.line.pieces[piece].readers) > 1 or copied.clock.engines.end < here.clock.engines.end:
            self._send(copy)

    def _place(self, piece: int, index: int, unfinished: int = 1) -> Copy | None:
        """A copy before operation `index` into bytes that all but the last `unfinished` operations have left."""
        size, last = self.line.pieces[piece].size_bytes, self.line.pieces[piece].readers[-1]
        first = max(0, index - unfinished)
        full = self.room.full_at(size, first, last)
        if full >= 0:
            if unfinished:
                self.not_before[piece] = max(self.not_before[piece], full + 1)
            return None
        if unfinished == 1 and index > 1:
            at = self.room.find(size, first - 1, last, self.choice.from_top)
            if at is not None:
                return Copy(piece, index, at)
        at = self.room.find(size, first, last, self.choice.from_top)
        if at is None and unfinished:
            self.not_before[piece] = max(self.not_before[piece], self.room.tight_until(first, last) + unfinished + 1)
        return None if at is None else Copy(piece, index, at, unfinished)

    def _send(self, copy: Copy) -> None:
        piece = self.line.pieces[copy.piece]
        first = max(0, copy.before - copy.unfinished)
        self.room.take(piece.size_bytes, first, piece.readers[-1], copy.at)
        self.run.copy(copy.piece, copy.unfinished)
        self.copies[copy.piece] = copy
