"""One static memory plan for a whole TVM program, and an Ethos-U back end proven by running it.

Invariant: importing this package imports neither TVM, Vela nor numpy; the parts that need
them (`transform`, `analysis`, `relax`, `compile`) are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from .errors import NpuMemplanError
from .problem import (
    Agent,
    AliasGroup,
    AllowedOverlap,
    Buffer,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
)

__all__ = [
    "Agent",
    "AliasGroup",
    "AllowedOverlap",
    "Buffer",
    "BufferKind",
    "Lifetime",
    "NpuMemplanError",
    "Placement",
    "Plan",
    "PlanStatus",
    "Pool",
    "PoolUsage",
    "Problem",
]

# `pipeline` is compile()'s module and can be called: nm.pipeline() is the Relax pipeline of transform.
_LAZY = frozenset(("transform", "analysis", "relax", "planners", "pipeline"))


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
