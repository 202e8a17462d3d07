"""The texts that `explain` prints: why a pool is as high as it is, or where one buffer, operator or call lies, when it
lives, and why.

Invariant: every sentence follows from numbers in the plan (or in the command streams next to it); "why" is read off the
finished plan (what lies below a buffer, what it shares bytes with), so the answer is true for any planner, also for one
the user wrote. Advice names the bytes it could win at most, and is left out when that is nothing.
"""

from __future__ import annotations

import difflib
import textwrap
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...artifact import Artifact
from ...artifact.model import Call, Operator
from ...errors import NpuMemplanError
from ...knobs import ON_HOST, Changes, useful_knobs, with_changes
from ...problem import Agent, Buffer, Lifetime, Placement
from ...sizes import bytes_and_kib, kib_text, percent_text
from ...text_table import align_rows
from ..colours import KIND_LABELS
from ..facts.dearest import DEAREST_HEADING, OperatorTime, dearest_lines, operator_times, short_names
from ..facts.memory import ByteKind, PoolView, kinds_of_bytes, memory_view, placed_at, point_label
from ..facts.npu_work import NpuFindings, npu_findings, npu_labels
from .compile_result import Advice, advice

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
        knobs=_knob_lines(artifact, view),
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


def _knob_lines(artifact: Artifact, view: PoolView) -> tuple[tuple[str, str], ...]:
    """Options for another compile of the model; nothing where there is no model."""
    if not artifact.operators:
        return ()
    budget = view.pool.size_bytes or view.used_bytes * 3 // 4
    proven = view.used_bytes == view.lower_bound_bytes
    on_host: Changes = {} if artifact.npu_operations else {**ON_HOST, "system_config": ""}
    target = with_changes(artifact.target, on_host)
    able = useful_knobs(target, budget, artifact.source, searched=proven)
    sized = ((f"--pool {view.pool.name}=SIZE", "the fewest cycles that fit"),) if artifact.target.has_rivals else ()
    return (*sized, *((knob.flag_text(target, budget), knob.does) for knob in able))


def _pool_text(name: str, peak: PoolPeak) -> str:
    capacity = ""
    if peak.capacity_bytes is not None:
        left = peak.capacity_bytes - peak.used_bytes
        capacity = f" of {bytes_and_kib(peak.capacity_bytes)}, {left:,} free"
    agent = (f" ({peak.does})" if peak.does else "") + (f" on the {peak.agent}" if peak.agent else "")
    lines = textwrap.wrap(f"{name}: pool {peak.pool} is {bytes_and_kib(peak.used_bytes)} high{capacity}.", WIDTH)
    sentence = f"Its peak is at point {peak.point}, {peak.operation}{agent}: {bytes_and_kib(peak.live_bytes)} are live."
    lines += textwrap.wrap(sentence, WIDTH, break_on_hyphens=False)
    if peak.used_bytes == peak.lower_bound_bytes:
        lines.append("No placement is smaller: the height equals the proven bound.")
    else:
        gap = peak.used_bytes - peak.lower_bound_bytes
        over = f"{gap:,} bytes ({percent_text(gap, peak.lower_bound_bytes)})"
        lines.append(f"The proven bound is {bytes_and_kib(peak.lower_bound_bytes)}: the plan is {over} above it.")
    lines += ["", "Live there:"]
    shown = peak.contributors[:LARGEST]
    rows = [(c.buffer, c.kind, f"{c.size_bytes:,}", kib_text(c.size_bytes), percent_text(c.size_bytes, peak.live_bytes),
             "waits" if c.idle else "in use", c.made_by or "the caller") for c in shown]  # fmt: skip
    lines += align_rows([("buffer", "kind", "bytes", "KiB", "share", "there", "made by"), *rows], right={2, 3, 4})
    if len(peak.contributors) > LARGEST:
        rest = peak.contributors[LARGEST:]
        lines.append(f"  and {len(rest)} smaller ones, {bytes_and_kib(sum(c.size_bytes for c in rest))}")
    lines += ["", "What would lower it (at most so much each):"]
    if not peak.advice:
        lines.append("  nothing that this plan holds")
    for a in peak.advice:
        text = f"{bytes_and_kib(a.at_most_bytes)}: {a.text}"
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    if peak.knobs:
        lines += ["", "Options for another compile:"]
        lines += align_rows(peak.knobs, right=set())
    return "\n".join(lines) + "\n"


