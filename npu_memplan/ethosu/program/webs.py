"""Webs: which writes and reads of a memory belong together.

Invariant: `Writers` always covers its whole memory with disjoint segments, each owned by the last
write (or none, -1); a web is a set of writes closed under "some access reads from both".
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .ranges import Ranges

NOBODY = -1
_MANY = 64  # ranges from which arrays beat a loop
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
            first, end = self._between(start, stop)
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
        first, end = self._between(int(ranges[0, 0]), int(ranges[-1, 1]))
        stop = self._starts[end] if end < len(self._starts) else None
        starts, owners = self._columns(first, end)
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
            starts, owners = self._columns(*self._between(int(ranges[0, 0]), int(ranges[-1, 1])))
            depth = np.zeros(len(starts) + 1, np.int64)  # how many ranges see each segment
            np.add.at(depth, np.searchsorted(starts, ranges[:, 0], "right") - 1, 1)
            np.add.at(depth, np.searchsorted(starts, ranges[:, 1], "left"), -1)
            return set(owners[np.cumsum(depth)[:-1] > 0].tolist())
        found: set[int] = set()
        for start, stop in ranges.tolist():
            first, end = self._between(start, stop)
            found.update(self._owners[first:end])
        return found

    def segments(self, ranges: Ranges) -> list[tuple[int, int, int]]:
        """The bytes of `ranges` in pieces of one owner each: first, one past the last, owner."""
        found = []
        for start, stop in ranges.tolist():
            first, end = self._between(start, stop)
            for i in range(first, end):
                above = self._starts[i + 1] if i + 1 < len(self._starts) else stop
                found.append((max(start, self._starts[i]), min(stop, above), self._owners[i]))
        return found

    def _between(self, start: int, stop: int) -> tuple[int, int]:
        """The segments that bytes [start, stop) are in, half-open."""
        return bisect.bisect_right(self._starts, start) - 1, bisect.bisect_left(self._starts, stop)

    def _columns(self, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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

    def lasts(self, node: int, first: int, last: int) -> None:
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


def colliding(webs: dict[int, Web]) -> Iterable[tuple[int, int]]:
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
