"""Columns of plain text.

Invariant: no line ends in a blank.
"""

from __future__ import annotations

from collections.abc import Sequence


def align_rows(rows: Sequence[tuple[str, ...]], right: set[int]) -> list[str]:
    """Lines with two leading blanks and columns two blanks apart; columns in `right` end together."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
