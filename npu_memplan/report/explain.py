"""Why a pool is as high as it is: the peak, who is there, and what would lower it.

Invariant: every sentence follows from numbers in the plan (or in the command streams beside
it); advice names the bytes it could win at most, and is left out when that is nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..artifact import Artifact
from ..problem import Agent, Buffer, BufferKind
from .bricks import NpuFindings, npu_findings, npu_labels
from .kinds import ByteKind, kinds_of_bytes
from .memory import PoolView, both, kib, memory_view, percent, point_label

WIDTH = 100  # columns of running text
LARGEST = 10  # buffers listed one by one
BOUNDARY = (BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.STATE)


@dataclass(frozen=True, slots=True)
class Contributor:
    """A buffer that is live at the peak; `idle` when the operation there does not touch it."""

    buffer: str
    kind: str
    size_bytes: int
    offset_bytes: int
    made_by: str
    read_by: tuple[str, ...]
    idle: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that could lower the pool by at most `at_most_bytes`."""

    text: str
    at_most_bytes: int


@dataclass(frozen=True, slots=True)
class PoolPeak:
    """One pool at its fullest point."""

    pool: str
    used_bytes: int
    lower_bound_bytes: int
    capacity_bytes: int | None
    point: int
    operation: str
    does: str  # what the NPU does there, when it is the NPU and its stream is at hand
    agent: str
    live_bytes: int
    contributors: tuple[Contributor, ...]
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True)
class PeakExplanation:
    """Peaks of all pools in use, and the kinds of bytes."""

    name: str
    pools: tuple[PoolPeak, ...]
    kinds: tuple[ByteKind, ...]
    findings: NpuFindings

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

    def to_text(self) -> str:
        """For people."""
        parts = [_pool_text(self.name, pool) for pool in self.pools]
        parts.append(_kinds_text(self.kinds))
        parts.append(findings_text(self.findings))
        return "\n".join(part for part in parts if part)


def explain_peak(artifact: Artifact, directory: Path | None = None) -> PeakExplanation:
    """The peaks of `artifact`; `directory` is where its command streams lie."""
    findings = npu_findings(artifact, directory)
    view = memory_view(artifact.problem, artifact.plan)
    what = npu_labels(artifact, directory)
    pools = tuple(_pool_peak(artifact, pool, findings, what) for pool in view.pools if pool.rectangles)
    return PeakExplanation(artifact.name, pools, kinds_of_bytes(artifact), findings)


def agent_at(artifact: Artifact, point: int) -> str:
    """`NPU`, `host`, or nothing when no call covers `point`."""
    for call in artifact.calls:
        if call.points[0] <= point < call.points[1]:
            return "NPU" if call.agent is Agent.NPU else "host"
    return ""


def _pool_peak(artifact: Artifact, view: PoolView, findings: NpuFindings, what: dict[int, str]) -> PoolPeak:
    point, live_bytes = view.curve.peak
    label = point_label(artifact.problem, point)
    spans = {r.buffer: r for r in view.rectangles if r.first <= point < r.last}
    live = sorted((b for b in artifact.problem.buffers if b.name in spans), key=lambda b: (-b.size_bytes, b.name))
    contributors = tuple(
        Contributor(
            b.name, b.kind.value, b.size_bytes, spans[b.name].low, b.producer, b.consumers,
            idle=label != b.producer and label not in b.consumers,
        )
        for b in live
    )  # fmt: skip
    return PoolPeak(
        pool=view.pool.name,
        used_bytes=view.used_bytes,
        lower_bound_bytes=view.lower_bound_bytes,
        capacity_bytes=view.pool.size_bytes,
        point=point,
        operation=label,
        does=what.get(point, ""),
        agent=agent_at(artifact, point),
        live_bytes=live_bytes,
        contributors=contributors,
        advice=tuple(_advice(artifact, view, live, contributors, findings)),
    )


