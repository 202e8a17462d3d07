"""Free bytes of one pool over the operations of a program, as the compiled search takes them.

Invariant: a byte that something occupies at an operation is not free there; ranges end on multiples of `grain`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """How many bytes are free below `limit_bytes`, in multiples of `grain`, wherever they are: for copies that
    are planned together with everything else. `used`: bytes at each operation.
    """

    placed = False  # whether a copy has its place: around `held`, what is where, by where it starts

    def __init__(self, held: Sequence[OccupiedRange], limit_bytes: int, operations: int, grain: int = 16) -> None:
        self.limit_bytes, self.grain = limit_bytes - limit_bytes % grain, grain
        self.used: NDArray[np.int64] = np.zeros(operations, np.int64)
        reach = np.zeros(operations, np.int64)  # where what was added up so far ends, at each operation
        ordered = sorted(held, key=lambda h: (h.start, h.stop))
        for h in ordered:
            alive = slice(h.first, h.last + 1)
            self.used[alive] += np.maximum(0, h.stop - np.maximum(h.start, reach[alive]))
            np.maximum(reach[alive], h.stop, out=reach[alive])
        rows = [[h.first, h.last, h.start, h.stop + -h.stop % grain] for h in ordered if self.placed]
        self.held: NDArray[np.int64] = np.array(rows, np.int64).reshape(-1, 4)


class FreeRanges(FreeCapacity):
    """The same with places, around what has its own."""

    placed = True
