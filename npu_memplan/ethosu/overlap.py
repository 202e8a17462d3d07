"""At which distances the output of some operations may lie over an input that they still read.

Invariant: at a returned distance no operation writes a byte of the input that itself or a later operation
reads - except operations that are proven to work in place there, element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # first byte and one past the last


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
    first, stop = 1 << 62, -(1 << 62)
    unread: list[Span] = [(first, stop)]  # bytes from the first to the last that a later operation reads
    for use in reversed(uses):
        if use.reads:
            first, stop = min(first, use.reads[0]), max(stop, use.reads[1])
        unread.append((first, stop))
    unread.reverse()
    exact = uses[0].in_place
    if exact is not None and all(
        use.in_place == exact and (use.writes[1] + exact <= later[0] or use.writes[0] + exact >= later[1])
        for use, later in zip(uses, unread[1:], strict=True)
        if use.writes
    ):
        return exact, exact
    writes = [(use.writes, now) for use, now in zip(uses, unread, strict=False) if use.writes]
    highest = min(now[0] - span[1] for span, now in writes)
    lowest = max(now[1] - span[0] for span, now in writes)
    below, above = highest + new_bytes, old_bytes - lowest  # bytes of the new buffer that may lie over the old one
    if max(below, above) <= 0:
        return None
    return (None, highest) if below >= above else (lowest, None)