def _advice(
    artifact: Artifact, view: PoolView, live: list[Buffer], rows: tuple[Contributor, ...], findings: NpuFindings
) -> list[Advice]:
    """What could lower the pool, the largest possible gain first."""
    found: list[Advice] = []
    gap = view.used_bytes - view.lower_bound_bytes
    if gap:
        found.append(Advice("a better placement of the same buffers: --planner optimal, or a larger --time-limit", gap))
    if live:
        top = live[0]
        elsewhere = _peak_without(view, top.name)
        gain = view.used_bytes - max(elsewhere, view.curve.peak[1] - top.size_bytes)
        if elsewhere:
            text = f"a smaller {top.name}: where it does not live, {both(elsewhere)} are live at most"
            found.append(Advice(text, max(0, gain)))
    idle = [r for r in rows if r.idle]
    edge = [r for r in idle if r.kind in {k.value for k in BOUNDARY}]
    inner = [r for r in idle if r.kind not in {k.value for k in BOUNDARY}]
    if edge:
        names = ", ".join(r.buffer for r in edge)
        found.append(
            Advice(
                f"graph inputs, outputs or states that wait at the peak without being used ({names}): "
                "keep them in memory of their own, or another operator order",
                sum(r.size_bytes for r in edge),
            )
        )
    if inner:
        names = ", ".join(r.buffer for r in inner[:3]) + (f" and {len(inner) - 3} more" if len(inner) > 3 else "")
        found.append(
            Advice(
                f"tensors that wait at the peak without being used ({names}): a second pool to spill to, "
                "or another operator order",
                sum(r.size_bytes for r in inner),
            )
        )
    weights = sum(b.size_bytes for b in live if b.kind in (BufferKind.WEIGHTS, BufferKind.CONSTANT))
    if weights:
        remedy = "" if artifact.target.optimise == "Size" else ": --optimise Size"
        found.append(Advice(f"weights that are copied to RAM ahead of use{remedy}", weights))
    scratch = sum(b.size_bytes for b in live if b.kind is BufferKind.HOST_SCRATCH)
    if scratch:
        found.append(Advice("scratch of a host operator", scratch))
    alive = {b.name for b in live}
    bricks = sum(p.lost_bytes for p in findings.paddings if p.buffer in alive)
    if bricks:
        found.append(Advice("channel counts that are multiples of 16: bricks are padded up to them", bricks))
    pair = _pair_without_overlap(artifact, rows)
    if pair:
        found.append(
            Advice(
                f"an output that may lie on its input: {pair[0]} and {pair[1]} may not share bytes here "
                "(proven only for element-wise operations and rows that are already consumed)",
                min(b.size_bytes for b in live if b.name in pair),
            )
        )
    return sorted((a for a in found if a.at_most_bytes > 0), key=lambda a: -a.at_most_bytes)


def _peak_without(view: PoolView, buffer: str) -> int:
    """The most live bytes at points where `buffer` does not live."""
    lives = [(r.first, r.last) for r in view.rectangles if r.buffer == buffer]
    ends = (*view.curve.starts[1:], 1 << 62)
    most = 0
    for start, end, live in zip(view.curve.starts, ends, view.curve.live, strict=True):
        if not any(first <= start and end <= last for first, last in lives):
            most = max(most, live)
    return most


def _pair_without_overlap(artifact: Artifact, rows: tuple[Contributor, ...]) -> tuple[str, str] | None:
    """The largest input and the output of the operation at the peak, when nothing allows them to overlap."""
    point_rows = [r for r in rows if not r.idle]
    made = [r for r in point_rows if r.made_by and r.made_by not in r.read_by]
    for output in made:
        for row in point_rows:
            if row is not output and output.made_by in row.read_by:
                allowed = any({o.first, o.second} == {row.buffer, output.buffer} for o in artifact.problem.overlaps)
                return None if allowed else (row.buffer, output.buffer)
    return None


