"""The changes between two compiled models: pools, kinds of bytes, the NPU's work, buffers.

Invariant: buffers are the same when their names are; a buffer is listed under the first of added, removed, resized,
moved to another pool, moved, that is true of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...artifact import Artifact
from ...sizes import kib_text, percent_text
from ...text_table import align_rows
from ..facts.npu_work import WorkChange, by_kind, npu_work, work_changes

SHOWN = 12  # buffers listed one by one


@dataclass(frozen=True, slots=True)
class Change:
    """One number of both models; None where a model does not have it."""

    what: str
    before: int | None
    after: int | None
    unit: str = "bytes"  # or "cycles", "us", or "" for a count

    @property
    def difference_bytes(self) -> int:
        """`after - before`, a missing side counting as 0."""
        return (self.after or 0) - (self.before or 0)


@dataclass(frozen=True, slots=True)
class BufferChange:
    """`what` is added, removed, resized, repooled or moved."""

    buffer: str
    what: str
    detail: str
    size_change_bytes: int


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """Differences of two artifacts; empty tuples when nothing changed."""

    names: tuple[str, str]
    options: tuple[tuple[str, str, str], ...]  # (option, before, after)
    sizes: tuple[Change, ...]
    buffers: tuple[BufferChange, ...]
    work: tuple[WorkChange, ...] = ()  # by kind and output size; empty without command streams

    @property
    def is_same(self) -> bool:
        """True when no option, size, buffer or operation differs."""
        numbers_differ = any(c.difference_bytes for c in self.sizes) or any(w.before != w.after for w in self.work)
        return not (self.options or self.buffers or numbers_differ)

    @property
    def counts_by_kind(self) -> Mapping[str, int]:
        """How many buffers are added, removed and so on."""
        return Counter(b.what for b in self.buffers)

    def to_dict(self) -> dict[str, Any]:
        return {"same": self.is_same, **asdict(self)}

    def to_text(self) -> str:
        lines = [f"{self.names[0]} -> {self.names[1]}"]
        if self.is_same:
            return lines[0] + "\nThe plans are the same.\n"
        lines += [f"  {option}: {before} -> {after}" for option, before, after in self.options]
        rows = [("", "before", "after", "change", "KiB", "")]
        for c in self.sizes:
            old, new = (("-" if v is None else f"{v:,}") for v in (c.before, c.after))
            share = percent_text(c.difference_bytes, c.before) if c.before and c.difference_bytes else ""
            rows.append(
                (
                    c.what,
                    old,
                    new,
                    signed_text(c.difference_bytes),
                    kib_text(c.difference_bytes)[:-4] if c.difference_bytes and c.unit == "bytes" else "",
                    share,
                )
            )
        lines += ["", *align_rows(rows, right={1, 2, 3, 4, 5})]
        lines += _work_lines(self.work)
        if self.buffers:
            lines += ["", "Buffers: " + ", ".join(f"{n} {what}" for what, n in self.counts_by_kind.items())]
            largest = sorted(self.buffers, key=lambda b: (-abs(b.size_change_bytes), b.buffer))[:SHOWN]
            lines += align_rows([(b.what, b.buffer, b.detail) for b in largest], right=set())
            if len(self.buffers) > SHOWN:
                lines.append(f"  and {len(self.buffers) - SHOWN} more")
        return "\n".join(lines) + "\n"


def compare_plans(
    before: Artifact, after: Artifact, directories: tuple[Path | None, Path | None] = (None, None)
) -> PlanDiff:
    """The differences from `before` to `after`; `directories` are where their command streams are."""
    return PlanDiff(
        _shown_names(before, after, directories),
        tuple(_option_changes(before, after)),
        tuple(_size_changes(before, after)),
        tuple(_buffer_changes(before, after)),
        _work_changes((before, after), directories),
    )


def _work_changes(
    both: tuple[Artifact, Artifact], directories: tuple[Path | None, Path | None]
) -> tuple[WorkChange, ...]:
    """The changes of the NPU's work; none unless the streams of both are there."""
    found = [npu_work(artifact, directory) for artifact, directory in zip(both, directories, strict=True)]
    counts = [sum(w.count for w in work) for work in found]
    complete = counts == [artifact.npu_operations for artifact in both]
    return work_changes(*found) if complete else ()


def _shown_names(before: Artifact, after: Artifact, directories: tuple[Path | None, Path | None]) -> tuple[str, str]:
    """The name of each place, with the model's name where the two have different ones."""
    first, second = (
        a.name if d is None else str(d) if before.name == after.name else f"{d} ({a.name})"
        for a, d in zip((before, after), directories, strict=True)
    )
    return first, second


