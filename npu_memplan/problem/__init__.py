"""The planning problem and its answer, as pure data (`model`), and whether a problem is one (`validation`).

Invariant: imports neither TVM, Vela nor numpy, and what stands here imports nothing else of this package but its
error. Problems and plans as text are beside it: `json`, MiniMalloc's CSV (`csv`, `rows`), and `files` to read and
write them.
"""

from .model import (
    LARGEST_BYTES,
    POISON,
    Agent,
    AliasGroup,
    Alignment,
    AllowedOverlap,
    Buffer,
    BufferKind,
    Count,
    Distance,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Point,
    Pool,
    PoolUsage,
    Problem,
    ProblemError,
    Rate,
    used_bytes,
)
from .validation import validate

__all__ = [
    "LARGEST_BYTES",
    "POISON",
    "Agent",
    "AliasGroup",
    "Alignment",
    "AllowedOverlap",
    "Buffer",
    "BufferKind",
    "Count",
    "Distance",
    "Lifetime",
    "Placement",
    "Plan",
    "PlanStatus",
    "Point",
    "Pool",
    "PoolUsage",
    "Problem",
    "ProblemError",
    "Rate",
    "used_bytes",
    "validate",
]
