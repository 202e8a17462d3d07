"""A PrimFunc on pools: the storages of calls at the offsets of a plan, one kernel for equal calls.

Invariant: the operations are unchanged. Only where buffers lie changes: a planned parameter or allocation becomes
`decl_buffer(..., data=address_of(pool[offset]))`, whose pointer is the planned byte itself. NPU operations take
pointers only, so there it becomes a variable for `address_of(pool[offset])`: TVMScript's parser nests a frame for each
declared buffer, and overflows Python's stack below 500 of them, which streams exceed. Parameters are what the plan does
not place, in its order, then the pools that are used (one again for each further name that is a parameter), then
offsets, then the shape symbols that lost the tensor they were read from; of an NPU function all writable pools and
those of its constants, then constants that lie in no pool, then the rest. A parameter that is a handle takes a tensor
object, as without a plan.

Calls with equal keys take one kernel. Where calls of a PrimFunc are alike but for their offsets or for the sizes of
their pools, also those of several functions, these are parameters of one kernel; so a module has about as many kernels
as it had PrimFuncs, however many functions and calls use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.analysis import undefined_vars

from ..extract.calls import Symbols, in_type_of
from ..extract.program import Fixed, Plain, Program, static_extent
from ..extract.tir import operator_of
from ..names import Names
from ..problem import Agent
from ..vocabulary import REGIONS, is_npu
from .pools import (
    NOALIAS,
    Apart,
    PlannedPool,
    PoolSlot,
    Site,
    has_threads,
    holds_boundary,
    is_marked,
    may_share,
    name_of_pool,
    over_pool,
    sharing,
)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The planned PrimFunc, and what its calls pass."""

    function: Any
    pools: tuple[int, ...]  # indices of those that it takes, again for each further name that is a parameter
    positions: tuple[int, ...]  # original arguments that are passed on
    offsets: tuple[int, ...]  # storages, as `storages_of` numbers them, whose offsets are passed on
    symbols: tuple[Any, ...]  # the PrimFunc's own shape symbols, of the original function

    def with_name(self, name: str) -> Rewritten:
        """The same with a name in its module."""
        return replace(self, function=self.function.with_attr("global_symbol", name))

    def numbers(self, site: Site, values: Mapping[Any, Any]) -> list[Plain]:
        """The numbers that the call of `site` passes last; `values` are its shape symbols' values."""
        places = site.places
        found = []
        for i in self.offsets:
            place = places[i]
            assert place is not None
            found.append(Plain(tirx.IntImm("int64", place.offset) if isinstance(place.offset, int) else place.offset))
        return found + [Plain(values[symbol]) for symbol in self.symbols]


def distances_of(sites: Sequence[Site]) -> dict[int, tuple[int | None, int]]:
    """Storages that lie at a constant distance from another one in all calls -> (that one, bytes from it).

    Those that lie at one known place in all calls have None, and their offset. Offsets with symbols are at a known
    distance where they are one variable and numbers.
    """
    found: dict[int, tuple[int | None, int]] = {}
    leaders: dict[tuple[Any, ...], tuple[int, int]] = {}  # variables and moves -> the first such storage, its number
    for storage, places in enumerate(zip(*(site.places for site in sites), strict=True)):
        offsets = [_parts(place.offset) for place in places if place is not None]
        if len(offsets) < len(sites):
            continue
        start = offsets[0][1]
        moves = tuple((variable, constant - start) for variable, constant in offsets)
        if any(variable is not None or move for variable, move in moves):
            leader, first = leaders.setdefault(moves, (storage, start))
            found[storage] = (leader, start - first)
        else:
            found[storage] = (None, start)
    return found


def _parts(offset: Any) -> tuple[Any, int]:
    """An offset as a variable, or whatever it is (None where it is a number), and what is added to it."""
    known = static_extent(offset)
    if known is not None:
        return None, known
    if isinstance(offset, tirx.Add) and (added := static_extent(offset.b)) is not None:
        variable, constant = _parts(offset.a)
        return variable, constant + added
    return offset, 0


