"""Sets of integers (bytes, points of time) as sorted disjoint half-open spans.

Invariant: the spans of a set are ascending, not empty and do not touch each other.
"""

from __future__ import annotations

from collections.abc import Iterable

Spans = tuple[tuple[int, int], ...]


def merged(pieces: Iterable[tuple[int, int]]) -> Spans:
    """The set of all `pieces`, which may be empty, unsorted and overlapping."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(pieces):
        if found and start <= found[-1][1]:
            if stop > found[-1][1]:
                found[-1] = (found[-1][0], stop)
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def union(a: Spans, b: Spans) -> Spans:
    """What is in `a` or `b`."""
    if not a or a == b:
        return b
    return merged((*a, *b)) if b else a


def subtract(a: Spans, b: Spans) -> Spans:
    """What is in `a` and not in `b`."""
    if a == b:
        return ()
    if not b:
        return a
    rest: list[tuple[int, int]] = []
    position = 0  # both are ascending, so one walk over b serves all of a
    for start, stop in a:
        while position < len(b) and b[position][1] <= start:
            position += 1
        after = position
        while after < len(b) and b[after][0] < stop:
            low, high = b[after]
            if low > start:
                rest.append((start, low))
            start = max(start, high)
            after += 1
        if start < stop:
            rest.append((start, stop))
    return tuple(rest)


def covered(spans: Spans) -> int:
    """How many integers there are."""
    return sum(stop - start for start, stop in spans)


def runs_of(spans: Spans) -> list[tuple[int, int, int, int]]:
    """`spans` with those of one size and distance as one: first byte, size, how many there are, distance."""
    found: list[tuple[int, int, int, int]] = []
    start, size, count, stride, end = 0, 0, 0, 0, 0
    for low, high in spans:
        if count and high - low == size and (count == 1 or low - end == stride):
            stride, end, count = low - end, low, count + 1
            continue
        if count:
            found.append((start, size, count, stride))
        start, size, count, stride, end = low, high - low, 1, 0, low
    if count:
        found.append((start, size, count, stride))
    return found