def _kinds_text(kinds: tuple[ByteKind, ...]) -> str:
    rows = [("kind", "memory", "bytes", "KiB", "note")]
    for k in kinds:
        sizes = ("-", "-") if k.size_bytes is None else (f"{k.size_bytes:,}", kib_text(k.size_bytes))
        rows.append((k.label, k.memory, *sizes, k.meaning))
    return "\n".join(["Kinds of bytes:", *align_rows(rows, right={2, 3})]) + "\n"


def findings_text(findings: NpuFindings) -> str:
    """Brick padding and copies, as two paragraphs; empty when there are none."""
    lines: list[str] = []
    if findings.paddings:
        total = sum(p.lost_bytes for p in findings.paddings)
        lines.append(f"Lost to 16-channel bricks: {bytes_and_kib(total)} in {len(findings.paddings)} buffers.")
        padded = []
        for p in findings.paddings[:LARGEST]:
            stored = f"{p.channels} channel{'s' * (p.channels > 1)} stored as {p.stored_channels}"
            padded.append((p.buffer, stored, f"{p.lost_bytes:,}", f"of {p.size_bytes:,}"))
        lines += [*align_rows(padded, right={2}), ""]
    kinds: dict[str, list[int]] = {}
    for copy in findings.copies:
        kinds.setdefault(copy.what, []).append(copy.size_bytes)
    if kinds:
        lines.append("Copies that the model did not ask for:")
        rows = [(f"{len(sizes)} x", what, f"{sum(sizes):,} bytes") for what, sizes in sorted(kinds.items())]
        lines += [*align_rows(rows, right={0, 2}), ""]
    return "\n".join(lines)


Spans = dict[str, tuple[int, int]]  # buffer -> its bytes in the pool, half-open


class ExplainError(NpuMemplanError):
    """Nothing in the plan has the given name."""


