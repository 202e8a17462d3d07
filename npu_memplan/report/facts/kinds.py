"""The kinds of bytes a firmware needs for a model, kept apart: a user who reads one number
for "memory" cannot tell what a smaller arena would buy.

Invariant: RAM rows of one pool add up to more than its height only because buffers of
different times share bytes; each row says the most that its own kind has live at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...artifact import Artifact
from ...problem import Buffer, BufferKind
from .memory import live_curve, sharing_names

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