class Placer:
    """Puts the PrimFunc of the call of a `site` on its pools.

    `values` are the shape symbols' values in the caller; those that are numbers are put in. With `anywhere`, offsets
    are parameters, so that other calls with the same pools can use it. `sites` are all that do: with them, a kernel
    keeps `tirx.noalias` where it holds, and pools whose size is not the same everywhere have a symbol as their extent.
    """

    def __init__(self, site: Site, values: Mapping[Any, Any], *, anywhere: bool, sites: Sequence[Site] = ()) -> None:
        call, pools = site.call, site.pools
        self.anywhere = anywhere
        self.call = call
        self.values = values
        self.function, self.renamed = fresh(call.primfunc)
        self.places = site.places
        self.symbolic = any(place is not None and static_extent(place.offset) is None for place in self.places)
        self.taken = {p.name for p in self.function.params}
        used = {place.pool for place in self.places if place is not None}
        own = is_npu(self.function)  # which has regions of all that are writable
        # of the pools that it takes: another one of its function's need not be there in every function that calls it
        self.extents = {
            i: _common_extent(i, (site, *sites))
            for i, pool in enumerate(pools)
            if i in used or (own and not call.foreign and pool.device == call.device and not pool.read_only)
        }
        self.pools = {i: _pool_buffer(_free(pools[i].name, self.taken), n) for i, n in self.extents.items()}
        self.regions = [0 if pools[i].read_only else i + 1 for i in self.pools]
        self.offsets: dict[int, Any] = {}  # storage -> parameter
        self.distances = distances_of(sites)
        self.pointers: dict[Any, Any] | None = {} if is_npu(self.function) else None  # buffer -> pointer variable
        threads = has_threads(self.function)
        shared = sharing(sites) if sites and is_marked(self.function) and not own and not threads else None
        self.marked = shared is not None
        self.shared: dict[int, int] = shared or {}  # storage -> its group
        self.memories: dict[tuple[int, int], Any] = {}  # pool, group -> the pool, or one more name of it
        self.named: list[Any] = []  # declarations of such names
        self.again: list[tuple[int, Any]] = []  # pool, such a name that is a parameter
        self.replaced: dict[Any, Any] = {}  # buffer -> the same over its pool

    def rebase_body(self) -> Any:
        """The body with its internal allocations where they are planned."""
        call, function = self.call, self.function
        homes = {
            self.renamed[internal.allocation.buffer]: (place, i)
            for i, (internal, place) in enumerate(
                zip(call.internals, self.places[len(call.arguments) :], strict=True), len(call.arguments)
            )
            if place is not None
        }

        def rebase(statement: Any) -> Any:
            home = homes.get(statement.buffer)
            return statement if home is None else self.declare(statement.buffer, *home)

        return tvm_ffi.structural_map(function.body, (tirx.AllocBuffer, rebase)) if homes else function.body

    def run(self) -> Rewritten:
        """The planned PrimFunc."""
        function, call = self.function, self.call
        known = {self.renamed.get(v, v): e for v, e in self.values.items() if static_extent(e) is not None}
        if self.shared:
            buffers = [*function.params, *(self.renamed[i.allocation.buffer] for i in call.internals)]
            self.marked = may_share(function, [buffers[i] for i in self.shared])
            self.shared = self.shared if self.marked else {}
        positions: list[int] = []
        declarations = []
        for i, parameter in enumerate(function.params):
            place = self.places[i]
            if place is not None:
                declarations.append(self.declare(parameter, place, i))
            elif parameter not in known:
                positions.append(i)
        body = self.rebase_body()
        if self.replaced:
            body = with_values(body, self.replaced)
        declarations = [*self.named, *declarations]
        body = tirx.SeqStmt([*declarations, body]) if declarations else body
        if self.pointers:
            body = tvm_ffi.structural_map(body, (ir.Call, self.pointer))
        passed = [function.params[i] for i in positions]
        if is_npu(function):
            positions.sort(key=lambda i: not isinstance(call.arguments[i], Fixed))
            passed = [*self.pools.values(), *(function.params[i] for i in positions)]
        else:
            passed += [*self.pools.values(), *(name for _, name in self.again)]
        parameters = [*passed, *self.offsets.values()]
        symbols = self.symbols(body, parameters, known) if self.values else []
        numbers: dict[Any, Any] = {v: tirx.IntImm(str(v.ty.dtype), int(e)) for v, e in known.items()}
        for symbol in (self.renamed.get(v, v) for v in symbols):
            kind = str(symbol.ty.dtype)
            parameters.append(symbol if kind == "int64" else tirx.Var(symbol.name, "int64"))
            if kind != "int64":  # Relax passes every number as int64
                numbers[symbol] = tirx.Cast(kind, parameters[-1])
        free = set(undefined_vars(body, parameters))
        for parameter, place in zip(function.params, self.places, strict=False):
            if place is not None:
                found = {v: e for v, e in compact_symbols(parameter).items() if v in free}
                numbers |= {v: with_values(e, numbers) for v, e in found.items()}
        if numbers:
            body = with_values(body, numbers)
        result = tirx.PrimFunc(parameters, body, function.ret_type, function.attrs)
        result = result.without_attr("global_symbol")
        if not self.marked:
            result = result.without_attr(NOALIAS)
        if is_npu(function):
            result = result.with_attr(REGIONS, self.regions)
        taken = (*self.pools, *(pool for pool, _ in self.again))
        return Rewritten(result, taken, tuple(positions), tuple(self.offsets), tuple(symbols))

    def declare(self, buffer: Any, slot: PoolSlot, storage: int) -> Any:
        offset, ahead = self.offset(slot, storage)
        if storage in self.shared:
            declared = over_pool(buffer, self.memory(slot.pool, self.shared[storage]), offset, ahead)
            self.replaced[buffer] = declared.buffer
            return declared
        apart = self.marked and self.symbolic and storage < len(self.call.arguments)
        pool = self.memory(slot.pool, storage) if apart else self.pools[slot.pool]
        address = tirx.address_of(tirx.BufferLoad(pool, [offset + ahead if ahead else offset]))
        if self.pointers is None:
            return tirx.DeclBuffer(buffer, data=address)
        self.pointers[buffer] = tirx.Var(buffer.name, address.ty)
        return tirx.Bind(self.pointers[buffer], address)

    def offset(self, slot: PoolSlot, storage: int) -> tuple[Any, int]:
        """The place of a storage: an offset, which may be a parameter, and the bytes behind it."""
        leader, ahead = self.distances.get(storage, (storage, 0))
        if not self.anywhere and static_extent(slot.offset) is not None:
            return slot.offset, 0
        if leader is None:
            return tirx.IntImm("int64", ahead), 0
        if leader not in self.offsets:
            self.offsets[leader] = tirx.Var(f"offset_{len(self.offsets)}", "int64")
        return self.offsets[leader], ahead

    def memory(self, pool: int, group: int) -> Any:
        """The memory of a group's storages: for the first group the pool, then one more name of it.

        Where offsets have symbols, the name of a group with an argument is a parameter: LLVM's passes take parameters
        for different memory, and other names only where they look at types or see how far apart two places are.
        """
        buffer = self.pools[pool]
        if (pool, group) not in self.memories:
            found, others = buffer, sum(other == pool for other, _ in self.memories)
            name = _free(f"{buffer.name}_{others}", self.taken)
            if others and self.symbolic and group < len(self.call.arguments):
                found = _pool_buffer(name, self.extents[pool])
                self.again.append((pool, found))
            elif others:
                self.named.append(name_of_pool(buffer, name))
                found = self.named[-1].buffer
            self.memories[pool, group] = found
        return self.memories[pool, group]

    def pointer(self, call: Any) -> Any:
        """The pointer variable of a buffer in place of `buffer.data`."""
        assert self.pointers is not None
        return self.pointers.get(call.args[0], call) if operator_of(call) == "tirx.buffer_data" else call

    def symbols(self, body: Any, parameters: Sequence[Any], known: Mapping[Any, Any]) -> list[Any]:
        """Original shape symbols that no remaining parameter defines and no number replaces."""
        free = set(undefined_vars(body, list(parameters)))
        return [v for v in self.values if self.renamed.get(v, v) in free and self.renamed.get(v, v) not in known]


