"""Local search for a lower placement: what stands too high is taken out and put in again, what is in its way makes way.

Invariant: `offsets` are a placement of all items whenever `below` says so. What was learned about items that are hard
to place stays from call to call. Nothing is ever proven here. It is at its best where a complete search drowns: with
hundreds of items that begin and end in different sections, a few per cent above the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .sections import Sections

MOST_MEETINGS = 50_000_000  # of two items in one section: a fraction of a second to list the conflicts
SCALE = 64  # penalty of the lightest item, so that it can fade by small parts
MOST_WEIGHT = 1e6  # of an item, in those of the lightest: sums of penalties stay far below 2**63


class Ejection:
    """The local search over the items of `sections`; imports numpy and numba."""

    def __init__(self, sections: Sections, arrays: Sequence[Any], seed: int) -> None:
        """`arrays`: size, align, cover_at, cover, member_at and member as in `kernel.fill`."""
        import numpy as np

        from .ejection_kernel import conflicts
        from .kernel_parts import chances, compiling

        size, align, cover_at, cover, member_at, member = arrays
        narrow = [array.astype(np.uint32) for array in (cover_at, cover, member_at, member)]
        near, self.compiling_s = compiling(conflicts, *narrow)
        self.graph = (size, align, *narrow[:2], *near)
        # what holds more bytes for longer is harder to place
        weight = np.sqrt(size.astype(np.float64) * np.diff(cover_at))
        self.value = (SCALE * np.minimum(weight / weight.min(), MOST_WEIGHT)).astype(np.int64)
        self.penalty = self.value.copy()
        self.state = chances(seed)
        self.low = np.full(len(size), -1, np.int64)

    @staticmethod
    def usable(sections: Sections) -> bool:
        """Whether there are few enough conflicts to be listed."""
        return sum(len(section) ** 2 for section in sections.members) <= MOST_MEETINGS

    def start_from(self, offsets: Sequence[int]) -> None:
        """Go on from this placement."""
        self.low[:] = offsets

    def below(self, ceiling: int, choices: int) -> tuple[list[int] | None, int]:
        """Offsets with all items under `ceiling` bytes, if found, and the choices made (at most `choices`)."""
        from .ejection_kernel import eject
        from .kernel_parts import compiling

        rest = (self.value, self.penalty, ceiling, choices, self.state, self.low)
        left, seconds = compiling(eject, *self.graph, *rest)
        self.compiling_s += seconds
        return (None if left < 0 else [int(at) for at in self.low]), choices - max(0, int(left))
