"""What would lower a pool, with the most that each change could win.

Invariant: an advice's `at_most_bytes` counts the whole program, not the peak alone: if some
buffers shrink, the pool stays as high as the rest of the program needs elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...artifact import Artifact
from ...knobs import SEARCH, SECOND_MEMORY, SIZE, TuningKnob
from ...problem import Buffer, BufferKind
from ..facts.bricks import NpuFindings
from ..facts.memory import PoolView

BOUNDARY = (BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.STATE)
COPIED = (BufferKind.WEIGHTS,)


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that could lower the pool by at most `at_most_bytes`."""

    text: str
    at_most_bytes: int


def advice(
    artifact: Artifact, view: PoolView, live: Sequence[Buffer], idle: Sequence[Buffer], findings: NpuFindings
) -> tuple[Advice, ...]:
    """Advice for one pool, the largest possible gain first.

    `live` are the buffers at its peak, the largest first; `idle` those that nothing touches there.
    """
    sizes = {b.name: b.size_bytes for b in artifact.problem.buffers}
    there = {r.buffer for r in view.rectangles}

    def by(knob: TuningKnob) -> str:
        flags = knob.flags(artifact.target, view.used_bytes)
        return f" ({flags})" if flags else ""

    edge = {b.name: b.size_bytes for b in idle if b.kind in BOUNDARY}
    inner = {b.name: b.size_bytes for b in idle if b.kind not in (*BOUNDARY, BufferKind.CONSTANT)}
    copied = {b.name: b.size_bytes for b in artifact.problem.buffers if b.kind in COPIED and b.name in there}
    scratch = {b.name: b.size_bytes for b in live if b.kind is BufferKind.HOST_SCRATCH}
    lost = {p.buffer: p.lost_bytes for p in findings.paddings if p.buffer in there}
    where = "that wait at the peak without being used"
    smaller = {f"a smaller {top.name}, the largest buffer there": {top.name: top.size_bytes} for top in live[:1]}
    smaller |= {
        f"graph inputs, outputs or states {where} ({_some(edge)}): memory of their own": edge,
        f"tensors {where} ({_some(inner)}): a second pool to spill to{by(SECOND_MEMORY)}": inner,
        f"weights that are copied to RAM ahead of use{by(SIZE)}": copied,
        "less scratch in the host operator there": scratch,
        "channel counts that are multiples of 16: NHCWB16 bricks are padded up to them": lost,
    }
    pair = _pair_without_overlap(artifact, [b for b in live if b not in idle])
    if pair:
        text = (
            f"an output that may lie on its input: {pair[0]} and {pair[1]} may not share bytes here "
            "(proven only for element-wise operations and rows that are already consumed)"
        )
        smaller[text] = {pair[1]: min(sizes[name] for name in pair)}
    better = f"a better placement of the same buffers{by(SEARCH)}, or a larger --time-limit"
    found = [Advice(better, view.used_bytes - view.lower_bound_bytes)]
    found += [Advice(text, gain(view, by_bytes)) for text, by_bytes in smaller.items()]
    return tuple(sorted((a for a in found if a.at_most_bytes > 0), key=lambda a: -a.at_most_bytes))


def gain(view: PoolView, smaller_by: Mapping[str, int]) -> int:
    """Bytes that the pool could lose at most if these buffers lost these bytes: its height less what
    the fullest point would still have live."""
    if not smaller_by:
        return 0
    change: dict[int, int] = dict.fromkeys(view.curve.starts, 0)
    for r in view.rectangles:
        if r.buffer in smaller_by:
            change[r.first] = change.get(r.first, 0) + smaller_by[r.buffer]
            change[r.last] = change.get(r.last, 0) - smaller_by[r.buffer]
    live = dict(zip(view.curve.starts, view.curve.live, strict=True))
    now, less, most = 0, 0, 0
    for point in sorted(change):
        now = live.get(point, now)
        less += change[point]
        most = max(most, now - less)
    return max(0, view.used_bytes - most)


def _some(names: Mapping[str, int]) -> str:
    first = list(names)[:3]
    return ", ".join(first) + (f" and {len(names) - len(first)} more" if len(names) > len(first) else "")


def _pair_without_overlap(artifact: Artifact, busy: Sequence[Buffer]) -> tuple[str, str] | None:
    """The largest input and the output of the operation at the peak, when nothing allows them to overlap."""
    for output in busy:
        if not output.producer or output.producer in output.consumers:
            continue
        for source in busy:
            if source is not output and output.producer in source.consumers:
                pair = {source.name, output.name}
                allowed = any({o.first, o.second} == pair for o in artifact.problem.overlaps)
                return None if allowed else (source.name, output.name)
    return None
