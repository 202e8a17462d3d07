"""`tvmc compile`: a model file to a Model Library Format tar.

Invariant: the tar appears complete or not at all. Regions are the legacy ones: workspace pools 1, 2, 5; the
first input 3, the first output 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from .. import verify
from ..codegen.interface import PoolSpec
from ..codegen.interface_c import IoTensor, ModuleInterface, WorkspacePool
from ..codegen.mlf import Library, build_library
from ..extract import extract
from ..frontend.attributes import quantised
from ..models.file import read_file
from ..options import NO_NPU
from ..planners import prefetch
from ..problem import Agent, BufferKind, Plan, Pool, Problem, used_bytes
from ..rewrite import rewrite
from ..vocabulary import PLACED_INPUTS, PLACED_OUTPUTS, REGIONS, is_npu
from .errors import TvmcError
from .options import TvmcOptions

_WORKSPACE_REGIONS = (1, 2, 5)
_INPUT_REGIONS, _OUTPUT_REGIONS = (3, 6), (4, 7)
DEFAULT_POOL = "global_workspace"


def compile_to_mlf(options: TvmcOptions, date: datetime | None = None) -> Library:
    """Compile the model that `options` name; nothing is written."""
    module = _load(options)
    _check_stateless(module, options)
    if options.striping:
        module = _in_stripes(module, options)
    workspace = list(options.pools) or [Pool(DEFAULT_POOL)]
    if len(workspace) > len(_WORKSPACE_REGIONS):
        raise TvmcError(
            f"{len(workspace)} workspace pools were given, but the NPU's base addresses leave room for "
            f"{len(_WORKSPACE_REGIONS)}; name fewer in --workspace-pools"
        )
    problem = extract(module, workspace, reuse_inputs=options.workspace_io, constant_pools=options.constant_pools)
    if not options.workspace_io:
        problem = _own_io_pools(problem, len(workspace))
    plan = prefetch.plan(problem, options.planner)
    verify.check(problem, plan)
    planned = _with_regions(rewrite(module, problem, plan), _regions(options, problem, len(workspace)))
    interface, pools = _interface(options, module, planned, problem, plan, len(workspace))
    source = module.script(show_meta=True)
    return build_library(planned, interface, pools, source, options.target_strings, date or datetime.now(timezone.utc))


def _load(options: TvmcOptions) -> Any:
    if options.model_format == "onnx":
        from ..frontend.onnx.build import build_onnx_module

        return build_onnx_module(options.model, options.accelerator or NO_NPU)
    data, name = read_file(options.model), options.model.name
    if options.accelerator is None:
        from ..frontend.tflite.lifted import import_host_only

        return import_host_only(data, name).module
    if options.npu_compiler == "tvm":
        from ..frontend.tflite.lowered import build_module

        return build_module(data, options.accelerator, name=name).module
    from ..ethosu.vela import VelaOptions
    from ..frontend.tflite.lifted import import_tflite

    optimise = "Size" if options.cascader else "Performance"
    return import_tflite(data, VelaOptions(options.accelerator, optimise=optimise), name=name).module


def _in_stripes(module: Any, options: TvmcOptions) -> Any:
    from ..transform.stripes import stripe

    capacity = options.pools[0].size_bytes if len(options.pools) == 1 else None
    return stripe(module, capacity, reuse_inputs=options.workspace_io, io_in_pools=options.workspace_io)


def _check_stateless(module: Any, options: TvmcOptions) -> None:
    states = quantised(module["main"], "state")
    if states:
        raise TvmcError(
            f"{options.model.name} keeps {len(states)} tensors from one run to the next, and a Model Library Format "
            "module has no memory that outlives a run and nobody who initialises it; use npu-memplan compile, whose "
            "header says where the states are and what they start with"
        )


def _own_io_pools(problem: Problem, count: int) -> Problem:
    """The caller's input and output arrays as pools of one tensor each, behind the workspace pools."""
    workspace = tuple(pool.name for pool in problem.pools[:count])
    extra, buffers = [], []
    for buffer in problem.buffers:
        if buffer.kind in (BufferKind.INPUT, BufferKind.OUTPUT):
            pool = Pool(f"io.{buffer.name}", buffer.size_bytes, agents=frozenset((Agent.HOST, Agent.NPU)))
            extra.append((buffer.kind is BufferKind.OUTPUT, pool))
            buffers.append(replace(buffer, pools=(pool.name,)))
        else:
            buffers.append(replace(buffer, pools=buffer.pools or workspace))
    ordered = [pool for output in (False, True) for is_output, pool in extra if is_output is output]
    return replace(problem, buffers=tuple(buffers), pools=(*problem.pools, *ordered))


