"""Why a pool is as high as it is: the peak, what is there, and what would lower it.

Invariant: every sentence follows from numbers in the plan (or in the command streams next to
it); advice names the bytes it could win at most, and is left out when that is nothing.
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...artifact import Artifact
from ...knobs import knobs
from ...problem import Agent
from ...sizes import both, kib, percent
from ...text_table import align
from ..facts.bricks import NpuFindings, npu_findings, npu_labels
from ..facts.dearest import DEAREST_HEADING, OperatorTime, dearest_lines, operator_times
from ..facts.kinds import ByteKind, kinds_of_bytes
from ..facts.memory import PoolView, memory_view, placed_at, point_label
from .advice import Advice, advice

WIDTH = 100  # columns of running text
LARGEST = 10  # buffers listed one by one


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
    knobs: tuple[tuple[str, str], ...]  # flags of another compile, and what they do


@dataclass(frozen=True, slots=True)
class PeakExplanation:
    """Peaks of all pools in use, and the kinds of bytes."""

    name: str
    pools: tuple[PoolPeak, ...]
    kinds: tuple[ByteKind, ...]
    findings: NpuFindings
    times: tuple[OperatorTime, ...] = ()  # of all operators, the dearest first
    times_text: str = ""

    def to_dict(self) -> dict[str, Any]:
        times = [{**asdict(time), "agent": time.agent.value} for time in self.times]
        return {**{key: value for key, value in asdict(self).items() if key != "times_text"}, "times": times}

    def to_text(self) -> str:
        parts = [_pool_text(self.name, pool) for pool in self.pools]
        parts += [_kinds_text(self.kinds), findings_text(self.findings), self.times_text]
        return "\n".join(part for part in parts if part)


def explain_peak(artifact: Artifact, directory: Path | None = None) -> PeakExplanation:
    """The peaks of `artifact`; `directory` is where its command streams are."""
    findings = npu_findings(artifact, directory)
    view = memory_view(artifact.problem, artifact.plan)
    what = npu_labels(artifact, directory)
    pools = tuple(_pool_peak(artifact, pool, findings, what) for pool in view.pools if pool.rectangles)
    lines = dearest_lines(artifact)
    text = "\n".join([f"{DEAREST_HEADING}:", *lines]) + "\n" if lines else ""
    return PeakExplanation(artifact.name, pools, kinds_of_bytes(artifact), findings, operator_times(artifact), text)


def _pool_peak(artifact: Artifact, view: PoolView, findings: NpuFindings, what: dict[int, str]) -> PoolPeak:
    point, live_bytes = view.curve.peak
    label = point_label(artifact.problem, point)
    live = placed_at(artifact.problem, artifact.plan, view.pool.name, point)
    offsets = [artifact.plan.placement(b.name).offset_bytes for b in live]
    idle = {b.name: b for b in live if label not in (b.producer, *b.consumers)}
    contributors = tuple(
        Contributor(b.name, b.kind.value, b.size_bytes, offset, b.producer, b.consumers, b.name in idle)
        for b, offset in zip(live, offsets, strict=True)
    )
    agents = (call.agent for call in artifact.calls if call.points[0] <= point < call.points[1])
    return PoolPeak(
        knobs=_knobs(artifact, view),
        pool=view.pool.name,
        used_bytes=view.used_bytes,
        lower_bound_bytes=view.lower_bound_bytes,
        capacity_bytes=view.pool.size_bytes,
        point=point,
        operation=label,
        does=what.get(point, ""),
        agent={Agent.NPU: "NPU", Agent.HOST: "host", None: ""}[next(agents, None)],
        live_bytes=live_bytes,
        contributors=contributors,
        advice=advice(artifact, view, live, tuple(idle.values()), findings),
    )


def _knobs(artifact: Artifact, view: PoolView) -> tuple[tuple[str, str], ...]:
    """Options for another compile of the model; nothing where there is no model."""
    if not artifact.operators:
        return ()
    budget = view.pool.size_bytes or view.used_bytes * 3 // 4
    proven = view.used_bytes == view.lower_bound_bytes
    able = knobs(artifact.target, budget, artifact.source, searched=proven)
    return tuple((knob.flags(artifact.target, budget), knob.does) for knob in able)


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
        over = f"{gap:,} bytes ({percent(gap, peak.lower_bound_bytes)})"
        lines.append(f"The proven bound is {both(peak.lower_bound_bytes)}: the plan is {over} above it.")
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
        lines.append("  nothing that this plan holds")
    for a in peak.advice:
        text = f"{both(a.at_most_bytes)}: {a.text}"
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    if peak.knobs:
        lines += ["", f"Options for another compile (--fit {peak.pool}=SIZE tries all of it):"]
        lines += align(peak.knobs, right=set())
    return "\n".join(lines) + "\n"


def _kinds_text(kinds: tuple[ByteKind, ...]) -> str:
    rows = [("kind", "memory", "bytes", "KiB", "note")]
    for k in kinds:
        sizes = ("-", "-") if k.size_bytes is None else (f"{k.size_bytes:,}", kib(k.size_bytes))
        rows.append((k.label, k.memory, *sizes, k.meaning))
    return "\n".join(["Kinds of bytes:", *align(rows, right={2, 3})]) + "\n"


def findings_text(findings: NpuFindings) -> str:
    """Brick padding and copies, as two paragraphs; empty when there are none."""
    lines: list[str] = []
    if findings.paddings:
        total = sum(p.lost_bytes for p in findings.paddings)
        lines.append(f"Lost to 16-channel bricks: {both(total)} in {len(findings.paddings)} buffers.")
        padded = []
        for p in findings.paddings[:LARGEST]:
            stored = f"{p.channels} channel{'s' * (p.channels > 1)} stored as {p.stored_channels}"
            padded.append((p.buffer, stored, f"{p.lost_bytes:,}", f"of {p.size_bytes:,}"))
        lines += [*align(padded, right={2}), ""]
    kinds: dict[str, list[int]] = {}
    for copy in findings.copies:
        kinds.setdefault(copy.what, []).append(copy.size_bytes)
    if kinds:
        lines.append("Copies that the model did not ask for:")
        rows = [(f"{len(sizes)} x", what, f"{sum(sizes):,} bytes") for what, sizes in sorted(kinds.items())]
        lines += [*align(rows, right={0, 2}), ""]
    return "\n".join(lines)
