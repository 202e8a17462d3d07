"""`tvmc compile`: a model file to a Model Library Format tar.

Invariant: the tar appears complete or not at all. Regions are the legacy ones: workspace pools 1, 2, 5; the
first input 3, the first output 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from ..artifact.parts import TensorSlot
from ..codegen.described import slots
from ..codegen.interface import PoolSpec
from ..codegen.interface_c import ModuleInterface
from ..codegen.mlf import Library, build_library
from ..frontend.attributes import quantised
from ..options import NO_NPU, CompileOptions
from ..pipeline import extract_problem, lower, plan, read
from ..problem import BufferKind, Plan, Pool, Problem, used_bytes
from ..request import Request
from ..rewrite import rewrite
from ..tuning.tune import prefetch_weights
from ..vocabulary import PLACED_INPUTS, PLACED_OUTPUTS, REGIONS, is_npu
from . import TvmcError
from .options import TvmcOptions

_WORKSPACE_REGIONS = (1, 2, 5)
_INPUT_REGIONS, _OUTPUT_REGIONS = (3, 6), (4, 7)
DEFAULT_POOL = "global_workspace"


def compile_to_mlf(options: TvmcOptions, date: datetime | None = None) -> Library:
    """Compile the model that `options` name; nothing is written."""
    loaded = read(options.model, _request(options))
    _check_stateless(loaded.module, options)
    extracted = extract_problem(lower(loaded))
    count = len(extracted.loaded.request.pools)
    if not options.workspace_io:
        extracted = extracted.under_terms(lambda any_: _own_io_pools(any_.problem, count))
    made = prefetch_weights(plan(extracted))
    module, problem = made.extracted.loaded.module, made.extracted.problem
    planned = _with_regions(rewrite(module, problem, made.plan), _regions(options, problem, count))
    interface, pools = _interface(options, module, planned, problem, made.plan, count)
    source = module.script(show_meta=True)
    return build_library(planned, interface, pools, source, options.strings, date or datetime.now(timezone.utc))


def _request(options: TvmcOptions) -> Request:
    """What these options ask of the stages."""
    pools = options.pools or (Pool(DEFAULT_POOL),)
    if len(pools) > len(_WORKSPACE_REGIONS):
        raise TvmcError(
            f"{len(pools)} workspace pools were given, but the NPU's base addresses leave room for "
            f"{len(_WORKSPACE_REGIONS)}; name fewer in --workspace-pools"
        )
    requested = CompileOptions(
        accelerator=options.accelerator or NO_NPU,
        npu_compiler=options.npu_compiler,
        optimise="Size" if options.cascader else "Performance",
        planner=options.planner,
        reuse_inputs=options.workspace_io,
        objective="cycles" if any(pool.size_bytes is not None for pool in pools) else "bytes",
    )
    stripes = None
    if options.striping:
        from ..request import StripeOptions

        capacity = pools[0].size_bytes if len(pools) == 1 else None
        stripes = StripeOptions(capacity, options.workspace_io, options.workspace_io)
    return Request(requested.resolved(), pools, options.constant_pools, stripes, options.model_format)


def _check_stateless(module: Any, options: TvmcOptions) -> None:
    states = quantised(module["main"], "state")
    if states:
        raise TvmcError(
            f"{options.model.name} keeps {len(states)} tensors from one run to the next, and a Model Library Format "
            "module has no memory that outlives a run and no function that initialises it; use npu-memplan compile, "
            "whose header says where the states are and what they start with"
        )


def _own_io_pools(problem: Problem, count: int) -> Problem:
    """The caller's input and output arrays as pools of one tensor each, behind the workspace pools."""
    workspace = tuple(pool.name for pool in problem.pools[:count])
    extra, buffers = [], []
    for buffer in problem.buffers:
        if buffer.kind in (BufferKind.INPUT, BufferKind.OUTPUT):
            pool = Pool(f"io.{buffer.name}", buffer.size_bytes)
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
    free = {BufferKind.INPUT: list(_INPUT_REGIONS), BufferKind.OUTPUT: list(_OUTPUT_REGIONS)}
    for pool in problem.pools[count:]:
        left = free.get(kinds.get(pool.name, BufferKind.CONSTANT))
        if left is None:
            continue
        if not left:
            raise TvmcError(
                f"{options.model.name} has more than {len(_INPUT_REGIONS)} inputs or outputs, which exceeds the "
                "NPU's base addresses; keep them in the workspace with --pass-config tir.usmp.use_workspace_io=1"
            )
        regions.append(left.pop(0))
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

    def tensors(attribute: str, kind: str) -> tuple[TensorSlot, ...]:
        entries = main.attrs[attribute]
        found = zip(entries, slots(entries, quantised(module["main"], kind)), strict=True)
        return tuple(slot if slot.name else replace(slot, name=str(entry["name"])) for entry, slot in found)

    def specs(pools: Sequence[Pool]) -> tuple[PoolSpec, ...]:
        least = options.workspace_alignment
        return tuple(PoolSpec(p.name, heights[p.name], max(p.alignment, least)) for p in pools)

    npu = any(is_npu(f) for f in planned.functions.values())
    interface = ModuleInterface(
        options.module_name,
        tensors(PLACED_INPUTS, "input"),
        tensors(PLACED_OUTPUTS, "output"),
        specs(problem.pools[:count]),
        not options.pools,
        ("ethos_u",) if npu else (),
        options.workspace_io,
        specs(options.constant_pools),
    )
    return interface, [PoolSpec(p.name, heights[p.name], p.alignment) for p in passed]
