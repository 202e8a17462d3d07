"""At which distances the output of some operations may lie over an input that they still read.

Invariant: at a returned distance no operation writes a byte of the input that itself or a later operation
reads - except operations that are proven to work in place there, element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]  # first byte and one past the last
NOTHING: Span = (1 << 62, -(1 << 62))  # no byte at all: neutral for the least and the greatest


@dataclass(frozen=True, slots=True)
class Use:
    """What one operation does with a dying buffer and with the one that is born meanwhile."""

    reads: Span | None  # of the dying buffer
    writes: Span | None  # of the new one
    in_place: int | None = None  # distance at which it may write over what it reads itself


def distances(uses: Sequence[Use], old_bytes: int, new_bytes: int) -> tuple[int | None, int | None] | None:
    """`lowest, highest` of offset(new buffer) - offset(dying buffer), of which one may be open; None: apart.

    `uses` are in program order, the first one writes; the sizes are those of the dying and the new buffer. In place,
    where all operations agree, is one distance. Else the new buffer may trail what has been read: below it when the
    operations go towards higher addresses, above it when they go down.
    """
    agreed = {use.in_place for use in uses if use.writes}
    reads = np.array([use.reads or NOTHING for use in uses], np.int64)
    writes = np.array([use.writes or NOTHING for use in uses], np.int64)
    return span_distances(reads, writes, agreed.pop() if len(agreed) == 1 else None, old_bytes, new_bytes)


def span_distances(
    reads: NDArray[np.int64], writes: NDArray[np.int64], in_place: int | None, old_bytes: int, new_bytes: int
) -> tuple[int | None, int | None] | None:
    """The same of one span a row, `NOTHING` for none; `in_place` is what all that write agree on."""
    # bytes from the first to the last that an operation or a later one reads
    first = np.minimum.accumulate(reads[::-1, 0])[::-1]
    stop = np.maximum.accumulate(reads[::-1, 1])[::-1]
    wrote = np.flatnonzero(writes[:, 1] > writes[:, 0])
    low, high = writes[wrote, 0], writes[wrote, 1]
    if in_place is not None:
        later_first = np.append(first[1:], NOTHING[0])[wrote]
        later_stop = np.append(stop[1:], NOTHING[1])[wrote]
        if np.all((high + in_place <= later_first) | (low + in_place >= later_stop)):
            return in_place, in_place
    highest = int((first[wrote] - high).min())
    lowest = int((stop[wrote] - low).max())
    below, above = highest + new_bytes, old_bytes - lowest  # bytes of the new buffer that may lie over the old one
    if max(below, above) <= 0:
        return None
    return (None, highest) if below >= above else (lowest, None)
