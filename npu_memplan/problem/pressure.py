"""How many bytes of a problem are live at each point.

Invariant: no plan without overlaps needs less than the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Buffer, Problem
from .spans import merged


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
        for first, last in merged(life for b in members for life in b.lifetimes):
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
