"""The memory map in characters: time to the right, address upwards, one letter a kind.

Invariant: a line is never wider than `width` columns, and only ASCII is used, so the map
reads the same in a log file, a serial terminal and a commit message.
"""

from __future__ import annotations

import math

from ...problem import BufferKind, Problem
from ...sizes import kib
from ..colours import KIND_LETTERS
from ..facts.memory import MemoryView, PoolView

FREE = "."
MARGIN = 14  # columns of the address scale


def ascii_map(problem: Problem, view: MemoryView, pool: PoolView, width: int = 80, rows: int = 16) -> list[str]:
    """Lines of the map of one pool: `rows` address rows (highest first), then the time axis."""
    room = width - MARGIN - 1
    end = max(view.end, 1)
    columns = end * (room // end) if room >= end else room  # every point equally wide, where that is possible
    cells = _cells(problem, view, pool, columns, rows)
    lines = []
    for row in range(rows - 1, -1, -1):
        top = pool.used_bytes * (row + 1) / rows
        scale = f"{kib(top):>{MARGIN - 2}} |" if (rows - 1 - row) % 4 == 0 else " " * (MARGIN - 2) + " |"
        lines.append(scale + "".join(cells[row]))
    lines.append(f"{'0':>{MARGIN - 2}} +" + "-" * columns)
    peak, _ = pool.curve.peak
    at = min(columns - 1, int((peak + 0.5) * columns / end))
    lines.append(" " * (MARGIN + at) + "^")
    caption = f"peak at point {peak} of {view.end}"
    lines.append(" " * max(MARGIN, min(MARGIN + at, width - len(caption))) + caption)
    return lines


def legend(problem: Problem) -> str:
    """`I input  n npu_internal ...` for the kinds that occur."""
    present = {b.kind for b in problem.buffers}
    kinds = [f"{letter} {kind.value.replace('_', ' ')}" for kind, letter in KIND_LETTERS.items() if kind in present]
    return "  ".join([*kinds, f"{FREE} free"])


def _cells(problem: Problem, view: MemoryView, pool: PoolView, columns: int, rows: int) -> list[list[str]]:
    """For each cell the letter of the kind that covers most of it; `FREE` when less than half is covered."""
    kinds = {b.name: b.kind for b in problem.buffers}
    per_column, per_row = max(view.end, 1) / columns, max(pool.used_bytes, 1) / rows
    area: list[list[dict[BufferKind, float]]] = [[{} for _ in range(columns)] for _ in range(rows)]
    for r in pool.rectangles:
        kind = kinds[r.buffer]
        for row in range(int(r.low / per_row), min(rows, math.ceil(r.high / per_row))):
            tall = min(r.high, (row + 1) * per_row) - max(r.low, row * per_row)
            for column in range(int(r.first / per_column), min(columns, math.ceil(r.last / per_column))):
                wide = min(r.last, (column + 1) * per_column) - max(r.first, column * per_column)
                if wide > 0 and tall > 0:
                    cell = area[row][column]
                    cell[kind] = cell.get(kind, 0.0) + wide * tall
    half = per_column * per_row / 2
    return [
        [KIND_LETTERS[max(cell, key=lambda k: cell[k])] if sum(cell.values()) >= half else FREE for cell in line]
        for line in area
    ]
