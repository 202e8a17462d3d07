"""One buffer, operator or call by its name: where it is, when it lives, and why there.

Invariant: "why" is read off the finished plan (what lies below it, what it shares bytes with),
so the answer is true for any planner, also for one the user wrote.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...artifact import Artifact
from ...artifact.parts import Call, Operator
from ...errors import NpuMemplanError
from ...problem import Agent, Buffer, Lifetime, Placement
from ...sizes import both, kib, percent
from ..colours import KIND_LABELS
from ..facts.bricks import npu_findings, npu_labels
from ..facts.dearest import operator_times, short_names
from ..facts.memory import memory_view, point_label

Spans = dict[str, tuple[int, int]]  # buffer -> its bytes in the pool, half-open


class ExplainError(NpuMemplanError):
    """Nothing in the plan has the name requested."""


@dataclass(frozen=True, slots=True)
class NameExplanation:
    """Facts of one thing: `rows` are (what, text) in the order to be read."""

    name: str
    what: str  # "buffer", "operator" or "call"
    rows: tuple[tuple[str, str], ...]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """For --json: bare facts, not sentences."""
        return {"name": self.name, "what": self.what, **self.facts}

    def to_text(self) -> str:
        """For people: one fact a line, the same key written once."""
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
    for buffer in artifact.problem.buffers:
        if buffer.name == name:
            return _explain_buffer(artifact, buffer, directory)
    numbered = list(zip(artifact.operators, short_names(artifact), strict=True))
    for operator, short in numbered:
        if name == operator.name or _plain(name) == _plain(short):
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


def _plain(name: str) -> str:
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
    reuse = _reuse(buffer, others, spans)
    point, live_bytes = memory_view(problem, plan).pool(place.pool).curve.peak
    at_peak = buffer.lives_at(point)
    share = f"{percent(buffer.size_bytes, live_bytes)} of the {kib(live_bytes)} live at point {point}"
    rows = [
        (buffer.name, f"{KIND_LABELS[buffer.kind]}, {both(buffer.size_bytes)}"),
        ("where", f"pool {place.pool}, bytes {low:,} to {high:,}, aligned to {buffer.alignment}"),
        *(("when", _when(artifact, life)) for life in buffer.lifetimes),
        ("made by", _with(does, buffer.producer) or "the caller"),
        ("read by", ", ".join(_with(does, label) for label in buffer.consumers) or "the caller"),
        ("touched by", " and ".join(_agent(a) for a in sorted(buffer.agents, key=lambda a: a.value))),
        *(("why there", text) for text in why),
        *(("its bytes", text) for text in reuse),
        ("at the peak", share if at_peak else f"not live (point {point}, {point_label(problem, point)})"),
    ]
    padding = next((p for p in npu_findings(artifact, directory).paddings if p.buffer == buffer.name), None)
    if padding:
        stored = f"{padding.channels} channels are stored in bricks of 16 as {padding.stored_channels}"
        rows.append(("padding", f"{both(padding.lost_bytes)}: {stored}"))
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


def _with(does: dict[str, str], label: str) -> str:
    """`label`, and in brackets what the NPU does there."""
    return f"{label} ({does[label]})" if label in does else label


def _when(artifact: Artifact, life: Lifetime) -> str:
    first, last = life.first, life.last - 1
    if first == last:
        return f"point {first} ({point_label(artifact.problem, first)})"
    begin, end = point_label(artifact.problem, first), point_label(artifact.problem, last)
    return f"points {first} to {last} ({begin} to {end})"


def _agent(agent: Agent) -> str:
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
    """What holds it at its offset: the bottom, a neighbour it rests on, or nothing."""
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
    together = _together(buffer, top)
    if -(-end // buffer.alignment) * buffer.alignment == low:
        return [*texts, f"it rests on {top.name} [{start:,}, {end:,}), {together}"]
    return [*texts, f"{low - end:,} bytes below it are free while it lives; {top.name} ends at {end:,}, {together}"]


def _together(a: Buffer, b: Buffer) -> str:
    shared = [(max(x.first, y.first), min(x.last, y.last)) for x in a.lifetimes for y in b.lifetimes if x.meets(y)]
    if not shared:
        return "which another agent may use at the same time"
    first, last = shared[0][0], shared[0][1] - 1
    return "which lives with it at " + (f"point {first}" if first == last else f"points {first} to {last}")


def _reuse(buffer: Buffer, others: list[Buffer], spans: Spans) -> list[str]:
    """Who has the same bytes before and after."""
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
        ("runs on", _agent(operator.agent) + (f": {operator.reason}" if operator.reason else "")),
    ]
    facts: dict[str, Any] = {"kind": operator.kind, "agent": operator.agent.value, "reason": operator.reason}
    index = next(i for i, one in enumerate(artifact.operators) if one is operator)
    for time in (row for row in operator_times(artifact) if row.operator == index):
        bound = f", most of them {time.bound}" if time.bound else ""
        text = f"about {time.cycles:,} cycles{bound}; {percent(time.share, 1)} of the inference (estimated)"
        rows.append(("takes", text))
        facts |= {"cycles": time.cycles, "share": time.share, "bound": time.bound}
    if operator.agent is Agent.NPU:
        calls = [f"{i}:{c.function}" for i, c in enumerate(artifact.calls) if c.agent is Agent.NPU]
        inside = " or ".join(calls) or "an NPU call"
        rows.append(("call", f"inside {inside}, where its operations may be fused with others"))
        return NameExplanation(operator.name, "operator", tuple(rows), facts)
    host = [o for o in artifact.operators if o.kind == operator.kind and o.agent is Agent.HOST]
    number = next(i for i, o in enumerate(host) if o is operator)
    function = operator.kind.lower() + (f"_{number}" if number else "")
    made = [i for i, c in enumerate(artifact.calls) if c.agent is Agent.HOST and c.function == function]
    if made:
        inner = _explain_call(artifact, made[0], artifact.calls[made[0]])
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
        (call.function, f"call {index} of main, on {_agent(call.agent)}"),
        ("when", f"points {first} to {last - 1}" if last - first > 1 else f"point {first}"),
    ]
    for word, names in (("reads", call.reads), ("writes", call.writes)):
        for name in names:
            at = placed.get(name)
            where = f", {at.pool} at {at.offset_bytes:,}" if at else ", the caller's"
            rows.append((word, f"{name}: {both(sizes[name]) if name in sizes else 'unplanned'}{where}"))
    inside = [b for b in artifact.problem.buffers if first <= b.lifetimes[0].first and b.lifetimes[-1].last <= last]
    total = both(sum(b.size_bytes for b in inside))
    rows.append(("inside it", f"{len(inside)} buffers, {total} if all were kept apart"))
    peaks = {}
    for pool in memory_view(artifact.problem, artifact.plan).pools:
        starts = [first, *(s for s in pool.curve.starts if first < s < last)]
        most, at_point = max(((pool.curve.at(s), -s) for s in starts), default=(0, 0))
        peaks[pool.pool.name] = most
        rows.append(("most live", f"{pool.pool.name}: {both(most)} at point {-at_point}"))
    facts = {
        "index": index, "agent": call.agent.value, "points": list(call.points), "reads": list(call.reads),
        "writes": list(call.writes), "inside": [b.name for b in inside], "most_live_bytes": peaks,
    }  # fmt: skip
    return NameExplanation(call.function, "call", tuple(rows), facts)
