"""A record as one page.

Invariant: what the page says is what the record has.
"""

from __future__ import annotations

from ..report.page.tables import Cell, PageTable, tables_page
from .record import EvidenceRecord, ProgramRun

_COLUMNS = (
    "network", "program", "outputs", "cycles", "estimated", "AXI0 read", "estimated", "AXI0 written", "estimated",
    "AXI1 read", "estimated", "waits", "hazards found",
)  # fmt: skip


def page(record: EvidenceRecord) -> str:
    """The text of evidence.html."""
    facts = [
        ("counted by", record.counted_by),
        ("runner", f"{record.runner} {record.runner_version}".strip()),
        ("accelerator", f"{record.accelerator} ({record.system_config})"),
        ("board", record.board or "none: in this process"),
        ("reference", record.reference or "none was installed"),
        ("machine", record.machine),
        ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items() if version)),
        ("SHA-256 of the record", record.sha256),
        *(("remark", remark) for remark in record.remarks),
    ]
    digests = [
        (run.network, run.program, run.plan_sha256[:16], run.stream_sha256[:16],
         ", ".join(o.sha256[:16] for o in run.outputs))
        for run in record.runs
    ]  # fmt: skip
    return tables_page(
        "Evidence",
        f"{record.runner}, {record.accelerator}: {record.verdict()}",
        [],
        [
            PageTable("Record", ("what", "is"), facts),
            PageTable("Programs", _COLUMNS, [_row(run) for run in record.runs]),
            PageTable("Digests", ("network", "program", "plan", "streams", "outputs"), digests),
        ],
        "Estimates are of npu_memplan's model of time. What an emulator counts is that same model.",
    )


def _row(run: ProgramRun) -> tuple[Cell, ...]:
    names = ("cycles", "axi0_read", "axi0_written", "axi1_read")
    figures = [getattr(counters, name) for name in names for counters in (run.counted, run.estimated)]
    hazards = run.hazards
    waits = None if hazards is None else hazards.kernel_waits + hazards.dma_waits
    found = None if hazards is None else "; ".join(hazards.found) or "none"
    return (run.network, run.program, verdict_of(run), *figures, waits, found)


def verdict_of(run: ProgramRun) -> str:
    if run.error:
        return run.error.splitlines()[0]
    exact = run.exact
    return "not compared" if exact is None else "bit-exact" if exact else "WRONG"
