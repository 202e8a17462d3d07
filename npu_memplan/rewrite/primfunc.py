"""A PrimFunc on pools: one call's storages at the offsets of a plan.

Invariant: the operations are unchanged. Only where buffers lie changes: a planned parameter or
allocation becomes `decl_buffer(..., data=address_of(pool[offset]))`, whose pointer is the planned
byte itself. Parameters are the pools in order, then constants, then tensors and scalars that the
plan does not place, in the order of the original parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ..extract.lower import is_npu
from ..extract.program import Fixed, Invoke, Plain, View

REGIONS = "npu.regions"
"""Attribute of a planned PrimFunc: the NPU region of each pool parameter."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Bytes of a pool: index of the pool, offset in bytes (an int or an expression)."""

    pool: int
    offset: Any


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The planned PrimFunc and the arguments of its call after the pools."""

    function: Any
    arguments: tuple[View | Fixed | Plain, ...]


def place(call: Invoke, pools: Sequence[tuple[str, int]], slots: Mapping[str, Slot]) -> Rewritten:
    """`call`'s PrimFunc on `pools` (name, bytes); `slots` holds the planned storages by name."""
    function, renamed = _fresh(call.primfunc)
    taken = {p.name for p in function.params}
    buffers = [tirx.decl_buffer((max(1, size),), "uint8", name=_free(name, taken), layout=None) for name, size in pools]
    constants: list[tuple[Any, Fixed]] = []
    others: list[tuple[Any, View | Plain]] = []
    declarations = []
    for parameter, argument in zip(function.params, call.arguments, strict=True):
        if isinstance(argument, View) and argument.tensor.name in slots:
            declarations.append(_declare(parameter, buffers, slots[argument.tensor.name]))
        elif isinstance(argument, Fixed):
            constants.append((parameter, argument))
        else:
            others.append((parameter, argument))
    homes = {
        renamed[internal.allocation.buffer]: slots[internal.name]
        for internal in call.internals
        if internal.name in slots
    }

    def rebase(statement: Any) -> Any:
        slot = homes.get(statement.buffer)
        return statement if slot is None else _declare(statement.buffer, buffers, slot)

    body = tvm_ffi.structural_map(function.body, (tirx.AllocBuffer, rebase))
    parameters = [*buffers, *(p for p, _ in constants), *(p for p, _ in others)]
    result = tirx.PrimFunc(parameters, tirx.SeqStmt([*declarations, body]), function.ret_type, function.attrs)
    for attribute in ("tirx.noalias", "global_symbol"):  # two parameters may now lie in one pool
        if result.attrs is not None and attribute in result.attrs:
            result = result.without_attr(attribute)
    if is_npu(function):
        result = result.with_attr(REGIONS, list(range(1, len(pools) + 1)))
    return Rewritten(result, (*(a for _, a in constants), *(a for _, a in others)))


def _fresh(function: Any) -> tuple[Any, dict[Any, Any]]:
    """A copy of `function` that shares no variable with it, and old variable -> new variable.

    One variable in two functions of a module does not survive a TVMScript round trip.
    """
    renamed: dict[Any, Any] = {}

    def define(var: Any, kind: Any) -> None:
        if kind != tvm_ffi.DefRegionKind.NONE and var not in renamed:
            ty = tvm_ffi.structural_map(var.ty, (ir.Var, lambda v: renamed.get(v, v)))
            renamed[var] = ir.Var(var.name, ty)

    tvm_ffi.structural_walk(function, with_def_region_kind=(ir.Var, define), order="pre")
    return tvm_ffi.structural_map(function, (ir.Var, lambda v: renamed.get(v, v))), renamed


def _declare(buffer: Any, pools: Sequence[Any], slot: Slot) -> Any:
    return tirx.DeclBuffer(buffer, data=tirx.address_of(tirx.BufferLoad(pools[slot.pool], [slot.offset])))


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_pool"
    return name