def _pool_text(name: str, peak: PoolPeak) -> str:
    capacity = ""
    if peak.capacity_bytes is not None:
        left = peak.capacity_bytes - peak.used_bytes
        capacity = f" of {both(peak.capacity_bytes)}, {left:,} free"
    agent = (f" ({peak.does})" if peak.does else "") + (f" on the {peak.agent}" if peak.agent else "")
    lines = textwrap.wrap(f"{name}: pool {peak.pool} is {both(peak.used_bytes)} high{capacity}.", WIDTH)
    sentence = f"Its peak is at point {peak.point}, {peak.operation}{agent}: {both(peak.live_bytes)} are live."
    lines += textwrap.wrap(sentence, WIDTH, break_on_hyphens=False)
    if peak.used_bytes == peak.lower_bound_bytes:
        lines.append("No placement is smaller: the height equals the proven bound.")
    else:
        gap = peak.used_bytes - peak.lower_bound_bytes
        share = percent(gap, peak.lower_bound_bytes)
        lines.append(
            f"The proven bound is {both(peak.lower_bound_bytes)}: the plan is {gap:,} bytes ({share}) above it."
        )
    lines += ["", "Live there:"]
    shown = peak.contributors[:LARGEST]
    rows = [(c.buffer, c.kind, f"{c.size_bytes:,}", kib(c.size_bytes), percent(c.size_bytes, peak.live_bytes),
             "waits" if c.idle else "in use", c.made_by or "the caller") for c in shown]  # fmt: skip
    lines += align([("buffer", "kind", "bytes", "KiB", "share", "there", "made by"), *rows], right={2, 3, 4})
    if len(peak.contributors) > LARGEST:
        rest = peak.contributors[LARGEST:]
        lines.append(f"  and {len(rest)} smaller ones, {both(sum(c.size_bytes for c in rest))}")
    lines += ["", "What would lower it (at most so much each):"]
    if not peak.advice:
        lines.append("  nothing that this plan knows of")
    for advice in peak.advice:
        text = f"{both(advice.at_most_bytes)}: {advice.text}"
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _kinds_text(kinds: tuple[ByteKind, ...]) -> str:
    rows = [
        (k.label, k.memory, "-" if k.size_bytes is None else f"{k.size_bytes:,}",
         "-" if k.size_bytes is None else kib(k.size_bytes), k.meaning) for k in kinds
    ]  # fmt: skip
    return (
        "\n".join(["Kinds of bytes:", *align([("kind", "memory", "bytes", "KiB", "note"), *rows], right={2, 3})]) + "\n"
    )


def findings_text(findings: NpuFindings) -> str:
    """Brick padding and copies, as two paragraphs; empty when there are none."""
    lines: list[str] = []
    if findings.paddings:
        total = sum(p.lost_bytes for p in findings.paddings)
        lines.append(f"Lost to 16-channel bricks: {both(total)} in {len(findings.paddings)} buffers.")
        padded = [
            (
                p.buffer,
                f"{p.channels} channel{'s' * (p.channels > 1)} stored as {p.stored_channels}",
                f"{p.lost_bytes:,}",
                f"of {p.size_bytes:,}",
            )
            for p in findings.paddings[:LARGEST]
        ]
        lines += align(padded, right={2})
        lines.append("")
    kinds: dict[str, list[int]] = {}
    for copy in findings.copies:
        kinds.setdefault(copy.what, []).append(copy.size_bytes)
    if kinds:
        lines.append("Copies that the model did not ask for:")
        rows = [(f"{len(sizes)} x", what, f"{sum(sizes):,} bytes") for what, sizes in sorted(kinds.items())]
        lines += align(rows, right={0, 2})
        lines.append("")
    return "\n".join(lines)


def align(rows: Sequence[tuple[str, ...]], right: set[int]) -> list[str]:
    """Lines with two leading blanks and columns two blanks apart; columns in `right` end together."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