def fresh(function: Any) -> tuple[Any, dict[Any, Any]]:
    """A copy of `function` that shares no variable with it, for TVMScript, and old variable -> new variable."""
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


def with_values(tree: Any, values: Mapping[Any, Any]) -> Any:
    """A statement or an expression with the variables that have values replaced by them."""
    return tvm_ffi.structural_map(tree, (ir.Var, lambda v: values.get(v, v)))


def compact_symbols(buffer: Any) -> dict[Any, Any]:
    """The buffer's own symbols of strides and offset -> what they are where it lies whole at an address of its own."""
    found = {buffer.elem_offset: 0} if isinstance(buffer.elem_offset, ir.Var) else {}
    stride: Any = tirx.IntImm("int64", 1)
    for symbol, extent in reversed(list(zip(buffer.strides, buffer.shape, strict=False))):
        if isinstance(symbol, ir.Var):
            found[symbol] = stride
        stride = stride * extent
    return {symbol: in_type_of(symbol, expr) for symbol, expr in found.items()}


def _common_extent(pool: int, sites: Iterable[Site]) -> int | None:
    """The length of a pool of that index, None where it has symbols, or not the same one at all `sites`."""
    found = {static_extent(site.pools[pool].extent) for site in sites}
    return found.pop() if len(found) == 1 else None


