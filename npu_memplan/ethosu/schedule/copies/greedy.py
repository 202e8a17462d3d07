"""Each piece is sent as soon as the port is idle and its bytes are free, the one that is read first before the others.

Invariant: a copy holds its bytes from the kernel before its transfer to its last reader; a piece whose turn has come
is read in place where that ends sooner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .course import Course, Run
from .room import Room


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


def greedy(line: Course, empty: Room, kept: Collection[int] = (), sooner: Mapping[int, int] | None = None) -> Itinerary:
    """Copies of all pieces but `kept`; one is started at most `sooner[piece]` operations before it is read."""
    return _Greedy(line, empty.copy(), kept, sooner or {}).made()


class _Greedy:
    def __init__(self, line: Course, room: Room, kept: Collection[int], sooner: Mapping[int, int]) -> None:
        self.line, self.room, self.run = line, room, Run(line)
        firsts = {k: piece.readers[0] for k, piece in enumerate(line.pieces) if k not in kept}
        self.waiting = sorted(firsts, key=lambda k: (firsts[k], k))
        self.not_before = {k: max(0, firsts[k] - sooner[k]) if k in sooner else 0 for k in firsts}
        self.copies: dict[int, Copy] = {}

    def made(self) -> Itinerary:
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
        for piece in list(self.waiting):
            if self.run.clock.idle < 0:
                return
            if self.not_before[piece] <= index < self.line.pieces[piece].readers[0]:
                copy = self._place(piece, index)
                if copy is not None:
                    self._send(copy)
                    self.waiting.remove(piece)

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
            at = self.room.find(size, first - 1, last)
            if at is not None:
                return Copy(piece, index, at)
        at = self.room.find(size, first, last)
        return None if at is None else Copy(piece, index, at, unfinished)

    def _send(self, copy: Copy) -> None:
        piece = self.line.pieces[copy.piece]
        first = max(0, copy.before - copy.unfinished)
        self.room.take(piece.size_bytes, first, piece.readers[-1], copy.at)
        self.run.copy(copy.piece, copy.unfinished)
        self.copies[copy.piece] = copy
