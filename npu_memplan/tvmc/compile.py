"""`tvmc compile`: a model file to a Model Library Format tar.

Invariant: the tar appears complete or not at all. Regions are the legacy ones: workspace pools 1, 2, 5; the
first input 3, the first output 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from ..artifact.model import TensorSlot
from ..codegen.description import tensor_slots
from ..codegen.header import ModuleInterface
from ..codegen.interface import PoolSpec
from ..codegen.mlf import Library, build_library
from ..frontend.attributes import quantised_tensors
from ..options import AUTO, NO_NPU, CompileOptions
from ..pipeline import extract_problem, lower, plan, read
from ..planners import prefetch
from ..problem import BufferKind, Plan, Pool, Problem, used_bytes
from ..request import Loaded, Request, StripeOptions
from ..rewrite import rewrite
from ..stages import Extracted, Planned
from ..tuning.tune import prefetch_weights, tune
from ..verify import check_own
from ..vocabulary import PLACED_INPUTS, PLACED_OUTPUTS, REGIONS, is_npu
from . import TvmcError
from .options import TvmcOptions

_WORKSPACE_REGIONS = (1, 2, 5)
_INPUT_REGIONS, _OUTPUT_REGIONS = (3, 6), (4, 7)
DEFAULT_POOL = "global_workspace"
_MEMORY_MODE = "Shared_Sram"  # workspaces are SRAM, whatever the accelerator


def compile_to_mlf(options: TvmcOptions, date: datetime | None = None) -> Library:
    """Compile the model that `options` name; nothing is written or run."""
    return library_of(options, plan_program(options), date)


def library_of(options: TvmcOptions, made: Planned, date: datetime | None = None) -> Library:
    """The library of the program that `plan_program` made of the same options."""
    count = len(made.extracted.loaded.request.pools)
    module, problem = made.extracted.loaded.module, made.extracted.problem
    planned = _with_regions(rewrite(module, problem, made.plan), _npu_regions(options, problem, count))
    interface, pools = _module_interface(options, module, planned, problem, made.plan, count)
    source = module.script(show_meta=True)
    return build_library(planned, interface, pools, source, options.strings, date or datetime.now(timezone.utc))


def plan_program(options: TvmcOptions) -> Planned:
    """The program that `npu-memplan compile` would take, in the pools of `options`."""
    pools = options.pools or (Pool(DEFAULT_POOL),)
    if len(pools) > len(_WORKSPACE_REGIONS):
        raise TvmcError(
            f"{len(pools)} workspace pools were given, but the NPU's base addresses leave room for "
            f"{len(_WORKSPACE_REGIONS)}; name fewer in --workspace-pools"
        )
    requested = _compile_options(options, pools)

    def load_program(wanted: CompileOptions, names: Sequence[str]) -> Loaded:
        loaded = read(options.model, _stage_request(options, wanted, pools, names))
        _check_stateless(loaded.module, options)
        # Vela's arena has inputs and outputs
        return replace(lower(loaded), vela_arena_bytes=loaded.vela_arena_bytes if options.workspace_io else {})

    def extract(loaded: Loaded) -> Extracted:
        own = None if options.workspace_io else lambda made: _own_io_pools(made.problem, len(pools))
        return extract_problem(loaded).under_terms(own)

    given = [pool.name for pool in pools]
    known = [pool.name for pool in requested.planned_pools()]  # the first pool is the options' own, by its name
    names = [*known, *(f"workspace {number}" for number in range(len(known), len(pools)))]
    tuned = None
    if not options.striping:
        tuned = tune(requested, lambda wanted: load_program(wanted, names), options.model.name, extract)
    if tuned is not None:
        return _with_pool_names(tuned, dict(zip(names, given, strict=False)))
    alone = replace(requested, npu_compiler="tvm") if requested.npu_compiler == AUTO else requested
    return prefetch_weights(plan(extract(load_program(alone, given))))


def _compile_options(options: TvmcOptions, pools: Sequence[Pool]) -> CompileOptions:
    """The same options for `npu-memplan compile`, resolved; where one program is left, for the fewest bytes."""
    compared = options.planner in prefetch.SEARCHING and not options.striping
    sized = any(pool.size_bytes is not None for pool in pools)
    made = CompileOptions(
        accelerator=options.accelerator or NO_NPU,
        memory_mode=_MEMORY_MODE,
        npu_compiler=options.npu_compiler,
        optimise="Size" if options.cascader else "Performance",
        host_ops=options.host_ops,
        planner=options.planner,
        reuse_inputs=options.workspace_io,
        objective="auto" if compared or sized else "bytes",
        effort="normal" if compared or sized else "quick",
    )
    size = pools[0].size_bytes
    return replace(made, pools={} if size is None else {made.planned_pools()[0].name: size}).resolve_defaults()


def _stage_request(
    options: TvmcOptions, wanted: CompileOptions, pools: Sequence[Pool], names: Sequence[str]
) -> Request:
    """The request that these options make: the first pool as large as `wanted` has it, pools by other `names`."""
    stripes = None
    if options.striping:
        capacity = pools[0].size_bytes if len(pools) == 1 else None
        stripes = StripeOptions(capacity, options.workspace_io, options.workspace_io)
    sizes = [wanted.planned_pools()[0].size_bytes, *(pool.size_bytes for pool in pools[1:])]
    named = tuple(
        replace(pool, name=name, size_bytes=size) for pool, name, size in zip(pools, names, sizes, strict=False)
    )
    return Request(wanted.resolve_defaults(), named, options.constant_pools, stripes, options.model_format)


def _with_pool_names(planned: Planned, names: Mapping[str, str]) -> Planned:
    """The same with pools by other names."""

    def pool_name(pool: str) -> str:
        return names.get(pool, pool)

    problem, made = planned.extracted.problem, planned.plan
    problem = replace(
        problem,
        pools=tuple(replace(pool, name=pool_name(pool.name)) for pool in problem.pools),
        buffers=tuple(replace(buffer, pools=tuple(map(pool_name, buffer.pools))) for buffer in problem.buffers),
    )
    made = replace(
        made,
        placements=tuple(replace(one, pool=pool_name(one.pool)) for one in made.placements),
        usage=tuple(replace(one, pool=pool_name(one.pool)) for one in made.usage),
    )
    check_own(problem, made)
    return Planned(replace(planned.extracted, problem=problem), made)


def _check_stateless(module: Any, options: TvmcOptions) -> None:
    states = quantised_tensors(module["main"], "state")
    if states:
        raise TvmcError(
            f"{options.model.name} keeps {len(states)} tensors from one run to the next, and a Model Library Format "
            "module has no memory that outlives a run and no function that initialises it; use npu-memplan compile, "
            "whose header says where the states are and what they start with"
        )


def _own_io_pools(problem: Problem, count: int) -> Problem:
    """The caller's input and output arrays as pools of one tensor each, after the workspace pools."""
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


