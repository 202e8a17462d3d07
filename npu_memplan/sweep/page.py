"""sweep.html: a plot and tables of networks and targets.

Invariant: numbers are the table's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..report.page.tables import PageTable, Plot, tables_page
from ..sizes import counted
from .table import Difference, Table, cheapest


def html_page(table: Table, changes: Sequence[Difference] | None = None, deadline_ms: float | None = None) -> str:
    """The text of sweep.html; `deadline_ms` is what the cheapest target has to keep."""
    within = "" if deadline_ms is None else f" at {deadline_ms:g} ms each"
    fits_all = PageTable(
        f"Targets that fit all networks{within}, the cheapest first",
        ("target", "multipliers", "SRAM bytes", "RAM bytes", "flash bytes", "slowest, ms", "host calls"),
        [(c.target, c.multipliers, c.sram_bytes, c.ram_bytes, c.flash_bytes, c.milliseconds, c.host_operations)
         for c in cheapest(table, deadline_ms)],
    )  # fmt: skip
    results = PageTable(
        "Results",
        ("network", "target", "outcome", "on its front", "SRAM bytes", "RAM bytes", "flash bytes", "NPU cycles",
         "NPU ms", "host ms, rough", "host calls", "plan", "exactness", "reason"),
        [(row.label.network, row.label.target, row.result.outcome.value,
          "yes" if row.label.target in table.fronts[row.label.network] else "", row.sram_bytes, row.ram_bytes,
          row.flash_bytes, row.result.cycles, row.milliseconds, row.host_milliseconds,
          row.result.host_operations if row.fits else None, row.result.plan, row.exactness,
          "; ".join(filter(None, (row.result.reason, *row.result.incidents))))
         for row in table.rows],
    )  # fmt: skip
    against = PageTable(
        "Against the earlier sweep",
        ("network", "target", "figure", "before", "after", "is"),
        [(c.network, c.target, c.what, c.before, c.after, "worse" if c.worse else "better") for c in changes or ()],
    )
    marks = [
        (row.sram_bytes, row.milliseconds, "point", "", f"{row.label.network} on {row.label.target}")
        for row in table.rows
        if row.fits and row.sram_bytes and row.milliseconds
    ]
    return tables_page(
        title=f"Sweep: {counted(len(table.networks), 'network')}, {counted(len(table.targets), 'target')}",
        subtitle=", ".join(f"{name} {version}" for name, version in table.versions.items()),
        plots=[Plot("Memory and time", "SRAM bytes", "estimated NPU ms", marks)] if marks else [],
        tables=[*([against] if changes is not None else []), fits_all, results],
        footer="Sizes are bytes; cycles and milliseconds are estimates, to compare with, not a prediction. A front has "
        "the targets that no other one beats in multipliers, SRAM, all RAM, estimated time and host calls.",
    )
