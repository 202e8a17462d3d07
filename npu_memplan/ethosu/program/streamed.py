"""When the caller has to write which rows of a streamed input: the parts of a program between such writes.

Invariant: row y of the input is stored in row `y % kept` of its buffer. Before part k runs, the rows up to `rows` of
feed k are there, and none that it or a later part still reads was overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from .program import NpuOperation


class Feed(NamedTuple):
    """Before operation `operation` runs, the first `rows` rows of the input have been written."""

    operation: int
    rows: int


def feeds(operations: Sequence[NpuOperation], kept: int) -> tuple[Feed, ...]:
    """As few as the `kept` rows allow; none where no operation reads a streamed input."""
    readers = [(i, *o.input_rows) for i, o in enumerate(operations) if o.input_rows[1]]
    unread = list(accumulate((first for _, first, _ in reversed(readers)), min))[::-1]  # from each reader on
    found: list[Feed] = []
    there = 0
    for place, (index, _, stop) in enumerate(readers):
        if stop > there:
            there = _reached([stop for _, _, stop in readers[place:]], unread[place] + kept)
            found.append(Feed(index, there))
    return tuple(found)


def _reached(stops: Sequence[int], room: int) -> int:
    """The rows that the next readers need, as many readers as `room` rows do for; one at least."""
    most = stops[0]
    for stop in stops[1:]:
        if stop > room:
            break
        most = max(most, stop)
    return most


def parts(operations: Sequence[NpuOperation], kept: int) -> tuple[range, ...]:
    """The operations of each part, one a feed."""
    begins = [0, *(feed.operation for feed in feeds(operations, kept)[1:]), len(operations)]
    return tuple(range(first, stop) for first, stop in pairwise(begins))
