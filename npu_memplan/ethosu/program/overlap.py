"""Which buffers of an NPU program may overlap: proven from the accesses of all operations that meet both.

Invariant: at an allowed distance no operation writes a byte of the input that itself or a later operation reads -
except operations that are proven to work in place there, element by element. A pair of buffers is compared only where
the output can lie over bytes of the input that no later operation reads; what remains to be read of every buffer is
followed from operation to operation, so buffers that are alive for long and untouched cost nothing. `Writers` always
covers its whole memory with disjoint segments, each owned by the last write (or none, -1); a web is a set of writes
closed under "some access reads from both".
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...problem import AllowedOverlap
from ..stream.fields import FEATURE_MAPS
from ..stream.isa import Register
from .access import Ranges
from .hazards import in_place_distances
from .program import BufferRole, NpuBuffer, NpuProgram

NOBODY = -1
_MANY = 32  # ranges from which arrays beat a loop
ALIGNMENT = 16  # bytes; feature maps, weights and DMA want it, and lifting keeps addresses modulo it


class Writers:
    """Last writer of every byte of one memory, as segments.

    A step looks at the segments between the first and the last byte of its ranges and at no others, and both columns
    are machine integers, so what a loop changes one by one numpy changes at once, without a conversion.
    """

    __slots__ = ("_owners", "_starts")

    def __init__(self) -> None:
        self._starts = array("q", [0])  # ascending; the last segment is open-ended
        self._owners = array("q", [NOBODY])

    def write(self, ranges: Ranges, owner: int) -> None:
        """Make `owner` the last writer of all bytes in `ranges`."""
        if len(ranges) > _MANY:
            self._write_many(ranges, owner)
            return
        for start, stop in ranges.tolist():
            first, end = self._segments_between(start, stop)
            after = self._owners[end - 1]  # keeps what lies beyond `stop`
            starts, owners = [start], [owner]
            if self._starts[first] < start:
                starts.insert(0, self._starts[first])
                owners.insert(0, self._owners[first])
            if end == len(self._starts) or self._starts[end] > stop:
                starts.append(stop)
                owners.append(after)
            self._starts[first:end] = array("q", starts)
            self._owners[first:end] = array("q", owners)

    def _write_many(self, ranges: Ranges, owner: int) -> None:
        """`write` for thousands of runs (strided maps), without a Python step for each."""
        first, end = self._segments_between(int(ranges[0, 0]), int(ranges[-1, 1]))
        stop = self._starts[end] if end < len(self._starts) else None
        starts, owners = self._segment_columns(first, end)
        holder = np.searchsorted(starts, ranges[:, 1], "right") - 1  # the segment each range ends in, or ends at
        open_end = starts[holder] != ranges[:, 1]
        open_end[-1] &= stop != ranges[-1, 1]
        before = np.searchsorted(ranges[:, 0], starts, "right") - 1
        covered = (before >= 0) & (starts < ranges[np.maximum(before, 0), 1])
        starts, owners, ends = starts[~covered], owners[~covered], owners[holder][open_end]
        starts = np.concatenate((starts, ranges[:, 0], ranges[open_end, 1]))
        owners = np.concatenate((owners, np.full(len(ranges), owner), ends))
        order = np.argsort(starts, kind="stable")
        self._starts[first:end] = array("q", starts[order].tobytes())
        self._owners[first:end] = array("q", owners[order].tobytes())

    def readers_see(self, ranges: Ranges) -> set[int]:
        """Owners of the bytes in `ranges`; contains `NOBODY` when some were never written."""
        if len(ranges) > _MANY:
            starts, owners = self._segment_columns(*self._segments_between(int(ranges[0, 0]), int(ranges[-1, 1])))
            depth = np.zeros(len(starts) + 1, np.int64)  # how many ranges see each segment
            np.add.at(depth, np.searchsorted(starts, ranges[:, 0], "right") - 1, 1)
            np.add.at(depth, np.searchsorted(starts, ranges[:, 1], "left"), -1)
            return set(owners[np.cumsum(depth)[:-1] > 0].tolist())
        found: set[int] = set()
        for start, stop in ranges.tolist():
            first, end = self._segments_between(start, stop)
            found.update(self._owners[first:end])
        return found

    def segments(self, ranges: Ranges) -> list[tuple[int, int, int]]:
        """The bytes of `ranges` in pieces of one owner each: first, one past the last, owner."""
        found = []
        for start, stop in ranges.tolist():
            first, end = self._segments_between(start, stop)
            for i in range(first, end):
                above = self._starts[i + 1] if i + 1 < len(self._starts) else stop
                found.append((max(start, self._starts[i]), min(stop, above), self._owners[i]))
        return found

    def _segments_between(self, start: int, stop: int) -> tuple[int, int]:
        """The segments that bytes [start, stop) are in, half-open."""
        return bisect.bisect_right(self._starts, start) - 1, bisect.bisect_left(self._starts, stop)

    def _segment_columns(self, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Copies of starts and owners of some segments."""
        return np.frombuffer(self._starts[first:end], np.int64), np.frombuffer(self._owners[first:end], np.int64)


