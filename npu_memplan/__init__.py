"""One static memory plan for a whole TVM program, and an Ethos-U back end proven by running it.

Invariant: importing this package imports nothing else; its names and its parts are loaded on first use,
and with them, where they need them, TVM, Vela and numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    if name in __all__:
        return getattr(importlib.import_module(".errors" if name == "NpuMemplanError" else ".problem", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
