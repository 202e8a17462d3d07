"""One static memory plan for a whole TVM program, and an Ethos-U back end proven by running it.

Invariant: importing this package imports nothing else; its names and its parts are loaded on first use,
and with them, where they need them, TVM, Vela and numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import compile, explore
    from .artifact import Artifact
    from .errors import InternalError, NpuMemplanError
    from .frontend.host_ops.own import host_operator
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
    from .transform.pipeline import pipeline as relax_pipeline

__version__ = "0.2.0"

__all__ = [
    "Agent",
    "AliasGroup",
    "AllowedOverlap",
    "Artifact",
    "Buffer",
    "BufferKind",
    "InternalError",
    "Lifetime",
    "NpuMemplanError",
    "Placement",
    "Plan",
    "PlanStatus",
    "Pool",
    "PoolUsage",
    "Problem",
    "compile",
    "explore",
    "host_operator",
    "relax_pipeline",
]

_LAZY = frozenset(("transform", "analysis", "relax", "planners", "pipeline", "sweep"))

_ELSEWHERE = {"compile": ".api", "explore": ".api", "Artifact": ".artifact", "host_operator": ".frontend.host_ops.own"}


def __getattr__(name: str) -> Any:
    if name == "relax_pipeline":
        return importlib.import_module(".transform", __name__).pipeline
    if name in _LAZY:
        return importlib.import_module(f".{name}", __name__)
    if name in __all__:
        home = _ELSEWHERE.get(name, ".errors" if name.endswith("Error") else ".problem")
        return getattr(importlib.import_module(home, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, *_LAZY, "__version__"))
