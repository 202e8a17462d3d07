"""At which distances the output of some operations may lie over an input that they still read.

Invariant: at a returned distance no operation writes a byte of the input that itself or a later operation
reads - except operations that are proven to work in place there, element by element.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    highest = int((remaining[:, 0] - high).min())
    lowest = int((remaining[:, 1] - low).max())
    below, above = highest + new_bytes, old_bytes - lowest  # bytes of the new buffer that may lie over the old one
    if max(below, above) <= 0:
        return None
    return (None, highest) if below >= above else (lowest, None)


def shared_bytes(lowest: int | None, highest: int | None, old_bytes: int, new_bytes: int, alignment: int) -> int:
    """Most bytes that two buffers may share at aligned distances from `lowest` to `highest`, one of which is open."""
    if highest is not None:
        at = min(highest // alignment * alignment, max(0, old_bytes - new_bytes))
    else:
        assert lowest is not None
        at = max(-(-lowest // alignment) * alignment, min(0, old_bytes - new_bytes))
    return min(old_bytes, at + new_bytes) - max(0, at)
