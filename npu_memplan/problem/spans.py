"""Sets of integers (bytes, points of time) as sorted disjoint half-open spans, and the bytes that are live at each
point.

Invariant: the spans of a set are ascending, not empty and do not touch each other; no plan without overlaps needs less
than the peak of the live bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .model import Buffer, Problem

Spans = tuple[tuple[int, int], ...]


def merge_spans(pieces: Iterable[tuple[int, int]]) -> Spans:
    """The set of all `pieces`, which may be empty, unsorted and overlapping."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(pieces):
        if found and start <= found[-1][1]:
            if stop > found[-1][1]:
                found[-1] = (found[-1][0], stop)
        elif start < stop:
            found.append((start, stop))
    return tuple(found)


def unite_spans(a: Spans, b: Spans) -> Spans:
    """The integers in `a` or `b`."""
    if not a or a == b:
        return b
    return merge_spans((*a, *b)) if b else a


def subtract_spans(a: Spans, b: Spans) -> Spans:
    """The integers in `a` that are not in `b`."""
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


def count_covered(spans: Spans) -> int:
    """The number of integers in a set."""
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


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """Bytes live at every point, the highest of them, and where it is first reached."""

    peak_bytes: int
    peak_point: int
    peak_label: str
    bytes_at: tuple[int, ...]
    buffers: tuple[str, ...]  # live at the peak, largest first


def pressure_of(found: Problem) -> MemoryPressure:
    """Bytes live at each point; buffers that share a placement count once."""
    group = {name: g.name for g in found.aliases for name, _ in g.members}
    change = [0] * (len(found.points) + 1)
    together: dict[str, list[Buffer]] = {}
    for buffer in found.buffers:
        together.setdefault(group.get(buffer.name, buffer.name), []).append(buffer)
    for members in together.values():
        size = max(b.size_bytes for b in members)
        for first, last in merge_spans(life for b in members for life in b.lifetimes):
            change[first] += size
            change[last] -= size
    levels, level = [], 0
    for step in change[:-1]:
        level += step
        levels.append(level)
    peak = max(levels, default=0)
    point = levels.index(peak) if levels else 0
    live = [b for b in found.buffers if b.lives_at(point)]
    live.sort(key=lambda b: (-b.size_bytes, b.name))
    label = found.points[point] if found.points else ""
    return MemoryPressure(peak, point, label, tuple(levels), tuple(b.name for b in live))