def _pool_buffer(name: str, extent: int | None) -> Any:
    """The parameter for a pool; one of no known length has a symbol of its own as its extent."""
    known: Any = tirx.Var(f"{name}_bytes", "int64") if extent is None else extent
    return tirx.decl_buffer((known,), "uint8", name=name, layout=None)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_pool"
    return name


class Kernels:
    """Makes planned PrimFuncs and their names; `taken` are the names of the module's other functions."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.names = Names(taken)
        self.made: dict[Any, tuple[str, Rewritten]] = {}  # key -> name, planned PrimFunc
        self.keys: dict[Any, set[Any]] = {}  # key of calls that may share a kernel -> their keys
        self.sharers: dict[Any, list[Site]] = {}  # key -> calls that share a kernel
        self.symbols = Symbols()
        self.known: dict[int, _Keyed] = {}  # by id of a call of `share`

    def share(
        self, program: Program, pools: Sequence[PlannedPool], slots: Mapping[str, PoolSlot], apart: Apart
    ) -> None:
        """Let the calls of `program` share, from here on, kernels whose parameters are offsets with others, where they
        can.

        Those of a program whose inputs and outputs are in the pools do not: it is for plain C as well.
        """
        if holds_boundary(program, slots):
            return
        for call in program.calls:
            keyed = self.make_keys(Site(call, pools, slots, apart))
            self.known[id(call)] = keyed
            self.keys.setdefault(keyed.free, set()).add(keyed.key)
            for one in {keyed.free, keyed.key}:
                self.sharers.setdefault(one, []).append(keyed.site)

    def make_keys(self, site: Site) -> _Keyed:
        """A call with its keys."""
        values = self.symbols.values(site.call)
        return _Keyed(site, values, _key(site, values, anywhere=True), _key(site, values))

    def kernel_of(self, site: Site) -> tuple[str, Rewritten, list[Plain]]:
        """The name of the kernel of a call, the kernel, and the numbers that the call passes last."""
        keyed = self.known.get(id(site.call)) or self.make_keys(site)
        anywhere = len(self.keys.get(keyed.free, ())) > 1
        key = keyed.free if anywhere else keyed.key
        if key not in self.made:
            placed = Placer(keyed.site, keyed.values, anywhere=anywhere, sites=self.sharers.get(key, ())).run()
            name = self.names.unique_name(site.call.function)
            self.made[key] = name, placed.with_name(name)
        name, placed = self.made[key]
        return name, placed, placed.numbers(keyed.site, keyed.values)


@dataclass(frozen=True, slots=True, eq=False)
class _Keyed:
    """A call, the values of its shape symbols, and its keys: with any offsets, and with its own."""

    site: Site
    values: Mapping[Any, Any]
    free: tuple[Any, ...]
    key: tuple[Any, ...]


def _key(site: Site, values: Mapping[Any, Any], *, anywhere: bool = False) -> tuple[Any, ...]:
    """Calls with equal keys can share one planned PrimFunc; with `anywhere`, one whose parameters are offsets."""
    call, pools = site.call, site.pools
    anywhere = anywhere and call.agent is Agent.HOST
    found: list[Any] = [call.primfunc, call.foreign, call.device]
    for slot, argument in zip(site.places, [*call.arguments, *call.internals], strict=True):
        if slot is None:
            found.append(type(argument).__name__)
        else:
            offset = "" if anywhere or static_extent(slot.offset) is None else slot.offset
            extent = "" if anywhere else static_extent(pools[slot.pool].extent)
            found.append((slot.pool, pools[slot.pool].name, offset, extent))
    if call.agent is Agent.NPU:  # which takes all pools
        found += [(pool.name, static_extent(pool.extent), pool.read_only) for pool in pools]
    return (*found, *(static_extent(value) for value in values.values()))
