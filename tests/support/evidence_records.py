"""Records of evidence that lie in the repository: read, and listed in a table of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from npu_memplan.evidence.record import FVP, EvidenceRecord

# Who has no record yet: a runner and what it stands for.
WANTED = (
    ("fvp", "Arm's FVP, Corstone-300, Ethos-U55"),
    ("fvp", "Arm's FVP, Corstone-300, Ethos-U65"),
    ("fvp", "Arm's FVP, Corstone-310 or 315"),
    ("silicon", "any board with an Ethos-U"),
)


def table(records: Sequence[tuple[str, EvidenceRecord]]) -> str:
    """Markdown: a row a record (its file's name with it), then a row for each that is wanted and not there."""
    lines = ["| runner | accelerator | programs | bit-exact | counted by | beats read: counted / estimated | record |"]
    lines.append("|---|---|--:|--:|---|---|---|")
    for name, record in records:
        exact = sum(run.exact is True for run in record.runs)
        version = f"{record.runner} {record.runner_version}".strip()
        lines.append(
            f"| {version} | {record.accelerator} | {len(record.runs)} | {exact} | {record.counted_by} "
            f"| {_beats(record)} | [{name}](records/{name}) |"
        )
    there = {record.runner for _, record in records if record.counted_by == FVP}
    for runner, what in WANTED:
        if runner not in there:
            lines.append(f"| {what} | | | | | | none yet |")
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