@dataclass(slots=True)
class Web:
    """One connected set of accesses, all in one region; times are operation indices, inclusive."""

    region: int
    first: int
    last: int
    low: int  # first byte touched
    high: int  # one past the last byte touched
    nodes: list[int] = field(default_factory=list)

    @property
    def span(self) -> tuple[int, int]:
        """Bytes from the first to the last one touched; the start is rounded down to 16 to keep its residue."""
        return self.low - self.low % ALIGNMENT, self.high

    def take(self, first: int, last: int, low: int, high: int) -> None:
        """Add an access."""
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.low, self.high = min(self.low, low), max(self.high, high)


class WebBuilder:
    """Feed it the accesses in program order; it unites what belongs together."""

    def __init__(self) -> None:
        self._writers: dict[int, Writers] = {}
        self._parent: list[int] = []
        self._uses: list[Web] = []  # per node, of it alone

    def define(self, region: int, ranges: Ranges, time: int) -> int:
        """A write: returns its node."""
        node = len(self._parent)
        self._parent.append(node)
        self._uses.append(Web(region, time, time, int(ranges[0, 0]), int(ranges[-1, 1])))
        self._writers.setdefault(region, Writers()).write(ranges, node)
        return node

    def read(self, region: int, ranges: Ranges, time: int, partly: bool = False) -> int | None:
        """A read: unites all writes it sees and returns one of them; None when something has not been written.

        `partly`: when nothing has.
        """
        owners = self._writers.setdefault(region, Writers()).readers_see(ranges)
        nodes = sorted(owners - {NOBODY})
        if not nodes or (NOBODY in owners and not partly):
            return None
        for other in nodes[1:]:
            self.unite(nodes[0], other)
        self._uses[nodes[0]].take(time, time, int(ranges[0, 0]), int(ranges[-1, 1]))
        return nodes[0]

    def extend_life(self, node: int, first: int, last: int) -> None:
        """A node is in use from `first` to `last` at least."""
        use = self._uses[node]
        use.take(first, last, use.low, use.high)

    def unite(self, first: int, second: int) -> None:
        """Make two nodes one web."""
        a, b = self.find(first), self.find(second)
        self._parent[max(a, b)] = min(a, b)

    def find(self, node: int) -> int:
        """The web of a node, named by its lowest node."""
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def webs(self) -> dict[int, Web]:
        """All webs by their lowest node, in order of it."""
        found: dict[int, Web] = {}
        for node, use in enumerate(self._uses):
            web = found.setdefault(self.find(node), Web(use.region, use.first, use.last, use.low, use.high))
            web.nodes.append(node)
            web.take(use.first, use.last, use.low, use.high)
        return found


def colliding_webs(webs: dict[int, Web]) -> Iterable[tuple[int, int]]:
    """Pairs of webs that share a time and whose spans share a byte, in order."""
    keys = list(webs)
    if not keys:
        return
    low, high = np.array([webs[k].span for k in keys], np.int64).T
    first = np.array([webs[k].first for k in keys])
    last = np.array([webs[k].last for k in keys])
    region = np.array([webs[k].region for k in keys])
    for i, key in enumerate(keys[:-1]):
        rest = slice(i + 1, None)
        meet = (low[rest] < high[i]) & (low[i] < high[rest]) & (first[rest] <= last[i]) & (first[i] <= last[rest])
        for j in np.flatnonzero(meet & (region[rest] == region[i])):
            yield key, keys[i + 1 + int(j)]


Span = tuple[int, int]  # first byte and one past the last
NOTHING: Span = (1 << 62, -(1 << 62))  # no byte at all: neutral for the least and the greatest


def span_distances(
    reads: NDArray[np.int64], writes: NDArray[np.int64], in_place: int | None, old_bytes: int, new_bytes: int
) -> tuple[int | None, int | None] | None:
    """`allowed_distances` of a row for each operation: the span that it reads, the one that it writes, or `NOTHING`."""
    first = np.minimum.accumulate(reads[::-1, 0])[::-1]
    stop = np.maximum.accumulate(reads[::-1, 1])[::-1]
    remaining = np.vstack([np.column_stack([first, stop]), NOTHING])
    wrote = np.flatnonzero(writes[:, 1] > writes[:, 0])
    return allowed_distances(writes[wrote], remaining[wrote], remaining[wrote + 1], in_place, (old_bytes, new_bytes))