def _regions(options: TvmcOptions, problem: Problem, count: int) -> list[int]:
    """NPU region of each pool; `TvmcError` when there are more tensors than base addresses."""
    regions = [*_WORKSPACE_REGIONS[:count], *(0 for pool in problem.pools if pool.read_only)]
    kinds = {f"io.{b.name}": b.kind for b in problem.buffers}
    for wanted, free in ((BufferKind.INPUT, list(_INPUT_REGIONS)), (BufferKind.OUTPUT, list(_OUTPUT_REGIONS))):
        for pool in problem.pools[count:]:
            if kinds.get(pool.name) is not wanted:
                continue
            if not free:
                raise TvmcError(
                    f"{options.model.name} has more than {len(_INPUT_REGIONS)} inputs or outputs, which exceeds the "
                    "NPU's base addresses; keep them in the workspace with --pass-config tir.usmp.use_workspace_io=1"
                )
            regions.append(free.pop(0))
    return regions


def _with_regions(module: Any, regions: Sequence[int]) -> Any:
    """The planned module with the regions of its NPU functions renumbered: pool i is `regions[i]`."""
    for variable, function in list(module.functions.items()):
        if is_npu(function):
            mapped = [regions[int(r) - 1] if r else 0 for r in function.attrs[REGIONS]]
            module.update_func(variable, function.with_attr(REGIONS, mapped))
    return module


def _interface(
    options: TvmcOptions, module: Any, planned: Any, problem: Problem, plan: Plan, count: int
) -> tuple[ModuleInterface, list[PoolSpec]]:
    heights = used_bytes(problem, plan.placements)
    main = planned["main"]
    passed = [pool for pool in problem.pools if not pool.read_only]
    index = {pool.name: position for position, pool in enumerate(passed)}

    def tensors(attribute: str, kind: str) -> tuple[IoTensor, ...]:
        return tuple(
            IoTensor(
                tensor.name or str(entry["name"]),
                str(entry["dtype"]),
                tuple(int(n) for n in entry["shape"]),
                int(entry["size_bytes"]),
                index[str(entry["pool"])],
                int(entry["offset_bytes"]),
            )
            for entry, tensor in zip(main.attrs[attribute], quantised(module["main"], kind), strict=True)
        )

    workspace = problem.pools[:count]
    npu = any(is_npu(f) for f in planned.functions.values())
    alignment = options.workspace_alignment
    interface = ModuleInterface(
        options.module_name,
        tensors(PLACED_INPUTS, "input"),
        tensors(PLACED_OUTPUTS, "output"),
        tuple(
            WorkspacePool(p.name, heights[p.name], max(p.alignment, alignment), internal=not options.pools)
            for p in workspace
        ),
        ("ethos_u",) if npu else (),
        options.workspace_io,
        sum(heights[p.name] for p in workspace),
        tuple(
            WorkspacePool(p.name, heights[p.name], max(p.alignment, alignment), internal=False)
            for p in options.constant_pools
        ),
    )
    return interface, [PoolSpec(p.name, heights[p.name], p.alignment) for p in passed]
