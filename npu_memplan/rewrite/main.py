"""Relax `main` on pools.

Invariant: statement order is the program's. When inputs and outputs are planned, `main` takes the
writable pools and returns nothing; otherwise it keeps its signature, makes the pools itself, and
allocates only what the plan left out. A read-only pool is one constant of `main`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from ..extract.lower import prepare
from ..extract.program import Program, View
from ..extract.relax.walk import walk
from ..extract.sizes import entry_symbols, size_bytes, static_extent
from ..extract.tir import nodes_of
from ..problem import BufferKind, Plan, Problem
from ..vocabulary import (
    CALLS,
    CONSTANT_POOLS,
    FORMULAS,
    INITIALISE,
    KEPT,
    PLACED_CONSTANTS,
    PLACED_INPUTS,
    PLACED_OUTPUTS,
    PLACED_STATES,
    POOL_DEVICES,
    POOLS,
    SYMBOLS,
)
from .aliasing import Apart, settled
from .definitions import Definitions
from .emit import Emitter
from .formula import formula
from .kernels import Kernels
from .pools import PlannedPool, PoolSlot, holds_boundary, pools_of

_CONSTANTS = (BufferKind.CONSTANT, BufferKind.RESIDENT)


def rewrite(module: Any, problem: Problem, plan: Plan, *, poison: int | None = None) -> Any:
    """The planned module: `problem` was extracted from `module`, `plan` answers it.

    The problem's name is the name of the Relax function; functions it does not call stay as they
    are. With `poison`, `main` first fills the pools that it makes itself with this byte, so that
    reading what was never written shows.
    """
    module = prepare(module)
    constants = any(b.kind is BufferKind.CONSTANT for b in problem.buffers)
    program = walk(module, problem.name, constants=constants)
    pools, slots = pools_of(problem, plan, program)
    return rewrite_program(module, program, pools, slots, poison=poison)


def rewrite_program(
    module: Any,
    program: Program,
    pools: Sequence[PlannedPool],
    slots: Mapping[str, PoolSlot],
    *,
    poison: int | None = None,
    definitions: Definitions = (),
    apart: Apart = lambda first, second: False,
    kept: bool = False,
    kernels: Kernels | None = None,
) -> Any:
    """`rewrite` with the placements as `slots`.

    Their offsets and the pools' bytes may be variables that `definitions` define, level by level; which storages share
    no byte then, `apart` knows. With `kept`, the function takes its pools behind its own parameters, at least as large
    as it needs them. A caller that plans several functions, each in a part of the module, gives the `kernels` that they
    share, and joins the parts (`joined`).
    """
    io_in_pools = holds_boundary(program, slots)
    alone = kernels is None
    replaced = {call.function for call in program.calls}
    if kernels is None:
        replaced -= {used for used, users in users_of(module).items() if users - {program.name}}
        kernels = Kernels({gv.name_hint for gv in module.functions} - replaced)
        kernels.share(program, pools, slots, apart)
    function = program.function
    emitter = Emitter(program, pools, slots, kernels, apart)
    builder = emitter.builder
    given = _pool_parameters(pools) if io_in_pools else None
    kept = kept and not io_in_pools
    larger = [_kept_parameter(p) for p in pools if not p.read_only] if kept else None
    symbols = sorted(entry_symbols(function), key=lambda v: v.name) if io_in_pools else []
    shape = [relax.Var("symbols", relax.ShapeType(symbols))] if symbols else []
    parameters = [*given, *shape] if given is not None else [*function.params, *(larger or ())]
    with builder.function(program.name, parameters, pure=False):
        emitter.check_bounds()
        emitter.define(definitions, [*(pool.size for pool in pools), *(slot.offset for slot in slots.values())])
        emitter.make_pools(given, poison, larger)
        if not io_in_pools:
            emitter.take_inputs()
        emitter.statements(program.statements)
        result = relax.Tuple([]) if io_in_pools else emitter.value(program.result)
        builder.emit_func_output(result)
    initialise = _initialise(emitter, program.name) if io_in_pools else ""
    planned = builder.finalize()
    # A planned function writes into pools, and says so.
    attributes = {key: value for key, value in function.attrs.items() if key != "relax.force_pure"}
    attributes |= {**_described(program, pools, slots, boundary=io_in_pools), CALLS: emitter.described}
    if definitions:
        attributes[FORMULAS] = [[v.name, formula(e, choices=True)] for level in definitions for v, e in level]
    if kept:
        attributes[KEPT] = True
    if symbols:
        attributes[SYMBOLS] = [[v.name, program.bounds[v]] for v in symbols]
    if initialise:
        attributes[INITIALISE] = initialise
        gv = planned.get_global_var(initialise)
        planned.update_func(gv, planned[gv].with_attr(POOLS, attributes[POOLS]))
    made = planned[program.name]
    declared = made.ret_ty if io_in_pools else function.ret_ty  # which the run time checks
    made = relax.Function(made.params, made.body, declared, made.is_pure, made.attrs)
    planned.update_func(planned.get_global_var(program.name), made.with_attr(attributes))
    for gv, other in module.functions.items():
        if gv.name_hint != program.name and gv.name_hint not in replaced:
            planned.update_func(gv, other)
    if alone:
        _relink(planned, {program.name: planned.get_global_var(program.name)})
    for key, infos in module.global_infos.items():
        planned.update_global_info(key, list(infos))
    planned = planned.with_attrs(dict(module.attrs.items())) if module.attrs else planned
    return settled(planned) if alone else planned


def _pool_parameters(pools: Sequence[PlannedPool]) -> list[Any]:
    """Parameters for the pools that the caller supplies."""
    return [relax.Var(p.name, p.type) for p in pools if not p.read_only]


def _kept_parameter(pool: PlannedPool) -> Any:
    """A parameter for a pool that is as large as the caller made it."""
    extent = tirx.Var(f"{pool.name}_given", "int64")
    return relax.Var(pool.name, relax.TensorType((extent,), "uint8", pool.vdevice))


def _initialise(emitter: Emitter, name: str) -> str:
    """Adds the function that puts constants into the caller's pools; its name, or "" when there are none."""
    writable = [p for p in emitter.pools if not p.read_only]
    if not any(p.constants for p in writable):
        return ""
    parameters = _pool_parameters(writable)
    own = emitter.kernels.names.unique(f"{name}_initialise")
    with emitter.builder.function(own, parameters, pure=False):
        for pool, parameter in zip(writable, parameters, strict=True):
            emitter.initialise(pool, parameter)
        emitter.builder.emit_func_output(relax.Tuple([]))
    return own


