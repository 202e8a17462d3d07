"""sweep.html: networks and targets as a matrix, with filters.

Invariant: numbers are the table's, in columns and with texts written once, so that 10,000 results stay small. Only the
cells and rows in sight are drawn.
"""

from __future__ import annotations

from html import escape
from typing import Any

from ...report.page.build import Page, asset
from ...sizes import counted
from .against import Comparison
from .rows import Table

_FIGURES = {  # what the page's script calls columns of the table
    "sram": "sram_bytes", "ram": "ram_bytes", "flash": "flash_bytes", "cycles": "npu_cycles", "ms": "npu_ms",
    "host_ms": "host_ms_rough", "npu": "npu_operations", "host": "host_operations", "plan": "plan",
    "inexact": "inexact_operators",
}  # fmt: skip
_SECTIONS = (("matrix", "Matrix"), ("changes", "Changes"), ("cheapest", "Cheapest"), ("results", "Results"))
SCRIPTS = ("base.js", "datatable.js", "chart.js", "sweep_model.js", "sweep_grid.js", "sweep_app.js")


def html_page(table: Table, changes: Comparison | None = None, deadline_ms: float | None = None) -> str:
    """The text of sweep.html; `deadline_ms` is what its question for the cheapest target starts with."""
    return Page(
        title=f"Sweep: {counted(len(table.networks), 'network')}, {counted(len(table.targets), 'target')}",
        heading="Sweep",
        subtitle=escape(", ".join(f"{name} {version}" for name, version in table.versions.items())),
        body=asset("sweep.html"),
        footer="Sizes are bytes; cycles and milliseconds are estimates, to compare with, not a prediction.",
        sections=_SECTIONS,
        styles=("sweep.css",),
        scripts=SCRIPTS,
        data=page_data(table, changes, deadline_ms),
    ).html()


def page_data(table: Table, changes: Comparison | None, deadline_ms: float | None) -> dict[str, Any]:
    networks = {name: i for i, name in enumerate(table.networks)}
    targets = {name: i for i, name in enumerate(table.targets)}
    fronts = {name: frozenset(front) for name, front in table.fronts.items()}
    outcomes = {outcome: i for i, outcome in enumerate(dict.fromkeys(row.result.outcome for row in table.rows))}
    texts = {"": 0}
    rows = table.rows
    values = [row.values() for row in rows]
    return {
        "networks": list(networks),
        "targets": [
            {"name": name, "accelerator": found[0].label.accelerator, "multipliers": found[0].multipliers}
            for name, found in table.by_target.items()
        ],
        "target_index": targets,
        "outcomes": [outcome.value for outcome in outcomes],
        "deadline": deadline_ms,
        "against": None if changes is None else changes.to_dict(),
        "rows": {
            "network": [networks[row.label.network] for row in rows],
            "target": [targets[row.label.target] for row in rows],
            "outcome": [outcomes[row.result.outcome] for row in rows],
            **{short: [v[column] for v in values] for short, column in _FIGURES.items()},
            "exact": [row.exact for row in rows],
            "exactness": [texts.setdefault(row.exactness, len(texts)) for row in rows],
            "reason": [
                texts.setdefault("; ".join(str(v[name]) for name in ("reason", "incidents") if v[name]), len(texts))
                for v in values
            ],
            "front": [int(row.label.target in fronts[row.label.network]) for row in rows],
        },
        "texts": list(texts),
    }
