"""What `sweep report` prints.

Invariant: every number is one of the table's.
"""

from __future__ import annotations

from collections import Counter

from ...report.text.explain import align
from .against import Comparison
from .rows import Table, cheapest

_SHOWN = 5


def report_text(table: Table, changes: Comparison | None, deadline_ms: float | None) -> str:
    """Counts, the cheapest targets for all networks, differences."""
    counts = Counter(row.result.outcome.value for row in table.rows)
    ends = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counts.items()))
    lines = [f"{len(table.networks):,} networks on {len(table.targets):,} targets: {ends}"]
    wrong = sum(row.exact is False for row in table.rows)
    if wrong:
        lines.append(f"{wrong:,} NOT exact against their reference")
    lines += _cheapest(table, deadline_ms)
    if changes is not None:
        lines.append(changes.to_text())
    return "\n".join(lines)


def _cheapest(table: Table, deadline_ms: float | None) -> list[str]:
    within = "" if deadline_ms is None else f" at {deadline_ms:g} ms"
    found = cheapest(table, deadline_ms)
    if not found:
        return [f"no target fits all networks{within}"]
    rows = [("SRAM", "flash of all", "slowest, ms", "host calls", "target")]
    for c in found[:_SHOWN]:
        time = "unknown" if c.milliseconds is None else f"{c.milliseconds:.3f}"
        sizes = (f"{c.sram_bytes:,}", f"{c.flash_bytes:,}", time, f"{c.host_operations:,}")
        rows.append((*sizes, c.target))
    more = f", {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    head = f"the cheapest targets that fit all networks{within} (the NPU's time, estimated){more}:"
    return [head, *("  " + row for row in align(rows, right={0, 1, 2, 3}))]
