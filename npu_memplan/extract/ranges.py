"""Sets of bytes as sorted disjoint half-open ranges.

Invariant: ranges of a set are ascending, not empty and do not touch each other.
"""

from __future__ import annotations

Ranges = tuple[tuple[int, int], ...]


def union(a: Ranges, b: Ranges) -> Ranges:
    """Bytes in `a` or `b`."""
    if not a or a == b:
        return b
    if not b:
        return a
    merged: list[tuple[int, int]] = []
    for start, stop in sorted((*a, *b)):
        if merged and start <= merged[-1][1]:
            if stop > merged[-1][1]:
                merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return tuple(merged)


def subtract(a: Ranges, b: Ranges) -> Ranges:
    """Bytes in `a` that are not in `b`."""
    if not b:
        return a
    rest: list[tuple[int, int]] = []
    position = 0  # both are ascending, so one walk over b serves all of a
    for start, stop in a:
        while position < len(b) and b[position][1] <= start:
            position += 1
        behind = position
        while behind < len(b) and b[behind][0] < stop:
            low, high = b[behind]
            if low > start:
                rest.append((start, low))
            start = max(start, high)
            behind += 1
        if start < stop:
            rest.append((start, stop))
    return tuple(rest)


def gather(pieces: list[tuple[int, int]]) -> Ranges:
    """The set of bytes of `pieces`, which may be empty, unsorted and overlapping."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(p for p in pieces if p[0] < p[1]):
        if merged and start <= merged[-1][1]:
            if stop > merged[-1][1]:
                merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return tuple(merged)
