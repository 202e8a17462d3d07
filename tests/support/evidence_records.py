"""Rows of the table in docs/evidence.md, of records that were sent."""

from __future__ import annotations

from collections.abc import Sequence

from npu_memplan.evidence.record import FVP, EvidenceRecord


def table(records: Sequence[EvidenceRecord]) -> str:
    """Markdown: a row a record."""
    lines = ["| runner | accelerator | programs | bit-exact | counted by | beats read: counted / estimated |"]
    lines.append("|---|---|--:|--:|---|---|")
    for record in records:
        exact = sum(run.exact is True for run in record.runs)
        version = f"{record.runner} {record.runner_version}".strip()
        lines.append(
            f"| {version} | {record.accelerator} | {len(record.runs)} | {exact} | {record.counted_by} "
            f"| {_beats(record)} |"
        )
    return "\n".join(lines) + "\n"


def _beats(record: EvidenceRecord) -> str:
    if record.counted_by != FVP:
        return "the same model"
    ratios = [
        getattr(run.counted, name) / getattr(run.estimated, name)
        for run in record.runs
        for name in ("axi0_read", "axi1_read")
        if getattr(run.counted, name) and getattr(run.estimated, name)
    ]
    return f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else "-"