def allowed_distances(
    writes: NDArray[np.int64],
    remaining: NDArray[np.int64],
    remaining_after: NDArray[np.int64],
    in_place: int | None,
    sizes_bytes: tuple[int, int],
) -> tuple[int | None, int | None] | None:
    """`lowest, highest` of offset(new buffer) - offset(dying buffer), of which one may be open; None: apart.

    A row for each operation that writes the new buffer, in program order: the bytes that it writes, those of the dying
    buffer that it and all later ones read, those that only later ones read. The sizes are those of the dying and the
    new buffer; `in_place` is the distance at which all of them may write over what they read themselves. In place is
    one distance. Else the new buffer may trail what has been read: below it when the operations go towards higher
    addresses, above it when they go down.
    """
    old_bytes, new_bytes = sizes_bytes
    low, high = writes[:, 0], writes[:, 1]
    if in_place is not None:
        apart = (high + in_place <= remaining_after[:, 0]) | (low + in_place >= remaining_after[:, 1])
        if np.all(apart):
            return in_place, in_place
    # further apart they share no byte; where nothing is read any more, every distance is allowed
    highest = min(int((remaining[:, 0] - high).min()), old_bytes)
    lowest = max(int((remaining[:, 1] - low).max()), -new_bytes)
    below, above = highest + new_bytes, old_bytes - lowest  # bytes of the new buffer that may lie over the old one
    if max(below, above) <= 0:
        return None
    return (None, highest) if below >= above else (lowest, None)


_ALWAYS_LIVE = (BufferRole.STATE, BufferRole.CONSTANTS, BufferRole.RESIDENT)
_LIVE_BEFORE = (BufferRole.INPUT, *_ALWAYS_LIVE)
_LIVE_AFTER = (BufferRole.OUTPUT, BufferRole.LUT, *_ALWAYS_LIVE)


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap that `operation` (the first to write `second`) to `last` (the last to read `first`) allow."""

    allowed: AllowedOverlap
    operation: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class _Touches:
    """Operations that read one buffer, or that write it, in order, and the bytes from first to last of each."""

    operations: NDArray[np.int64]  # [n]
    spans: NDArray[np.int64]  # [n, 2]
    remaining: NDArray[np.int64]  # [n + 1, 2]: bytes from first to last of each operation and all after it

    @classmethod
    def from_spans(cls, found: dict[int, Span]) -> _Touches:
        """The bytes that operations with these spans touch, in order."""
        spans = np.array([*found.values(), NOTHING], np.int64)
        first = np.minimum.accumulate(spans[::-1, 0])[::-1]
        stop = np.maximum.accumulate(spans[::-1, 1])[::-1]
        return cls(np.array(list(found), np.int64), spans[:-1], np.column_stack([first, stop]))

    def remaining_from(self, operations: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bytes that each of `operations` and those after it touch."""
        return self.remaining[np.searchsorted(self.operations, operations)]


_NONE = _Touches.from_spans({})


def find_overlaps(program: NpuProgram) -> tuple[Overlap, ...]:
    """Every allowed overlap, by the first write of the second buffer; others may yet use `first` afterwards."""
    return tuple(_Search(program).run())


