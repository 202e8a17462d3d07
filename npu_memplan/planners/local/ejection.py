"""Local search for a lower placement: what is too high is taken out and put in again, what is in its way makes way.

Invariant: `offsets` are a placement of all items whenever `below` says so. What was learned about items that are hard
to place stays from call to call. Nothing is ever proven here.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from math import sqrt

from ...compiled import Struct, chances, compiled, int32s, int64s, structure, verdict
from ..exact.sections import Sections

MOST_MEETINGS = 50_000_000  # of two items in one section: a fraction of a second to list the conflicts
SCALE = 64  # penalty of the lightest item, so that it can fade by small parts
MOST_WEIGHT = 1e6  # of an item, in those of the lightest: sums of penalties stay far below 2**63


_Memory = structure("planners/local/eject.h", "Memory")


class Ejection:
    """The local search over the items of `sections`."""

    def __init__(self, sections: Sections, graph: Struct, seed: int) -> None:
        """`graph`: of these sections."""
        self.graph = graph
        count = len(sections.sizes)
        near_at, near = int32s([0]) * (count + 1), int32s([])
        found = self._conflicts(near_at, None)
        near = int32s([0]) * found
        self._conflicts(near_at, near)
        # what holds more bytes for longer is harder to place
        weight = [sqrt(size * len(cover)) for size, cover in zip(sections.sizes, sections.covers, strict=True)]
        lightest = min(weight)
        value = [int(SCALE * min(w / lightest, MOST_WEIGHT)) for w in weight]
        self.low = int64s([-1]) * count
        self.memory = _Memory(
            near_at=near_at, near=near, value=int64s(value), penalty=int64s(value), chance=chances(seed), low=self.low
        )

    def _conflicts(self, near_at: array[int], near: array[int] | None) -> int:
        where = None if near is None else ctypes.c_void_p(near.buffer_info()[0])
        call = compiled().functions.npu_memplan_conflicts
        return verdict(call(ctypes.byref(self.graph), ctypes.c_void_p(near_at.buffer_info()[0]), where))

    @staticmethod
    def usable(sections: Sections) -> bool:
        """Whether there are few enough conflicts to be listed."""
        return sum(len(section) ** 2 for section in sections.members) <= MOST_MEETINGS

    def start_from(self, offsets: Sequence[int]) -> None:
        """Go on from this placement."""
        self.low[:] = int64s(offsets)

    def below(self, ceiling: int, choices: int) -> tuple[list[int] | None, int]:
        """Offsets with all items under `ceiling` bytes, if found, and the choices made (at most `choices`)."""
        call = compiled().functions.npu_memplan_eject
        limits = ctypes.c_int64(ceiling), ctypes.c_int64(choices)
        left = verdict(call(ctypes.byref(self.graph), ctypes.byref(self.memory), *limits))
        return (None if left < 0 else list(self.low)), choices - max(0, left)