def _work_lines(work: tuple[WorkChange, ...]) -> list[str]:
    """The NPU's work by kind, then the sizes whose cycles changed most."""
    if all(w.before == w.after for w in work):
        return []
    head = ("", "count", "before", "count", "after", "change")
    kinds = by_kind(work)
    differing = [w for w in kinds if w.before != w.after]
    rows = [head, *(_work_row(w, w.kind) for w in differing)]
    if len(differing) < len(kinds):
        rest = sum(w.before.cycles for w in kinds if w.before == w.after)
        rows.append((f"{len(kinds) - len(differing)} more kinds", "", f"{rest:,}", "", f"{rest:,}", "same"))
    lines = ["", "Estimated NPU cycles by which operations make the inference longer:"]
    lines += align_rows(rows, right={1, 2, 3, 4, 5})
    changed = sorted((w for w in work if w.cycle_change and w.output), key=lambda w: -abs(w.cycle_change))
    if changed:
        rows = [head, *(_work_row(w, f"{w.kind} to {w.output}") for w in changed[:SHOWN])]
        lines += ["", "By size of the output, largest change first:", *align_rows(rows, right={1, 2, 3, 4, 5})]
        if len(changed) > SHOWN:
            lines.append(f"  and {len(changed) - SHOWN} more")
    return lines


def _work_row(w: WorkChange, name: str) -> tuple[str, ...]:
    sides = [(f"{s.count:,}", f"{s.cycles:,}") if s.count else ("-", "-") for s in (w.before, w.after)]
    return (name, *sides[0], *sides[1], signed_text(w.cycle_change))


def signed_text(change: int) -> str:
    """A change with its sign, or `same`."""
    return f"{change:+,}" if change else "same"


def _option_changes(before: Artifact, after: Artifact) -> list[tuple[str, str, str]]:
    old, new = ({**asdict(a.target), "planner": a.plan.planner, "status": a.plan.status.value} for a in (before, after))
    return [(k, _format_option(old[k]), _format_option(new[k])) for k in old if old[k] != new[k]]


def _format_option(value: object) -> str:
    """An option's value as the user would give it; `-` when it was not given."""
    if isinstance(value, dict):
        value = tuple(name if size is None else f"{name}={size}" for name, size in value.items())
    return ",".join(map(str, value)) or "-" if isinstance(value, tuple) else "-" if value in (None, "") else str(value)


def _size_changes(before: Artifact, after: Artifact) -> list[Change]:
    rows = []
    for what, figure in (("pool", "used_bytes"), ("bound of", "lower_bound_bytes")):
        old, new = ({u.pool: getattr(u, figure) for u in a.plan.usage} for a in (before, after))
        rows += [Change(f"{what} {p}", old.get(p), new.get(p)) for p in dict.fromkeys([*old, *new])]
    rows.append(Change("weights and tables", before.constants_bytes, after.constants_bytes))
    rows.append(Change("command streams", before.stream_bytes, after.stream_bytes))
    rows.append(Change("NPU operations", before.npu_operations, after.npu_operations, ""))
    if before.estimated_cycles is not None or after.estimated_cycles is not None:
        rows.append(Change("estimated NPU cycles", before.estimated_cycles, after.estimated_cycles, "cycles"))
        rows.append(Change("NPU MACs", before.npu_macs, after.npu_macs, ""))
    if before.host_cycles or after.host_cycles:
        times = (round(1000 * a.total_milliseconds[0]) if a.total_milliseconds else None for a in (before, after))
        rows.append(Change("NPU and CPU, microseconds", next(times), next(times), "us"))
    rows.append(Change("host calls", before.host_operations, after.host_operations, ""))
    rows.append(Change("buffers", len(before.problem.buffers), len(after.problem.buffers), ""))
    return rows


def _buffer_changes(before: Artifact, after: Artifact) -> list[BufferChange]:
    old, new = ({b.name: b for b in a.problem.buffers} for a in (before, after))
    was, now = ({p.buffer: p for p in a.plan.placements} for a in (before, after))
    changes = []
    for name in dict.fromkeys([*old, *new]):
        sizes = [side[name].size_bytes if name in side else 0 for side in (old, new)]
        if name not in new:
            what, detail = "removed", f"{sizes[0]:,} bytes"
        elif name not in old:
            what, detail = "added", f"{sizes[1]:,} bytes"
        elif sizes[0] != sizes[1]:
            what, detail = "resized", f"{sizes[0]:,} -> {sizes[1]:,} bytes"
        elif was[name].pool != now[name].pool:
            what, detail = "repooled", f"{was[name].pool} -> {now[name].pool}"
        elif was[name].offset_bytes != now[name].offset_bytes:
            what, detail = "moved", f"{was[name].pool}: {was[name].offset_bytes:,} -> {now[name].offset_bytes:,}"
        else:
            continue
        changes.append(BufferChange(name, what, detail, sizes[1] - sizes[0]))
    return changes
