"""Free bytes of one pool over the operations of a program.

Invariant: what is taken of a `FreeCapacity` is never more than is free at any time; what is taken of a `FreeRanges`
never meets what was there in both time and bytes either, and ends below the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class OccupiedRange:
    """Bytes `[start, stop)` that are in use from operation `first` to `last`, both included."""

    first: int
    last: int
    start: int
    stop: int


class FreeCapacity:
    """How many bytes are free below `limit_bytes`, in multiples of `grain`, wherever they lie: for copies that
    are planned together with everything else.
    """

    placed = False  # what is found has its place

    def __init__(self, held: Sequence[OccupiedRange], limit_bytes: int, operations: int, grain: int = 16) -> None:
        self.limit_bytes, self.grain = limit_bytes - limit_bytes % grain, grain
        self._used = np.zeros(operations, np.int64)  # bytes at each operation
        ordered = sorted(held, key=lambda h: (h.start, h.stop))
        for point in range(operations):
            reach = 0
            for h in ordered:
                if h.first <= point <= h.last:
                    self._used[point] += max(0, h.stop - max(h.start, reach))
                    reach = max(reach, h.stop)

    @property
    def used(self) -> NDArray[np.int64]:
        """Bytes at each operation."""
        return np.array(self._used)

    @property
    def held(self) -> NDArray[np.int64]:
        """What lies where: first and last operation, first byte and the one behind; by where it starts."""
        return np.zeros((0, 4), np.int64)

    def copy(self) -> FreeCapacity:
        """The same room, to be filled otherwise."""
        other = copy(self)
        other._used = self._used.copy()
        return other

    def free_at(self, operation: int) -> int:
        """Bytes that are free while an operation runs."""
        return self.limit_bytes - int(self._used[operation])

    def full_at(self, size_bytes: int, first: int, last: int) -> int:
        """The last operation in `[first, last]` at which less than `size_bytes` are free; -1: none."""
        full = (self._used[first : last + 1] > self.limit_bytes - size_bytes).nonzero()[0]
        return first + int(full[-1]) if len(full) else -1

    def find(self, size_bytes: int, first: int, last: int, from_top: bool = False) -> int | None:
        """0 where so many bytes are free."""
        return 0 if self.full_at(size_bytes, first, last) < 0 else None

    def tight_until(self, first: int, last: int) -> int:
        """Where `find` found nothing: the operation at which that may change."""
        return last

    def take(self, size_bytes: int, first: int, last: int, at: int) -> None:
        """Fill what `find` found."""
        self._used[first : last + 1] += size_bytes + -size_bytes % self.grain


class FreeRanges(FreeCapacity):
    """The same with places, around what has its own."""

    placed = True

    def __init__(self, held: Sequence[OccupiedRange], limit_bytes: int, operations: int, grain: int = 16) -> None:
        super().__init__(held, limit_bytes, operations, grain)
        ordered = sorted(held, key=lambda h: (h.start, h.stop))
        stops = [h.stop + -h.stop % grain for h in ordered]
        self._held = np.array([[h.first, h.last, h.start, s] for h, s in zip(ordered, stops, strict=True)], np.int64)
        self._held = self._held.reshape(-1, 4)

    @property
    def held(self) -> NDArray[np.int64]:
        return np.array(self._held)

    def find(self, size_bytes: int, first: int, last: int, from_top: bool = False) -> int | None:
        """The start of the smallest hole that has `size_bytes` from operation `first` to `last`; the top comes last.

        `from_top`: the highest place there is, and nothing else matters.
        """
        taken = self._held[(self._held[:, 0] <= last) & (self._held[:, 1] >= first)]
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
        """The operation at which the first of what is in the way ends."""
        taken = self._held[(self._held[:, 0] <= last) & (self._held[:, 1] >= first)]
        return int(taken[:, 1].min()) if len(taken) else last

    def take(self, size_bytes: int, first: int, last: int, at: int) -> None:
        stop = at + size_bytes + -size_bytes % self.grain
        where = int(self._held[:, 2].searchsorted(at))
        row = np.array([[first, last, at, stop]], np.int64)
        self._held = np.concatenate((self._held[:where], row, self._held[where:]))
        super().take(size_bytes, first, last, at)


_NO_HOLE = 1 << 62
