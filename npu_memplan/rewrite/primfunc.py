"""A PrimFunc on pools: one call's storages at the offsets of a plan.

Invariant: the operations are unchanged. Only where buffers lie changes: a planned parameter or
allocation becomes `decl_buffer(..., data=address_of(pool[offset]))`, whose pointer is the planned
byte itself. NPU operations take pointers only, so there it becomes a variable for
`address_of(pool[offset])`: TVMScript's parser nests a frame for each declared buffer, and overflows
Python's stack below 500 of them, which streams exceed. Parameters are the writable pools and
those of its constants in order, then constants that lie in no pool, then tensors and scalars that
the plan does not place, then the shape symbols that lost the tensor they were read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.analysis import undefined_vars

from ..extract.program import Fixed, Invoke, Plain, View
from ..extract.sizes import static_extent
from ..extract.tir import operator_of
from ..vocabulary import REGIONS, is_npu
from .pools import PlannedPool, PoolSlot


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The planned PrimFunc, and what its calls pass.

    `pools` are the indices of the pools that it takes, `positions` are the original arguments that
    are passed on, `offsets` are the storages (as `storages_of` numbers them) whose offsets are, `symbols`
    are the PrimFunc's own shape symbols (of the original function).
    """

    function: Any
    pools: tuple[int, ...]
    positions: tuple[int, ...]
    offsets: tuple[int, ...]
    symbols: tuple[Any, ...]

    def arguments(
        self, call: Invoke, values: Mapping[Any, Any], slots: Mapping[str, PoolSlot]
    ) -> list[View | Fixed | Plain]:
        """The arguments of `call` after the pools; `values` are its shape symbols' values."""
        result: list[View | Fixed | Plain] = [call.arguments[i] for i in self.positions]
        names = storages_of(call)
        for i in self.offsets:
            offset = slots[names[i]].offset
            result.append(Plain(tirx.IntImm("int64", offset) if isinstance(offset, int) else offset))
        return result + [Plain(values[symbol]) for symbol in self.symbols]


def storages_of(call: Invoke) -> list[str]:
    """Names of what a call may find in pools: its arguments ("" for those that are no tensors), its internals."""
    arguments = [a.tensor.name if isinstance(a, View) else "" for a in call.arguments]
    return [*arguments, *(i.name for i in call.internals)]


