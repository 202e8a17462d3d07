"""Relax `main` on pools.

Invariant: statement order is the program's. When inputs and outputs are planned, `main` takes the
pools and returns nothing; otherwise it keeps its signature, makes the pools itself, and allocates
only what the plan left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax

from ..extract.lower import prepare
from ..extract.program import Program, Tensor, View, result_views
from ..extract.relax_walk import walk
from ..extract.sizes import static_extent
from ..problem import BufferKind, Plan, Problem, used_bytes
from .emit import Emitter
from .primfunc import Slot

POOLS = "npu.pools"
"""Attribute of a planned main: (name, bytes used) of every pool."""
PLACED_INPUTS, PLACED_OUTPUTS, PLACED_STATES = "npu.placed_inputs", "npu.placed_outputs", "npu.placed_states"
"""Attributes of a planned main: name, dtype, shape, pool, offset_bytes, size_bytes of each tensor."""


def rewrite(module: Any, problem: Problem, plan: Plan, *, poison: int | None = None) -> Any:
    """The planned module: `problem` was extracted from `module`, `plan` answers it.

    The problem's name is the name of the Relax function; functions it does not call stay as they
    are. With `poison`, `main` first fills the pools that it makes itself with this byte, so that
    reading what nobody wrote shows.
    """
    module = prepare(module)
    program = walk(module, problem.name)
    pools, slots = slots_of(problem, plan)
    return rewrite_program(module, program, pools, slots, poison=poison)


def slots_of(problem: Problem, plan: Plan) -> tuple[list[tuple[str, Any]], dict[str, Slot]]:
    """(name, bytes used) of every pool in order, and where each buffer lies."""
    heights = used_bytes(problem, plan.placements)
    pools: list[tuple[str, Any]] = [(pool.name, heights[pool.name]) for pool in problem.pools]
    index = {name: i for i, (name, _) in enumerate(pools)}
    return pools, {p.buffer: Slot(index[p.pool], p.offset_bytes) for p in plan.placements}


def rewrite_program(
    module: Any,
    program: Program,
    pools: Sequence[tuple[str, Any]],
    slots: Mapping[str, Slot],
    *,
    poison: int | None = None,
) -> Any:
    """`rewrite` with the placements as `slots`: their offsets and the pools' bytes may be symbolic."""
    boundary = [*program.inputs, *(v.tensor for v in result_views(program.result) if isinstance(v, View))]
    io_in_pools = bool(boundary) and all(t.name in slots for t in boundary)
    replaced = {call.function for call in program.calls} - _used_elsewhere(module, program.name)
    taken = {gv.name_hint for gv in module.functions} - replaced
    function = program.function
    emitter = Emitter(program, pools, slots, taken)
    builder = emitter.builder
    if io_in_pools:
        emitter.pool_vars = [relax.Var(name, relax.TensorType((max(1, size),), "uint8")) for name, size in pools]
    parameters = list(emitter.pool_vars) if io_in_pools else list(function.params)
    with builder.function(program.name, parameters, pure=False):
        if not io_in_pools:
            emitter.check_bounds()
            emitter.make_pools(poison)
            emitter.take_inputs()
        emitter.statements(program.statements)
        result = relax.Tuple([]) if io_in_pools else emitter.value(program.result, function.body.body)
        builder.emit_func_output(result)
    planned = builder.finalize()
    main = planned[program.name]
    for key, value in function.attrs.items() if function.attrs is not None else ():
        main = main.with_attr(key, value)
    main = main.with_attr(POOLS, [[name, _plain(size)] for name, size in pools])
    if io_in_pools:
        for key, tensors in _boundary(program, pools, slots).items():
            main = main.with_attr(key, tensors)
    planned.update_func(planned.get_global_var(program.name), main)
    for gv, other in module.functions.items():
        if gv.name_hint != program.name and gv.name_hint not in replaced:
            planned.update_func(gv, other)
    _relink(planned, program.name)
    for key, infos in module.global_infos.items():
        planned.update_global_info(key, list(infos))
    if module.attrs is not None:
        planned = planned.with_attrs(dict(module.attrs.items()))
    return planned


def _relink(module: Any, name: str) -> None:
    """Points every reference to function `name` in the other functions at its planned form."""
    current = module.get_global_var(name)

    def link(gv: Any) -> Any:
        return current if gv.name_hint == name else gv

    for gv, function in module.functions.items():
        if isinstance(function, relax.Function) and not gv.same_as(current):
            module.update_func(gv, tvm_ffi.structural_map(function, (ir.GlobalVar, link)))


def _used_elsewhere(module: Any, name: str) -> set[str]:
    """Names of functions that other functions than `name` refer to."""
    found: set[str] = set()
    for gv, function in module.functions.items():
        if gv.name_hint != name:
            tvm_ffi.structural_walk(function.body, (ir.GlobalVar, lambda v: found.add(v.name_hint)))
    return found


def _plain(size: Any) -> Any:
    extent = static_extent(size)
    return extent if extent is not None else str(size)


def _boundary(
    program: Program, pools: Sequence[tuple[str, Any]], slots: Mapping[str, Slot]
) -> dict[str, list[dict[str, Any]]]:
    """What the caller must know: where inputs, outputs and states lie."""

    def entry(tensor: Tensor, shape: Any, dtype: str) -> dict[str, Any]:
        slot = slots[tensor.name]
        return {
            "name": tensor.name,
            "dtype": dtype,
            "shape": [int(extent) for extent in shape],
            "pool": pools[slot.pool][0],
            "offset_bytes": slot.offset,
            "size_bytes": tensor.size_bytes,
        }

    outputs = [leaf for leaf in result_views(program.result) if isinstance(leaf, View)]
    return {
        PLACED_INPUTS: [entry(t, t.shape, t.dtype) for t in program.inputs if t.kind is not BufferKind.STATE],
        PLACED_OUTPUTS: [entry(v.tensor, v.shape, v.dtype) for v in outputs],
        PLACED_STATES: [entry(t, t.shape, t.dtype) for t in program.inputs if t.kind is BufferKind.STATE],
    }
