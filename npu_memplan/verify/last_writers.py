"""Is every byte that is read what its buffer's own writes left there? A problem's accesses, followed in their order.

Invariant: shares no code with the planners or the extraction. Each byte of a pool has one last writer: inputs, states
and constants to begin with, nothing for all other bytes. A read is right when the last writer of each of its bytes is
the buffer that is read, or one of its alias group. Behind an `if`, a byte has the last writer of both sides if that is
one; of a loop, the first iteration is followed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat

from ..problem import BranchPoints, BufferAccess, BufferKind, ByteRun, Placement, Problem

_GIVEN = (BufferKind.INPUT, BufferKind.STATE, BufferKind.CONSTANT, BufferKind.RESIDENT)
"""Kinds of buffers that hold something before the first point."""

_NOTHING = 0  # the writer of bytes that nothing has written


@dataclass(frozen=True, slots=True)
class StaleRead:
    """Bytes `[start_bytes, stop_bytes)` of the pool are read at `point`; `writer` wrote them last (empty: nothing)."""

    buffer: str
    writer: str
    start_bytes: int
    stop_bytes: int
    point: int


@dataclass(frozen=True, slots=True, eq=False)
class _Mosaic:
    """The writers of bytes from `base` on, one by one, where they change too often for pieces."""

    base: int
    writers: array[int]


_Piece = tuple[int, int, int | _Mosaic]  # bytes [start, stop) of a pool, and what wrote them last


class LastWriters:
    """The last writer of each byte of one pool: pieces in ascending order that do not overlap, nothing between them."""

    def __init__(self, count: int, pieces: Iterable[_Piece] = ()) -> None:
        """Writers are numbers from 1 to `count`."""
        self.count = count
        self.pieces = list(pieces)

    def write(self, run: ByteRun, writer: int) -> None:
        """`writer` writes the bytes of `run`, which are in the pool."""
        start, size, pieces, stride = run
        stop = start + stride * (pieces - 1) + size
        if pieces == 1:
            self._replace_piece(start, stop, writer)
            return
        if self._owner_around(start, stop) == writer:
            return  # it wrote the bytes between the pieces, too
        mosaic = self._new_mosaic(start, stop)
        writers, at = mosaic.writers, start - mosaic.base
        if pieces < size:
            row = array(writers.typecode, (writer,)) * size
            for byte in range(at, at + stride * pieces, stride):
                writers[byte : byte + size] = row
        else:
            column = array(writers.typecode, (writer,)) * pieces
            for byte in range(at, at + size):
                writers[byte : byte + stride * (pieces - 1) + 1 : stride] = column

    def missing(self, run: ByteRun, own: int) -> tuple[int, int, int] | None:
        """The first bytes of `run` that `own` did not write last, and what did; None: there are none."""
        start, size, pieces, stride = run
        if pieces == 1:
            return self._first_missing(start, start + size, own)
        stop = start + stride * (pieces - 1) + size
        owner = self._owner_around(start, stop)
        if owner == own:
            return None
        if isinstance(owner, _Mosaic):
            writers, at = owner.writers, start - owner.base
        else:
            writers, at = self._writers_between(start, stop), 0
        if pieces < size:
            row, width = array(writers.typecode, (own,)) * size, writers.itemsize
            data, step = writers[at : at + stop - start].tobytes(), stride * width
            if all(map(data.startswith, repeat(row.tobytes()), range(0, step * pieces, step))):
                return None
        else:
            column, reach = array(writers.typecode, (own,)) * pieces, stride * (pieces - 1) + 1
            if all(writers[byte : byte + reach : stride] == column for byte in range(at, at + size)):
                return None
        spans = ((start + k * stride, start + k * stride + size) for k in range(pieces))
        return next(filter(None, (self._first_missing(low, high, own) for low, high in spans)))

    def common_writers(self, other: LastWriters) -> LastWriters:
        """The writers that are the same in both."""
        found: list[_Piece] = []
        mine, theirs = list(self._plain_pieces()), list(other._plain_pieces())
        a = b = 0
        while a < len(mine) and b < len(theirs):
            (start, stop, owner), (low, high, writer) = mine[a], theirs[b]
            if owner == writer and max(start, low) < min(stop, high):
                found.append((max(start, low), min(stop, high), owner))
            a, b = a + (stop <= high), b + (high <= stop)
        return LastWriters(self.count, found)

    def copy(self) -> LastWriters:
        """A copy that changes apart from this."""
        return LastWriters(self.count, self._plain_pieces())

    def _first_missing(self, start: int, stop: int, own: int) -> tuple[int, int, int] | None:
        for begin, end, owner in self.pieces[slice(*self._piece_range(start, stop))]:
            if begin > start:
                return start, begin, _NOTHING
            end = min(end, stop)
            if isinstance(owner, _Mosaic):
                writers = owner.writers[start - owner.base : end - owner.base]
                if writers != array(writers.typecode, (own,)) * len(writers):
                    return next(piece for piece in _writer_pieces(writers, start) if piece[2] != own)
            elif owner != own:
                return start, end, owner
            start = end
        return (start, stop, _NOTHING) if start < stop else None

    def _replace_piece(self, start: int, stop: int, owner: int | _Mosaic) -> None:
        """Bytes [start, stop) are one piece; joined with neighbours of the same writer."""
        low, high = self._piece_range(start - 1, stop + 1)
        before: list[_Piece] = []
        after: list[_Piece] = []
        first, last = start, stop
        for begin, end, writer in self.pieces[low:high]:
            if writer == owner:
                first, last = min(first, begin), max(last, end)
                continue
            if begin < start:
                before.append((begin, min(end, start), writer))
            if end > stop:
                after.append((max(begin, stop), end, writer))
        self.pieces[low:high] = [*before, (first, last, owner), *after]

    def _new_mosaic(self, start: int, stop: int) -> _Mosaic:
        """The bytes [start, stop) as a part of a mosaic."""
        owner = self._owner_around(start, stop)
        if isinstance(owner, _Mosaic):
            return owner
        made = _Mosaic(start, self._writers_between(start, stop))
        self._replace_piece(start, stop, made)
        return made

    def _owner_around(self, start: int, stop: int) -> int | _Mosaic | None:
        """The owner of the piece that has all of the bytes [start, stop); None: no piece has."""
        low, high = self._piece_range(start, stop)
        if high == low + 1:
            begin, end, owner = self.pieces[low]
            if begin <= start and stop <= end:
                return owner
        return None

    def _writers_between(self, start: int, stop: int) -> array[int]:
        """The writers of bytes [start, stop), one by one."""
        code = "H" if self.count < 1 << 16 else "L"
        found = array(code, (_NOTHING,)) * (stop - start)
        for begin, end, owner in self.pieces[slice(*self._piece_range(start, stop))]:
            begin, end = max(begin, start), min(end, stop)
            if isinstance(owner, _Mosaic):
                found[begin - start : end - start] = owner.writers[begin - owner.base : end - owner.base]
            else:
                found[begin - start : end - start] = array(code, (owner,)) * (end - begin)
        return found

    def _piece_range(self, start: int, stop: int) -> tuple[int, int]:
        """The pieces that reach into `[start, stop)`: their first place, and the place after the last."""
        low, high = bisect_left(self.pieces, (start,)), bisect_left(self.pieces, (stop,))
        return low - bool(low and self.pieces[low - 1][1] > start), high

    def _plain_pieces(self) -> Iterator[tuple[int, int, int]]:
        """All pieces, those inside of mosaics one by one."""
        for start, stop, owner in self.pieces:
            if isinstance(owner, _Mosaic):
                yield from _writer_pieces(owner.writers[start - owner.base : stop - owner.base], start)
            else:
                yield start, stop, owner


def _writer_pieces(writers: Iterable[int], start: int) -> Iterator[tuple[int, int, int]]:
    """The pieces of bytes from `start` on that have these `writers`."""
    for writer, same in groupby(writers):
        stop = start + sum(1 for _ in same)
        yield start, stop, writer
        start = stop


def stale_reads(problem: Problem, placed: Mapping[str, Placement]) -> tuple[StaleRead, ...]:
    """Reads of bytes that their buffer did not write last, one of each buffer; every buffer must be `placed`."""
    return tuple(_Walk(problem, placed).found.values()) if problem.accesses else ()


class _Walk:
    """The program from its first point to its last."""

    def __init__(self, problem: Problem, placed: Mapping[str, Placement]) -> None:
        self.placed = placed
        self.sizes = {b.name: b.size_bytes for b in problem.buffers}
        self.names = ["", *self.sizes]
        self.number = {name: number for number, name in enumerate(self.names)}
        for group in problem.aliases:
            self.number.update((name, self.number[group.members[0][0]]) for name, _ in group.members)
        self.found: dict[str, StaleRead] = {}  # by buffer
        steps: dict[int, tuple[list[tuple[str, BufferAccess]], list[tuple[str, BufferAccess]]]] = {}
        for known in problem.accesses:
            for is_write, accesses in enumerate((known.reads, known.writes)):
                for access in accesses:
                    steps.setdefault(access.point, ([], []))[is_write].append((known.buffer, access))
        self.steps = sorted(steps.items())
        self.points = [point for point, _ in self.steps]
        state = {pool.name: LastWriters(len(self.sizes)) for pool in problem.pools}
        for buffer in problem.buffers:
            if buffer.kind in _GIVEN:
                self._record_write(state, buffer.name, BufferAccess(0))
        self._follow_steps(state, 0, len(self.steps), list(reversed(problem.branches)))

    def _follow_steps(self, state: dict[str, LastWriters], at: int, end: int, waiting: list[BranchPoints]) -> None:
        """Executes the steps from place `at` to place `end` upon `state`; `waiting` has branches, the next one last."""
        while at < end:
            if waiting and waiting[-1].first <= self.points[at]:
                branch = waiting.pop()
                middle, after = (bisect_left(self.points, point) for point in (branch.middle, branch.last))
                other = {pool: writers.copy() for pool, writers in state.items()}
                self._follow_steps(state, at, middle, waiting)
                self._follow_steps(other, middle, after, waiting)
                for pool, writers in other.items():
                    state[pool] = state[pool].common_writers(writers)
                at = max(at, after)
                continue
            point, (reads, writes) = self.steps[at]
            for name, access in reads:
                if name not in self.found:
                    self._check_read(state, name, access, point)
            for name, access in writes:
                self._record_write(state, name, access)
            at += 1

    def _check_read(self, state: dict[str, LastWriters], name: str, access: BufferAccess, point: int) -> None:
        writers = state[self.placed[name].pool]
        for run in self._access_runs(name, access):
            missing = writers.missing(run, self.number[name])
            if missing is not None:
                start, stop, writer = missing
                self.found[name] = StaleRead(name, self.names[writer], start, stop, point)
                return

    def _record_write(self, state: dict[str, LastWriters], name: str, access: BufferAccess) -> None:
        writers = state[self.placed[name].pool]
        for run in self._access_runs(name, access):
            writers.write(run, self.number[name])

    def _access_runs(self, name: str, access: BufferAccess) -> Sequence[ByteRun]:
        offset = self.placed[name].offset_bytes
        if access.runs:
            return [ByteRun(start + offset, *rest) for start, *rest in access.runs]
        return [ByteRun(offset, self.sizes[name], 1, 0)] if self.sizes[name] else []
