"""A plan over time (rectangles and live bytes of every pool), and the kinds of bytes a firmware needs for a model.

Invariant: everything here follows from a `Problem` and a `Plan` alone, and every report (text, SVG, HTML, explain)
takes its numbers from here, so no two of them can disagree. Live bytes are counted once per address: aliases and proven
overlaps are not counted twice. The kinds are kept apart, because a user who reads one number for "memory" cannot tell
what a smaller arena would buy; RAM rows of one pool add up to more than its height only because buffers of different
times share bytes, and each row says the most that its own kind has live at once.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...artifact import Artifact
from ...problem import Buffer, BufferKind, Placement, Plan, Pool, Problem
from ...problem.spans import count_covered, merge_spans


@dataclass(frozen=True, slots=True)
class Rectangle:
    """One lifetime of one buffer: bytes `[low, high)` at points `[first, last)`."""

    buffer: str
    first: int
    last: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Curve:
    """A step function of time: `live[i]` bytes from point `starts[i]` to the next start."""

    starts: tuple[int, ...]
    live: tuple[int, ...]

    def bytes_at(self, point: int) -> int:
        """Live bytes at `point`; 0 before the first start."""
        i = bisect_right(self.starts, point) - 1
        return self.live[i] if i >= 0 else 0

    def steps(self, end: int) -> Iterator[tuple[int, int, int]]:
        """(point, next one, live bytes between them) of every step, the last one until `end`; none of an empty pool."""
        return zip(self.starts, (*self.starts[1:], end)[: len(self.starts)], self.live, strict=True)

    @property
    def peak(self) -> tuple[int, int]:
        """(first point with the most live bytes, those bytes); (0, 0) for an empty pool."""
        if not self.live:
            return 0, 0
        best = max(self.live)
        return self.starts[self.live.index(best)], best


@dataclass(frozen=True, slots=True)
class PoolView:
    pool: Pool
    used_bytes: int
    lower_bound_bytes: int
    rectangles: tuple[Rectangle, ...]
    curve: Curve

    @property
    def free_bytes(self) -> int | None:
        """Bytes left of a bounded pool; negative when it is too small."""
        return None if self.pool.size_bytes is None else self.pool.size_bytes - self.used_bytes


@dataclass(frozen=True, slots=True)
class MemoryView:
    """All pools of one plan, and the length of its time axis: one past the last point."""

    pools: tuple[PoolView, ...]
    end: int

    def pool(self, name: str) -> PoolView:
        """The view of pool `name`; `KeyError` when there is none."""
        for view in self.pools:
            if view.pool.name == name:
                return view
        raise KeyError(name)


def memory_view(problem: Problem, plan: Plan) -> MemoryView:
    """Rectangles, live-byte curves and peaks of every pool of `plan`."""
    placed = {p.buffer: p for p in plan.placements}
    usage = {u.pool: u for u in plan.usage}
    sharing = sharing_names(problem)
    views = []
    for pool in problem.pools:
        buffers = [b for b in problem.buffers if placed[b.name].pool == pool.name]
        views.append(
            PoolView(
                pool=pool,
                used_bytes=usage[pool.name].used_bytes,
                lower_bound_bytes=usage[pool.name].lower_bound_bytes,
                rectangles=tuple(_placed_rectangles(buffers, placed)),
                curve=live_curve(buffers, placed, sharing),
            )
        )
    last = max((t.last for b in problem.buffers for t in b.lifetimes), default=0)
    return MemoryView(tuple(views), max(last, len(problem.points), 1))


def sharing_names(problem: Problem) -> set[str]:
    """Buffers that may lie on another one that lives at the same time: aliases and proven overlaps."""
    names = {name for group in problem.aliases for name, _ in group.members}
    return names | {name for o in problem.overlaps for name in (o.first, o.second)}


def point_label(problem: Problem, point: int) -> str:
    """What the program does at `point`, for messages."""
    if 0 <= point < len(problem.points) and problem.points[point]:
        return problem.points[point]
    return f"point {point}"


def placed_at(problem: Problem, plan: Plan, pool: str, point: int) -> tuple[Buffer, ...]:
    """The buffers of `pool` that live at `point`, the largest first."""
    there = {p.buffer for p in plan.placements if p.pool == pool}
    live = (b for b in problem.buffers if b.name in there and b.lives_at(point))
    return tuple(sorted(live, key=lambda b: (-b.size_bytes, b.name)))


def live_curve(buffers: Iterable[Buffer], placed: dict[str, Placement], sharing: set[str]) -> Curve:
    """Bytes in use over time. Only buffers named in `sharing` may lie on one another on purpose,
    so only their union needs computing; all others just add up."""
    events: dict[int, tuple[list[Buffer], list[Buffer]]] = {}
    for buffer in buffers:
        for t in buffer.lifetimes:
            events.setdefault(t.first, ([], []))[0].append(buffer)
            events.setdefault(t.last, ([], []))[1].append(buffer)
    alone = 0
    together: dict[str, Buffer] = {}
    starts: list[int] = []
    live: list[int] = []
    for point in sorted(events):
        born, dead = events[point]
        for buffer in dead:
            if together.pop(buffer.name, None) is None:
                alone -= buffer.size_bytes
        for buffer in born:
            if buffer.name in sharing:
                together[buffer.name] = buffer
            else:
                alone += buffer.size_bytes
        spans = ((placed[b.name].offset_bytes, placed[b.name].offset_bytes + b.size_bytes) for b in together.values())
        total = alone + count_covered(merge_spans(spans))
        if not live or live[-1] != total:
            starts.append(point)
            live.append(total)
    return Curve(tuple(starts), tuple(live))


def _placed_rectangles(buffers: Iterable[Buffer], placed: dict[str, Placement]) -> Iterable[Rectangle]:
    for buffer in buffers:
        low = placed[buffer.name].offset_bytes
        for t in buffer.lifetimes:
            yield Rectangle(buffer.name, t.first, t.last, low, low + buffer.size_bytes)


def on_purpose(problem: Problem) -> set[tuple[str, str]]:
    """Pairs of buffers that may lie on one another: neighbours in alias groups, proven overlaps."""
    pairs = {(o.first, o.second) for o in problem.overlaps}
    return pairs.union(*(itertools.pairwise(name for name, _ in group.members) for group in problem.aliases))


GROUPS: tuple[tuple[str, tuple[BufferKind, ...]], ...] = (
    ("graph inputs and outputs", (BufferKind.INPUT, BufferKind.OUTPUT)),
    ("states", (BufferKind.STATE,)),
    ("tensors", (BufferKind.TENSOR, BufferKind.NPU_INTERNAL, BufferKind.ROLLING)),
    ("host operator scratch", (BufferKind.HOST_SCRATCH,)),
    ("weights copied to RAM", (BufferKind.WEIGHTS,)),
    ("constants", (BufferKind.CONSTANT,)),
    ("resident constants", (BufferKind.RESIDENT,)),
)


@dataclass(frozen=True, slots=True)
class ByteKind:
    """One kind of bytes; `size_bytes` None when the compiler cannot know it."""

    label: str
    memory: str  # a pool's name, "read-only", or "firmware"
    size_bytes: int | None
    meaning: str


def kinds_of_bytes(artifact: Artifact) -> tuple[ByteKind, ...]:
    """Rows for every pool (whole, then by kind), read-only data, and what the firmware adds."""
    rows: list[ByteKind] = []
    placed = {p.buffer: p for p in artifact.plan.placements}
    sharing = sharing_names(artifact.problem)
    for usage in artifact.plan.usage:
        rows.append(ByteKind("planned pool", usage.pool, usage.used_bytes, "its height; reserve exactly this"))
        for label, kinds in GROUPS:
            members: list[Buffer] = [
                b for b in artifact.problem.buffers if b.kind in kinds and placed[b.name].pool == usage.pool
            ]
            if members:
                most = live_curve(members, placed, sharing).peak[1]
                rows.append(ByteKind(f"  {label}", usage.pool, most, "the most live at once"))
    pooled = sum(artifact.pool_bytes(pool.name) for pool in artifact.problem.pools if pool.read_only)
    alone = artifact.constants_bytes - pooled
    rows.append(ByteKind("weights and tables", "read-only", alone, "flash, or wherever they lie"))
    rows.append(ByteKind("command streams", "read-only", artifact.stream_bytes, "flash, or wherever they lie"))
    rows.append(ByteKind("stack and NPU driver", "firmware", None, "not the model's; run --on qemu measures the stack"))
    return tuple(rows)
