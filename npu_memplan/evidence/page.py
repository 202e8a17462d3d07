"""A record as one page.

Invariant: what the page says is what the record has; names are escaped, nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ..report.page.build import Page
from .record import Counters, EvidenceRecord, ProgramRun

_HEADS = (
    "network", "program", "outputs", "cycles", "estimated", "AXI0 read", "estimated", "AXI0 written", "estimated",
    "AXI1 read", "estimated", "waits", "hazards found",
)  # fmt: skip


def page(record: EvidenceRecord) -> str:
    facts = [
        ("counted by", record.counted_by),
        ("runner", f"{record.runner} {record.runner_version}".strip()),
        ("accelerator", f"{record.accelerator} ({record.system_config})"),
        ("board", record.board or "none: in this process"),
        ("reference", record.reference or "none was installed"),
        ("machine", record.machine),
        ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items() if version)),
        ("SHA-256 of the record", record.sha256),
    ]
    rows = "".join(f'<tr><th scope="row">{escape(k)}</th><td>{escape(v)}</td></tr>' for k, v in facts)
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    programs = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(map(_row, record.runs))}</tbody></table>"
    remarks = "".join(f'<p class="quiet">{escape(remark)}</p>' for remark in record.remarks)
    body = (
        f'<section class="panel"><h2>{escape(record.verdict())}</h2><div class="plain"><table><tbody>{rows}</tbody>'
        f"</table></div>{remarks}</section>"
        f'<section class="panel"><h2>Programs</h2><div class="plain">{programs}</div></section>'
        f'<section class="panel"><h2>Digests</h2><div class="plain">{_digests(record.runs)}</div></section>'
    )
    footer = "Estimates are of npu_memplan's model of time. What an emulator counts is that same model."
    return Page(
        title="Evidence",
        heading="Evidence",
        subtitle=escape(f"{record.runner}, {record.accelerator}"),
        body=body,
        footer=footer,
    ).html()


def _row(run: ProgramRun) -> str:
    cells = [verdict_of(run), *_pairs(run.counted, run.estimated)]
    if run.hazards is not None:
        cells += [f"{run.hazards.kernel_waits + run.hazards.dma_waits}", "; ".join(run.hazards.found) or "none"]
    figures_html = "".join(f'<td class="num">{escape(cell)}</td>' for cell in cells)
    return f'<tr><th scope="row">{escape(run.network)}</th><td>{escape(run.program)}</td>{figures_html}</tr>'


def verdict_of(run: ProgramRun) -> str:
    if run.error:
        return run.error.splitlines()[0]
    exact = run.exact
    return "not compared" if exact is None else "bit-exact" if exact else "WRONG"


def _pairs(counted: Counters, estimated: Counters) -> Iterable[str]:
    for name in ("cycles", "axi0_read", "axi0_written", "axi1_read"):
        for counters in (counted, estimated):
            value = getattr(counters, name)
            yield "-" if value is None else f"{value:,}"


def _digests(runs: Iterable[ProgramRun]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(run.network)}</th><td>{escape(run.program)}</td><td>{run.plan_sha256[:16]}</td>'
        f"<td>{run.stream_sha256[:16]}</td><td>{', '.join(o.sha256[:16] for o in run.outputs)}</td></tr>"
        for run in runs
    )
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("network", "program", "plan", "streams", "outputs"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