@dataclass(frozen=True, slots=True)
class NameExplanation:
    """Facts of one thing: `rows` are (what, text) in the order to be read."""

    name: str
    what: str  # "buffer", "operator" or "call"
    rows: tuple[tuple[str, str], ...]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The facts for --json, bare, not sentences."""
        return {"name": self.name, "what": self.what, **self.facts}

    def to_text(self) -> str:
        """The text for people: one fact a line, the same key written once."""
        width = max(len(key) for key, _ in self.rows)
        lines, last = [], ""
        for key, text in self.rows:
            lines.append(f"{'' if key == last else key:<{width}}  {text}")
            last = key
        return "\n".join(lines) + "\n"


def explain_name(artifact: Artifact, name: str, directory: Path | None = None) -> NameExplanation:
    """The buffer called `name`, else the operator, else the call.

    Operators also answer to their kind and number (`conv_2d_3` is the fourth CONV_2D), and any part of a
    name will do when it fits one thing only. `ExplainError`, with close names, when nothing does.
    """
    numbered = list(zip(artifact.operators, short_names(artifact), strict=True))
    for buffer in artifact.problem.buffers:
        if buffer.name == name:
            found = _explain_buffer(artifact, buffer, directory)
            makers = [_explain_operator(artifact, o, short) for o, short in numbered if o.name == name]
            rows = (row for maker in makers for row in maker.rows if row[0] in (maker.rows[0][0], "runs on", "takes"))
            return replace(found, rows=(*found.rows, *rows))
    for operator, short in numbered:
        if name == operator.name or _plain_name(name) == _plain_name(short):
            return _explain_operator(artifact, operator, short)
    for index, call in enumerate(artifact.calls):
        if name in (call.function, f"{index}:{call.function}"):
            return _explain_call(artifact, index, call)
    known = [b.name for b in artifact.problem.buffers]
    known += [o.name for o, _ in numbered] + [short for _, short in numbered] + [c.function for c in artifact.calls]
    containing = list(dict.fromkeys(k for k in known if name.lower() in k.lower()))
    if len(containing) == 1:
        return explain_name(artifact, containing[0], directory)
    close = containing[:5] or difflib.get_close_matches(name, known, 5, 0.5)
    hint = f"; close: {', '.join(dict.fromkeys(close))}" if close else ""
    raise ExplainError(
        f"{artifact.name} has no buffer, operator or call named {name!r}{hint}; "
        "all names are in buffers.csv and in report.html (npu-memplan report)"
    )


def _plain_name(name: str) -> str:
    """Letters and digits only: `conv2d_7` and `CONV_2D_7` are the same."""
    return "".join(c for c in name.lower() if c.isalnum())


def _explain_buffer(artifact: Artifact, buffer: Buffer, directory: Path | None) -> NameExplanation:
    problem, plan = artifact.problem, artifact.plan
    placed = {p.buffer: p for p in plan.placements}
    place = placed[buffer.name]
    others = [b for b in problem.buffers if b is not buffer and placed[b.name].pool == place.pool]
    starts = {b: placed[b.name].offset_bytes for b in (buffer, *others)}
    spans = {b.name: (start, start + b.size_bytes) for b, start in starts.items()}
    low, high = spans[buffer.name]
    does = {point_label(problem, point): text for point, text in npu_labels(artifact, directory).items()}
    why = [_why_pool(artifact, buffer, place), *_why_offset(artifact, buffer, others, spans)]
    reuse = _reuse_lines(buffer, others, spans)
    point, live_bytes = memory_view(problem, plan).pool(place.pool).curve.peak
    at_peak = buffer.lives_at(point)
    share = f"{percent_text(buffer.size_bytes, live_bytes)} of the {kib_text(live_bytes)} live at point {point}"
    rows = [
        (buffer.name, f"{KIND_LABELS[buffer.kind]}, {bytes_and_kib(buffer.size_bytes)}"),
        ("where", f"pool {place.pool}, bytes {low:,} to {high:,}, aligned to {buffer.alignment}"),
        *(("when", _lifetime_text(artifact, life)) for life in buffer.lifetimes),
        ("made by", _label_with_work(does, buffer.producer) or "the caller"),
        ("read by", ", ".join(_label_with_work(does, label) for label in buffer.consumers) or "the caller"),
        ("touched by", " and ".join(_agent_text(a) for a in sorted(buffer.agents, key=lambda a: a.value))),
        *(("why there", text) for text in why),
        *(("its bytes", text) for text in reuse),
        ("at the peak", share if at_peak else f"not live (point {point}, {point_label(problem, point)})"),
    ]
    padding = next((p for p in npu_findings(artifact, directory).paddings if p.buffer == buffer.name), None)
    if padding:
        stored = f"{padding.channels} channels are stored in bricks of 16 as {padding.stored_channels}"
        rows.append(("padding", f"{bytes_and_kib(padding.lost_bytes)}: {stored}"))
    facts = {
        "kind": buffer.kind.value,
        "size_bytes": buffer.size_bytes,
        "pool": place.pool,
        "offset_bytes": low,
        "alignment": buffer.alignment,
        "lifetimes": [[t.first, t.last] for t in buffer.lifetimes],
        "made_by": buffer.producer,
        "read_by": list(buffer.consumers),
        "agents": sorted(a.value for a in buffer.agents),
        "why": why,
        "reuse": reuse,
        "at_peak": at_peak,
        "padding": asdict(padding) if padding else None,
    }
    return NameExplanation(buffer.name, "buffer", tuple(rows), facts)


def _label_with_work(does: dict[str, str], label: str) -> str:
    """`label`, and in brackets what the NPU does there."""
    return f"{label} ({does[label]})" if label in does else label


def _lifetime_text(artifact: Artifact, life: Lifetime) -> str:
    first, last = life.first, life.last - 1
    if first == last:
        return f"point {first} ({point_label(artifact.problem, first)})"
    begin, end = point_label(artifact.problem, first), point_label(artifact.problem, last)
    return f"points {first} to {last} ({begin} to {end})"


def _agent_text(agent: Agent) -> str:
    return "the NPU" if agent is Agent.NPU else "the host"


def _why_pool(artifact: Artifact, buffer: Buffer, place: Placement) -> str:
    if buffer.fixed is not None:
        return f"its place was given: {buffer.fixed[0]} at {buffer.fixed[1]:,}"
    candidates = [p.name for p in artifact.problem.candidates(buffer)]
    if len(candidates) == 1:
        return f"{place.pool} is the only pool it may lie in"
    if candidates[0] == place.pool:
        return f"{place.pool} is its first choice of {', '.join(candidates)}"
    before = ", ".join(candidates[: candidates.index(place.pool)])
    return f"spilled: it would rather lie in {before}, where others gain more from the room"


def _why_offset(artifact: Artifact, buffer: Buffer, others: list[Buffer], spans: Spans) -> list[str]:
    """The reason of a buffer's offset: the bottom, a neighbour it rests on, or nothing."""
    texts = []
    low, high = spans[buffer.name]
    grouped: set[str] = set()
    for group in artifact.problem.aliases:
        names = [n for n, _ in group.members]
        if buffer.name in names:
            same = [name for name in names if name != buffer.name]
            grouped.update(same)
            texts.append(f"it is the same memory as {', '.join(same)}")
    for overlap in artifact.problem.overlaps:
        if buffer.name in (overlap.first, overlap.second):
            other = overlap.second if buffer.name == overlap.first else overlap.first
            first, last = spans.get(other, (high, low))
            if first < high and low < last:
                texts.append(f"it lies on {other} on purpose" + (f": {overlap.reason}" if overlap.reason else ""))
                grouped.add(other)
    if low == 0:
        return [*texts, "it lies at the bottom of the pool"]
    extra = {a if b == buffer.name else b for a, b in artifact.problem.conflicts if buffer.name in (a, b)}
    below = [
        b for b in others
        if b.name not in grouped and (b.meets(buffer) or b.name in extra) and spans[b.name][1] <= low
    ]  # fmt: skip
    if not below:
        return [*texts, "nothing that lives at the same time lies below it; the planner had no need to lower it"]
    top = max(below, key=lambda b: (spans[b.name][1], b.name))
    start, end = spans[top.name]
    together = _common_time(buffer, top)
    if -(-end // buffer.alignment) * buffer.alignment == low:
        return [*texts, f"it rests on {top.name} [{start:,}, {end:,}), {together}"]
    return [*texts, f"{low - end:,} bytes below it are free while it lives; {top.name} ends at {end:,}, {together}"]


def _common_time(a: Buffer, b: Buffer) -> str:
    shared = [(max(x.first, y.first), min(x.last, y.last)) for x in a.lifetimes for y in b.lifetimes if x.meets(y)]
    if not shared:
        return "which another agent may use at the same time"
    first, last = shared[0][0], shared[0][1] - 1
    return "which lives with it at " + (f"point {first}" if first == last else f"points {first} to {last}")


def _reuse_lines(buffer: Buffer, others: list[Buffer], spans: Spans) -> list[str]:
    """The buffers that have the same bytes before and after."""
    low, high = spans[buffer.name]
    same = [b for b in others if spans[b.name][0] < high and low < spans[b.name][1] and not b.meets(buffer)]
    first, last = buffer.lifetimes[0].first, buffer.lifetimes[-1].last
    before = sorted((b for b in same if b.lifetimes[-1].last <= first), key=lambda b: (-b.lifetimes[-1].last, b.name))
    after = sorted((b for b in same if b.lifetimes[0].first >= last), key=lambda b: (b.lifetimes[0].first, b.name))
    texts = []
    for word, group in (("before", before), ("after", after)):
        if group:
            more = f" and {len(group) - 3} more" if len(group) > 3 else ""
            texts.append(f"{word} it: {', '.join(b.name for b in group[:3])}{more}")
    return texts or ["no buffer has them at another time"]


def _explain_operator(artifact: Artifact, operator: Operator, short: str) -> NameExplanation:
    rows = [
        (short, f"operator {operator.kind} of {artifact.source}"),
        ("makes", operator.name),
        ("runs on", _agent_text(operator.agent) + (f": {operator.reason}" if operator.reason else "")),
    ]
    facts: dict[str, Any] = {"kind": operator.kind, "agent": operator.agent.value, "reason": operator.reason}
    index = next(i for i, one in enumerate(artifact.operators) if one is operator)
    for time in (row for row in operator_times(artifact) if row.operator == index):
        bound = f", most of them {time.bound}" if time.bound else ""
        text = f"about {time.cycles:,} cycles{bound}; {percent_text(time.share, 1)} of the inference (estimated)"
        rows.append(("takes", text))
        facts |= {"cycles": time.cycles, "share": time.share, "bound": time.bound}
    if operator.agent is Agent.NPU:
        calls = [f"{i}:{c.function}" for i, c in enumerate(artifact.calls) if c.agent is Agent.NPU]
        inside = " or ".join(calls) or "an NPU call"
        rows.append(("call", f"inside {inside}, where its operations may be fused with others"))
        return NameExplanation(operator.name, "operator", tuple(rows), facts)
    host = [o for o in artifact.operators if o.kind == operator.kind and o.agent is Agent.HOST]
    number = next(i for i, o in enumerate(host) if o is operator)
    function, turn = operator.kind.lower() + (f"_{number}" if number else ""), 0
    rows_of_it = [row for row in artifact.host_layers if row.operator == index]
    if rows_of_it:  # the call that takes the most time; its function may be called for other operators before
        dearest = max(rows_of_it, key=lambda row: row.cycles)
        function = dearest.function
        turn = [row for row in artifact.host_layers if row.function == function].index(dearest)
    made = [i for i, c in enumerate(artifact.calls) if c.agent is Agent.HOST and c.function == function]
    if made:
        made_by = made[min(turn, len(made) - 1)]
        inner = _explain_call(artifact, made_by, artifact.calls[made_by])
        rows += [("call", inner.rows[0][1]), *inner.rows[1:]]
        facts["call"] = inner.facts
    else:
        rows.append(("call", "none: it is folded into another operator or a constant"))
    return NameExplanation(operator.name, "operator", tuple(rows), facts)


def _explain_call(artifact: Artifact, index: int, call: Call) -> NameExplanation:
    sizes = {b.name: b.size_bytes for b in artifact.problem.buffers}
    placed = {p.buffer: p for p in artifact.plan.placements}
    first, last = call.points
    rows = [
        (call.function, f"call {index} of main, on {_agent_text(call.agent)}"),
        ("when", f"points {first} to {last - 1}" if last - first > 1 else f"point {first}"),
    ]
    for word, names in (("reads", call.reads), ("writes", call.writes)):
        for name in names:
            at = placed.get(name)
            where = f", {at.pool} at {at.offset_bytes:,}" if at else ", the caller's"
            rows.append((word, f"{name}: {bytes_and_kib(sizes[name]) if name in sizes else 'unplanned'}{where}"))
    inside = [b for b in artifact.problem.buffers if first <= b.lifetimes[0].first and b.lifetimes[-1].last <= last]
    total = bytes_and_kib(sum(b.size_bytes for b in inside))
    rows.append(("inside it", f"{len(inside)} buffers, {total} if all were kept apart"))
    peaks = {}
    for pool in memory_view(artifact.problem, artifact.plan).pools:
        starts = [first, *(s for s in pool.curve.starts if first < s < last)]
        most, at_point = max(((pool.curve.bytes_at(s), -s) for s in starts), default=(0, 0))
        peaks[pool.pool.name] = most
        rows.append(("most live", f"{pool.pool.name}: {bytes_and_kib(most)} at point {-at_point}"))
    facts = {
        "index": index, "agent": call.agent.value, "points": list(call.points), "reads": list(call.reads),
        "writes": list(call.writes), "inside": [b.name for b in inside], "most_live_bytes": peaks,
    }  # fmt: skip
    return NameExplanation(call.function, "call", tuple(rows), facts)