def _npu_regions(options: TvmcOptions, problem: Problem, count: int) -> list[int]:
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


def _module_interface(
    options: TvmcOptions, module: Any, planned: Any, problem: Problem, plan: Plan, count: int
) -> tuple[ModuleInterface, list[PoolSpec]]:
    heights = used_bytes(problem, plan.placements)
    main = planned["main"]
    passed = [pool for pool in problem.pools if not pool.read_only]

    def placed_tensors(attribute: str, kind: str) -> tuple[TensorSlot, ...]:
        entries = main.attrs[attribute]
        found = zip(entries, tensor_slots(entries, quantised_tensors(module["main"], kind)), strict=True)
        return tuple(slot if slot.name else replace(slot, name=str(entry["name"])) for entry, slot in found)

    def pool_specs(pools: Sequence[Pool]) -> tuple[PoolSpec, ...]:
        least = options.workspace_alignment
        return tuple(PoolSpec(p.name, heights[p.name], max(p.alignment, least)) for p in pools)

    npu = any(is_npu(f) for f in planned.functions.values())
    interface = ModuleInterface(
        options.module_name,
        placed_tensors(PLACED_INPUTS, "input"),
        placed_tensors(PLACED_OUTPUTS, "output"),
        pool_specs(problem.pools[:count]),
        not options.pools,
        ("ethos_u",) if npu else (),
        options.workspace_io,
        pool_specs(options.constant_pools),
    )
    return interface, [PoolSpec(p.name, heights[p.name], p.alignment) for p in passed]
