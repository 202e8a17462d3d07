"""One static memory plan for a whole TVM program, and an Ethos-U back end proven by running it.

Invariant: importing this package imports nothing else; its names and its parts are loaded on first use,
and with them, where they need them, TVM, Vela and numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

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
    from .transform import pipeline as relax_pipeline

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AliasGroup",
    "AllowedOverlap",
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
    "host_operator",
    "relax_pipeline",
]

_LAZY = frozenset(("transform", "analysis", "relax", "planners", "pipeline", "sweep"))


def compile(
    model: str | Path,
    output: str | Path,
    *,
    force: bool = False,
    fit: str = "",
    check: bool | None = None,
    strict: bool = False,
    **options: Any,
) -> Artifact:
    """Compile the file `model` into the directory `output`, as `npu-memplan compile` does, and return what was written.

    `options` are fields of `options.CompileOptions`; `force` replaces an artifact that is there; `fit` is `SIZE` or
    `NAME=SIZE`: try all that could make it fit (see `fit`). `check`: run it beside its reference, and make it otherwise
    where results differ; None: unless that is much work, or as the environment says (`checking.mode`). Raises
    `NpuMemplanError`; `output` is then as it was. A fault of this package's is an `InternalError`, with `strict` also
    one for which another program stands in.
    """
    from pathlib import Path

    from .options import CompileOptions
    from .process.incidents import strictly

    requested = CompileOptions(**options)
    with strictly(strict):
        from .checking.compile import compile_checked, compile_to_fit_checked
        from .checking.mode import check_mode

        if fit:
            return compile_to_fit_checked(Path(model), requested, Path(output), fit, force, check_mode(check))[0]
        return compile_checked(model, requested, output, force, check_mode(check))


def __getattr__(name: str) -> Any:
    if name == "host_operator":
        return importlib.import_module(".frontend.host_ops.own", __name__).host_operator
    if name == "relax_pipeline":
        return importlib.import_module(".transform", __name__).pipeline
    if name in _LAZY:
        return importlib.import_module(f".{name}", __name__)
    if name in __all__:
        return getattr(importlib.import_module(".errors" if name.endswith("Error") else ".problem", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