class Placer:
    """Puts the PrimFunc of `call` on `pools`; `slots` holds the planned storages by name.

    `values` are the shape symbols' values in the caller; those that are numbers are put in. With `anywhere`, offsets
    are parameters, so that other calls with the same pools can use it.
    """

    def __init__(
        self,
        call: Invoke,
        pools: Sequence[PlannedPool],
        slots: Mapping[str, PoolSlot],
        values: Mapping[Any, Any],
        *,
        anywhere: bool,
    ) -> None:
        self.anywhere = anywhere
        self.call = call
        self.slots = slots
        self.values = values
        self.function, self.renamed = fresh(call.primfunc)
        taken = {p.name for p in self.function.params}
        used = {slots[a.tensor.name].pool for a in call.arguments if isinstance(a, View) and a.tensor.name in slots}
        self.pools = {
            i: _pool_buffer(_free(pool.name, taken), pool.extent)
            for i, pool in enumerate(pools)
            if not call.foreign and pool.device == call.device and (i in used or not pool.read_only)
        }
        self.regions = [0 if pools[i].read_only else i + 1 for i in self.pools]
        self.offsets: dict[int, Any] = {}  # storage -> parameter
        self.pointers: dict[Any, Any] | None = {} if is_npu(self.function) else None  # buffer -> pointer variable

    def run(self) -> Rewritten:
        """The planned PrimFunc."""
        function, call = self.function, self.call
        known = {self.renamed.get(v, v): e for v, e in self.values.items() if static_extent(e) is not None}
        constants: list[int] = []
        others: list[int] = []
        declarations = []
        for i, (parameter, argument) in enumerate(zip(function.params, call.arguments, strict=True)):
            if isinstance(argument, View) and argument.tensor.name in self.slots:
                declarations.append(self.declare(parameter, self.slots[argument.tensor.name], i))
            elif parameter not in known:
                (constants if isinstance(argument, Fixed) else others).append(i)
        homes = {
            self.renamed[internal.allocation.buffer]: (self.slots[internal.name], len(call.arguments) + j)
            for j, internal in enumerate(call.internals)
            if internal.name in self.slots
        }

        def rebase(statement: Any) -> Any:
            home = homes.get(statement.buffer)
            return statement if home is None else self.declare(statement.buffer, *home)

        body = tvm_ffi.structural_map(function.body, (tirx.AllocBuffer, rebase)) if homes else function.body
        body = tirx.SeqStmt([*declarations, body]) if declarations else body
        if self.pointers:
            body = tvm_ffi.structural_map(body, (ir.Call, self.pointer))
        positions = (*constants, *others)
        parameters = [*self.pools.values(), *(function.params[i] for i in positions), *self.offsets.values()]
        symbols = self.symbols(body, parameters, known) if self.values else []
        if known:
            numbers = {v: tirx.IntImm(str(v.ty.dtype), int(e)) for v, e in known.items()}
            body = tvm_ffi.structural_map(body, (ir.Var, lambda v: numbers.get(v, v)))
        parameters += [self.renamed.get(v, v) for v in symbols]
        result = tirx.PrimFunc(parameters, body, function.ret_type, function.attrs)
        # Two parameters may lie in one pool now. Nor is the promise kept where it holds: see `main._without_promise`.
        result = result.without_attr("tirx.noalias").without_attr("global_symbol")
        if is_npu(function):
            result = result.with_attr(REGIONS, self.regions)
        return Rewritten(result, tuple(self.pools), positions, tuple(self.offsets), tuple(symbols))

    def declare(self, buffer: Any, slot: PoolSlot, storage: int) -> Any:
        offset = slot.offset
        if self.anywhere or static_extent(offset) is None:
            if storage not in self.offsets:
                self.offsets[storage] = tirx.Var(f"offset_{len(self.offsets)}", "int64")
            offset = self.offsets[storage]
        address = tirx.address_of(tirx.BufferLoad(self.pools[slot.pool], [offset]))
        if self.pointers is None:
            return tirx.DeclBuffer(buffer, data=address)
        self.pointers[buffer] = tirx.Var(buffer.name, address.ty)
        return tirx.Bind(self.pointers[buffer], address)

    def pointer(self, call: Any) -> Any:
        """The pointer variable of a buffer in place of `buffer.data`."""
        assert self.pointers is not None
        return self.pointers.get(call.args[0], call) if operator_of(call) == "tirx.buffer_data" else call

    def symbols(self, body: Any, parameters: Sequence[Any], known: Mapping[Any, Any]) -> list[Any]:
        """Original shape symbols that no remaining parameter defines and no number replaces."""
        free = set(undefined_vars(body, list(parameters)))
        return [v for v in self.values if self.renamed.get(v, v) in free and self.renamed.get(v, v) not in known]


def fresh(function: Any) -> tuple[Any, dict[Any, Any]]:
    """A copy of `function` that shares no variable with it, and old variable -> new variable.

    One variable in two functions of a module does not survive a TVMScript round trip.
    """
    renamed: dict[Any, Any] = {}
    for var in _definitions(function):
        ty = tvm_ffi.structural_map(var.ty, (ir.Var, lambda v: renamed.get(v, v)))
        renamed[var] = ir.Var(var.name, ty)
    copy = tvm_ffi.structural_map(function, (ir.Var, lambda v: renamed.get(v, v)))
    # Where a type has symbols, the map makes one more variable of its replacement: what counts is what is there.
    return copy, dict(zip(renamed, _definitions(copy), strict=True))


def _definitions(function: Any) -> list[Any]:
    """The variables that `function` defines, in textual order."""
    found: dict[Any, None] = {}

    def define(var: Any, kind: Any) -> None:
        if kind != tvm_ffi.DefRegionKind.NONE:
            found.setdefault(var)

    tvm_ffi.structural_walk(function, with_def_region_kind=(ir.Var, define), order="pre")
    return list(found)


def _pool_buffer(name: str, extent: Any) -> Any:
    """The parameter for a pool; a pool of symbolic size has a symbol of its own as its extent."""
    known = tirx.Var(f"{name}_bytes", "int64") if static_extent(extent) is None else extent
    return tirx.decl_buffer((known,), "uint8", name=name, layout=None)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_pool"
    return name
