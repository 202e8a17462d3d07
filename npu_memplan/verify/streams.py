"""Is every row of a streamed input in its buffer when it is read?

Invariant: shares no code with what made the stream; it follows the rows that the caller has written, point by point. A
row is there from the feed that brings it until the feed that brings the row that takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..problem import BufferAccess, Problem, RowStream

StreamFault = tuple[int, str]  # a point, and what is wrong there


def stream_faults(problem: Problem, stream: RowStream) -> Iterator[StreamFault]:
    """Everything that is wrong with `stream`, in words that begin with what the program does there."""
    buffer = problem.buffer(stream.buffer)
    kept = buffer.size_bytes // stream.row_bytes
    last = max((fed.point for fed in stream.feeds), default=0)
    if not any(life.first <= 0 and last < life.last for life in buffer.lifetimes):
        yield last, f"is fed rows until point {last}, so it has to live from the first point until then"
    known = {read.point: (read.first, read.stop) for read in stream.reads}
    for history in (history for history in problem.accesses if history.buffer == stream.buffer):
        if history.writes:
            yield history.writes[0].point, "is written by the program, but its rows are the caller's"
        for access in history.reads:
            first, stop = known.get(access.point, (0, 0))
            there = max((fed.rows for fed in stream.feeds if fed.point <= access.point), default=0)
            start = f"is read in rows [{first}, {stop}) when"
            if stop > there:
                yield access.point, f"{start} the caller has written {there} of its {stream.rows}"
            elif first < there - kept:
                yield access.point, f"{start} it holds the rows [{there - kept}, {there})"
            elif not _touched_rows(access, stream.row_bytes, buffer.size_bytes) <= {
                row % kept for row in range(first, stop)
            }:
                yield access.point, f"{start} the bytes that are read are of other rows"


def _touched_rows(access: BufferAccess, row_bytes: int, size_bytes: int) -> set[int]:
    """The rows of the buffer in which an access has bytes."""
    if not access.runs:
        return set(range(size_bytes // row_bytes))
    found: set[int] = set()
    for run in access.runs:
        for piece in range(run.pieces):
            start = run.start + piece * run.stride
            found.update(range(start // row_bytes, (start + run.size - 1) // row_bytes + 1))
    return found
