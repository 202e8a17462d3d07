"""compare.html: two compiled programs as tables.

Invariant: every number is one of `diff`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...artifact import Artifact
from ..facts.npu_work import WorkChange, by_kind
from ..text.diff import PlanDiff
from .tables import Cell, PageTable, tables_page

if TYPE_CHECKING:
    pass


def compare_page(before: Artifact, after: Artifact, changes: PlanDiff) -> str:
    """The text of compare.html; `changes` is the `diff` of the two."""
    first, second = _short_names(changes.names)
    numbers = [
        (
            c.what,
            c.unit,
            c.before,
            c.after,
            c.difference_bytes,
            100 * c.difference_bytes / c.before if c.before else None,
        )
        for c in changes.sizes
    ]
    heads = ("operation", "output", f"{first}: count", "cycles", f"{second}: count", "cycles", "change")
    by_size = [_work_row(change) for change in changes.work if change.output]
    title = before.name if before.name == after.name else f"{before.name} and {after.name}"
    tables = [
        PageTable("Numbers", ("", "unit", first, second, "change", "change, %"), numbers),
        PageTable("Options that differ", ("option", first, second), changes.options),
        PageTable(
            "The NPU's work",
            heads,
            [_work_row(change) for change in by_kind(changes.work)],
            "Estimated cycles by which operations make the inference longer; they add up to the estimate.",
        ),
        PageTable("The NPU's work by size of the output", heads, by_size),
        PageTable("Buffers", ("buffer", "is", "how"), [(b.buffer, b.what, b.detail) for b in changes.buffers]),
    ]
    return tables_page(
        f"{title} - two memory plans",
        " and ".join(changes.names),
        [],
        [table for table in tables if table.rows],
        "Sizes are bytes; cycles are estimates of the NPU model, to compare plans with, not a prediction.",
    )


def _short_names(names: tuple[str, str]) -> tuple[str, str]:
    """The last parts of two paths, or all of them where these are equal."""
    first, second = (Path(name).name or name for name in names)
    if first != second:
        return first, second
    return names if names[0] != names[1] else (f"{first} (1)", f"{second} (2)")


def _work_row(change: WorkChange) -> tuple[Cell, ...]:
    sides = [(w.count, w.cycles) if w.count else (None, None) for w in (change.before, change.after)]
    return (change.kind, change.output, *sides[0], *sides[1], change.cycle_change)