class _Search:
    """One pass over the operations of a program."""

    def __init__(self, program: NpuProgram) -> None:
        self.program, self.count = program, len(program.operations)
        self.live = program.live_ranges()
        self.rank = {name: place for place, name in enumerate(self.live)}  # in the order of the first touches
        self.read_by = [tuple(n for n, is_write in program.buffers_of(i) if not is_write) for i in range(self.count)]
        spans: tuple[dict[str, dict[int, Span]], ...] = ({}, {})
        for index in range(self.count):
            for name, found, is_write in program.accesses(index):
                of = spans[is_write].setdefault(name, {})
                low, high = of.get(index, NOTHING)
                of[index] = (min(low, found[0][0]), max(high, found[-1][1]))
        self.reads, self.writes = ({name: _Touches.from_spans(of) for name, of in some.items()} for some in spans)
        self.complete_at = {n: i + 1 for i in range(self.count) for n, is_write in program.buffers_of(i) if is_write}
        self.in_place: dict[int, dict[str, int]] = {}

    def run(self) -> Iterator[Overlap]:
        """Go through the operations, with the buffers of which some bytes are dead."""
        dead_in_part: dict[str, None] = {}
        complete: dict[str, None] = {}  # every buffer that is alive and written to its end
        ending: list[list[str]] = [[] for _ in range(self.count)]
        ready: list[list[str]] = [[] for _ in range(self.count)]
        for name, (first, last) in self.live.items():
            if self.complete_at.get(name, first) <= last:  # it is read after its last write
                ready[self.complete_at.get(name, first)].append(name)
                ending[last].append(name)
        for index in range(self.count):
            complete.update(dict.fromkeys(ready[index]))
            for name in (*ready[index], *(self.read_by[index - 1] if index else ())):
                if name in complete and self._is_dead_in_part(name, index):
                    dead_in_part[name] = None
            yield from self._born_at(index, complete, dead_in_part)
            for name in ending[index]:
                del complete[name]
                dead_in_part.pop(name, None)

    def _is_dead_in_part(self, name: str, index: int) -> bool:
        """Whether some bytes of a complete buffer are read neither by operation `index` nor by a later one."""
        first, stop = self.reads.get(name, _NONE).remaining_from(np.array([index]))[0]
        return (first, stop) != (0, self.program.buffer(name).size_bytes)

    def _born_at(self, index: int, complete: dict[str, None], dead_in_part: dict[str, None]) -> Iterator[Overlap]:
        """Allowed overlaps of the buffer whose lifetime begins with operation `index`."""
        place = self.program.operations[index].addresses.get(Register.OFM_BASE0)
        if place is None or self.live[place[0]][0] != index:
            return
        target = self.program.buffer(place[0])
        if target.role in _LIVE_BEFORE or target.name not in self.writes:
            return
        writes = self.writes[target.name]
        end = self.count if target.role is BufferRole.OUTPUT else self.live[target.name][1]
        if tuple(writes.remaining[0]) == (0, target.size_bytes):
            read = (name for i in range(index, int(writes.operations[-1]) + 1) for name in self.read_by[i])
            sources = {**dead_in_part, **dict.fromkeys(name for name in read if name in complete)}
        else:
            sources = complete
        now = {name: place for place, name in enumerate(self.read_by[index])}
        for source in sorted(sources, key=lambda name: (now.get(name, self.count), self.rank[name])):
            last = self.live[source][1]
            if source == target.name or last > end or self.program.buffer(source).role in _LIVE_AFTER:
                continue
            allowed = self._distances(source, target, writes)
            if allowed is not None:
                lowest, highest = allowed
                reason = self._reason(index, last, lowest == highest)
                yield Overlap(AllowedOverlap(source, target.name, lowest, highest, reason), index, last)

    def _distances(self, source: str, target: NpuBuffer, writes: _Touches) -> tuple[int | None, int | None] | None:
        until = int(np.searchsorted(writes.operations, self.live[source][1], side="right"))
        operations, reads = writes.operations[:until], self.reads.get(source, _NONE)
        agreed: set[int | None] = {None}
        if np.isin(operations, reads.operations).all():
            agreed = {self._in_place(int(index)).get(source) for index in operations}
        return allowed_distances(
            writes.spans[:until],
            reads.remaining_from(operations),
            reads.remaining_from(operations + 1),
            agreed.pop() if len(agreed) == 1 else None,
            (self.program.buffer(source).size_bytes, target.size_bytes),
        )

    def _in_place(self, index: int) -> dict[str, int]:
        """Buffers that operation `index` may write its output over."""
        if index not in self.in_place:
            operation = self.program.operations[index]
            views = {name: operation.addresses.get(view.bases[0]) for name, view in FEATURE_MAPS.items()}
            holder = {view: place[0] for view, place in views.items() if place is not None}
            found = in_place_distances(self.program.at_zero(index), holder)
            self.in_place[index] = {str(name): distance for name, distance in found.items()}
        return self.in_place[index]

    def _reason(self, index: int, last: int, in_place: bool) -> str:
        if in_place:
            kind = self.program.operations[index].op.name.lower()
            return f"operation {index} ({kind}) writes its output over its input"
        return f"operations {index} to {last} write over rows that none of them reads any more"


def shared_bytes(lowest: int | None, highest: int | None, old_bytes: int, new_bytes: int, alignment: int) -> int:
    """Most bytes that two buffers may share at aligned distances from `lowest` to `highest`, one of which is open."""
    if highest is not None:
        at = min(highest // alignment * alignment, max(0, old_bytes - new_bytes))
    else:
        assert lowest is not None
        at = max(-(-lowest // alignment) * alignment, min(0, old_bytes - new_bytes))
    return min(old_bytes, at + new_bytes) - max(0, at)
