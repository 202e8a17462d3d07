"""Whether memories keep their rate in an estimate."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from npu_memplan.ethosu.time.timeline import Slot


def excess_cycles(slots: Iterable[Slot]) -> float:
    """The most that operations inside a window need of one memory above the window's length; 0: every one has it."""
    used: dict[str, list[tuple[float, float, float]]] = {}
    for slot in slots:
        for memory, occupied, _ in slot.resource_use.traffic.memories:
            used.setdefault(memory, []).append((slot.requested, slot.stop, occupied))
    most = 0.0
    for rows in used.values():
        begin, end, occupied = np.array(rows).T
        for first in np.unique(begin):
            inside = begin >= first
            order = np.argsort(end[inside], kind="stable")
            needed = np.cumsum(occupied[inside][order])
            most = max(most, float((needed - (end[inside][order] - first)).max()))
    return most