def joined(module: Any, parts: Mapping[str, Any], replaced: Collection[str]) -> Any:
    """`module` with each function that has a planned part as that one has it, and without what is `replaced`."""
    own = {gv.name_hint for gv in module.functions} - set(replaced) - set(parts)
    functions = {gv: f for gv, f in module.functions.items() if gv.name_hint in own}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        for gv, function in part.functions.items():
            original = gv.name_hint in own or (gv.name_hint in parts and gv.name_hint != name)
            if not original and gv.name_hint not in found:
                found[gv.name_hint] = gv
                functions[gv] = function
    result = ir.IRModule(functions, module.attrs, dict(module.global_infos.items()))
    _relink(result, found)
    return settled(result)


def _relink(module: Any, current: Mapping[str, Any]) -> None:
    """Points references to functions that are in `current`, by name, at these."""

    def link(gv: Any) -> Any:
        return current.get(gv.name_hint, gv)

    for gv, function in list(module.functions.items()):
        if isinstance(function, relax.Function):
            module.update_func(gv, tvm_ffi.structural_map(function, (ir.GlobalVar, link)))


def users_of(module: Any) -> dict[str, set[str]]:
    """Names of functions -> names of the functions that refer to them."""
    found: dict[str, set[str]] = {}
    for gv, function in module.functions.items():
        for used in references(function):
            found.setdefault(used, set()).add(gv.name_hint)
    return found


def references(function: Any) -> set[str]:
    """Names of the functions that a function refers to."""
    return {used.name_hint for used in nodes_of(function.body, ir.GlobalVar)}


def _plain(size: Any) -> Any:
    extent = static_extent(size)
    return extent if extent is not None else formula(size, choices=True)


def _described(
    program: Program, pools: Sequence[PlannedPool], slots: Mapping[str, PoolSlot], *, boundary: bool
) -> dict[str, Any]:
    """The attributes that say what lies where; inputs, outputs and states where they are in the pools."""

    def entry(view: View) -> dict[str, Any]:
        tensor, slot = view.tensor, slots[view.tensor.name]
        return {
            "name": tensor.name,
            "dtype": view.dtype,
            "shape": [static_extent(e) if static_extent(e) is not None else formula(e) for e in view.shape],
            "pool": pools[slot.pool].name,
            "offset_bytes": slot.offset + view.offset_bytes,
            "size_bytes": size_bytes(view.shape, view.dtype) if view.partial else tensor.size_bytes,
        }

    found: dict[str, Any] = {POOLS: [[p.name, _plain(p.size)] for p in pools if not p.read_only]}
    if program.vdevices:
        found[POOL_DEVICES] = [p.device for p in pools if not p.read_only]
    constants = [entry(t.whole) for t in program.tensors if t.kind in _CONSTANTS]
    if constants:
        found[CONSTANT_POOLS] = [[p.name, p.size] for p in pools if p.read_only]
        found[PLACED_CONSTANTS] = constants
    if boundary:
        inputs = [t for t in program.inputs if t.kind is not BufferKind.STATE]
        found[PLACED_INPUTS] = [entry(t.whole) for t in inputs]
        found[PLACED_OUTPUTS] = [entry(v) for v in program.results]
        found[PLACED_STATES] = [entry(t.whole) for t in program.inputs if t.kind is BufferKind.STATE]
    return found
