"""A PrimFunc on pools: one call's storages at the offsets of a plan.

Invariant: the operations are unchanged. Only where buffers lie changes: a planned parameter or
allocation becomes `decl_buffer(..., data=address_of(pool[offset]))`, whose pointer is the planned
byte itself. Parameters are the pools in order, then constants, then tensors and scalars that the
plan does not place, then the shape symbols that lost the tensor they were read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.analysis import undefined_vars

from ..extract.calls import symbol_values
from ..extract.lower import is_npu
from ..extract.program import Fixed, Invoke, Plain, View
from ..extract.sizes import static_extent

REGIONS = "npu.regions"
"""Attribute of a planned PrimFunc: the NPU region of each pool parameter."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Bytes of a pool: index of the pool, offset in bytes (an int, or an expression of symbols)."""

    pool: int
    offset: Any


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The planned PrimFunc and the arguments of its call after the pools."""

    function: Any
    arguments: tuple[View | Fixed | Plain, ...]


def place(call: Invoke, pools: Sequence[tuple[str, Any]], slots: Mapping[str, Slot]) -> Rewritten:
    """`call`'s PrimFunc on `pools` (name, bytes); `slots` holds the planned storages by name."""
    return _Placer(call, pools, slots).run()


class _Placer:
    def __init__(self, call: Invoke, pools: Sequence[tuple[str, Any]], slots: Mapping[str, Slot]) -> None:
        self.call = call
        self.slots = slots
        self.function, self.renamed = fresh(call.primfunc)
        taken = {p.name for p in self.function.params}
        self.pools = [_pool_buffer(_free(name, taken), size) for name, size in pools]
        self.offsets: dict[int, tuple[Any, Plain]] = {}

    def run(self) -> Rewritten:
        function, call = self.function, self.call
        constants: list[tuple[Any, View | Fixed | Plain]] = []
        others: list[tuple[Any, View | Fixed | Plain]] = []
        declarations = []
        known: dict[Any, Any] = {}  # symbols whose value the call fixes
        for parameter, argument in zip(function.params, call.arguments, strict=True):
            if isinstance(argument, View) and argument.tensor.name in self.slots:
                declarations.append(self.declare(parameter, self.slots[argument.tensor.name]))
            elif isinstance(argument, Plain) and static_extent(argument.expr) is not None:
                known[parameter] = argument.expr
            else:
                (constants if isinstance(argument, Fixed) else others).append((parameter, argument))
        homes = {
            self.renamed[internal.allocation.buffer]: self.slots[internal.name]
            for internal in call.internals
            if internal.name in self.slots
        }

        def rebase(statement: Any) -> Any:
            slot = homes.get(statement.buffer)
            return statement if slot is None else self.declare(statement.buffer, slot)

        body = tvm_ffi.structural_map(function.body, (tirx.AllocBuffer, rebase))
        body = tirx.SeqStmt([*declarations, body]) if declarations else body
        kept: list[tuple[Any, View | Fixed | Plain]] = [*constants, *others, *self.offsets.values()]
        for symbol, value in self.symbols(body, [p for p, _ in kept]):
            if static_extent(value.expr) is None:
                kept.append((symbol, value))
            else:
                known[symbol] = value.expr
        if known:
            body = tvm_ffi.structural_map(body, (ir.Var, lambda v: _as(known[v], v) if v in known else v))
        result = tirx.PrimFunc([*self.pools, *(p for p, _ in kept)], body, function.ret_type, function.attrs)
        for attribute in ("tirx.noalias", "global_symbol"):  # two parameters may now lie in one pool
            if result.attrs is not None and attribute in result.attrs:
                result = result.without_attr(attribute)
        if is_npu(function):
            result = result.with_attr(REGIONS, list(range(1, len(self.pools) + 1)))
        return Rewritten(result, tuple(a for _, a in kept))

    def declare(self, buffer: Any, slot: Slot) -> Any:
        offset = slot.offset
        if static_extent(offset) is None:
            key = tvm_ffi.structural_hash(offset)
            if key not in self.offsets:
                name = f"offset_{len(self.offsets)}"
                self.offsets[key] = (tirx.Var(name, "int64"), Plain(offset))
            offset = self.offsets[key][0]
        return tirx.DeclBuffer(buffer, data=tirx.address_of(tirx.BufferLoad(self.pools[slot.pool], [offset])))

    def symbols(self, body: Any, parameters: Sequence[Any]) -> list[tuple[Any, Plain]]:
        """Shape symbols that no remaining parameter defines, with their values in the caller."""
        free = undefined_vars(body, [*self.pools, *parameters])
        values = {self.renamed.get(v, v): value for v, value in symbol_values(self.call).items()}
        return [(v, Plain(values[v])) for v in free if v in values]


def fresh(function: Any) -> tuple[Any, dict[Any, Any]]:
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


def _as(value: Any, symbol: Any) -> Any:
    return tirx.IntImm(str(symbol.ty.dtype), int(value))


def _pool_buffer(name: str, size: Any) -> Any:
    """The parameter for a pool; a pool of symbolic size has a symbol of its own as its extent."""
    extent = static_extent(size)
    shape = (max(1, extent) if extent is not None else tirx.Var(f"{name}_bytes", "int64"),)
    return tirx.decl_buffer(shape, "uint8", name=name, layout=None)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_pool"
    return name
