"""Relax programs for the Ethos-U, by the names that users know: partition a quantised module, lower, build an artifact.

Invariant: the work is in `ethosu.relax`, and in the stages that every model goes through.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .artifact import Artifact
from .ethosu.lower.operands import Arithmetic as Arithmetic
from .ethosu.relax.lowering import lower_for_ethosu as lower_for_ethosu
from .ethosu.relax.partition import HostOperator as HostOperator
from .ethosu.relax.partition import host_operators as host_operators
from .ethosu.relax.partition import partition_for_ethosu as partition_for_ethosu
from .ethosu.relax.partition import with_arithmetic as with_arithmetic
from .files.folders import staged_directory
from .frontend.graph import NodeImport, NodeOperators, describe_main
from .frontend.legalize import legalize_host
from .options import CompileOptions
from .pipeline import build, extract_problem, lower, plan
from .report.files import write_artifact
from .request import Loaded, request


def build_artifact(
    mod: Any,
    output: str | os.PathLike[str],
    accelerator: str = "ethos-u55-256",
    *,
    pools: Mapping[str, int] | None = None,
    name: str = "model",
    force: bool = False,
) -> Artifact:
    """Plan a module and write it into the directory `output`, in the form that `npu-memplan compile` writes.

    `mod` comes from `lower_for_ethosu` for the same `accelerator`, and what is left in `main` becomes code of the CPU.
    `pools` are as of `npu_memplan.compile`, with sizes in bytes; `name` is the model's in C; `force` replaces an
    artifact that is there. Nothing is compared with a reference: the module is its own.

    Raises `NpuMemplanError`, and leaves `output` as it was.
    """
    options = CompileOptions(accelerator, pools=dict(pools or {}), name=name, npu_compiler="tvm")
    main = mod["main"]
    results = main.ret_ty.fields if hasattr(main.ret_ty, "fields") else [main.ret_ty]
    inputs = tuple(str(p.name) for p in main.params)
    outputs = tuple(f"output_{i}" for i in range(len(results))) if len(results) > 1 else ("output",)
    module = legalize_host(mod, {o.name: o.reason for o in host_operators(mod)}, name, "replace them")
    module = describe_main(module, NodeImport(mod, (), {}, inputs, outputs), NodeOperators((), {}))
    with staged_directory(Path(output), force) as folder:
        return write_artifact(build(plan(extract_problem(lower(Loaded.from_module(request(options), module))))), folder)
