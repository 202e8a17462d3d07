"""One call of a PrimFunc, top-level statement by top-level statement, and what a host function of numbers stores.

Invariant: before a statement, each storage that it reads first owns its bytes; where storages of one statement share
bytes, their order is proven, or the accesses are followed one by one (`accesses`). Afterwards, each storage owns the
bytes written to it. A number that is found is the one that the function stores; what is not understood stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from ...vocabulary import DISTANCES, is_npu
from .accesses import (
    MOST,
    Event,
    Meaning,
    Nest,
    NestAccess,
    Same,
    Undecided,
    address,
    begin,
    begins_with_write,
    element_bytes,
    executions,
    hull_of,
    meaning,
    never_meets,
    operator_name,
    reach,
    stolen,
    strides,
)
from .memory import Fault, FaultKind, OwnedBytes, Owners

Numbers = dict[int, int]
"""The elements of a tensor of one dimension that are known."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A buffer of a PrimFunc in others' memory: `begins` bytes into `source`, or `over` a pool of bytes."""

    buffer: Any
    item_bytes: int
    source: Any
    begins: Meaning
    over: bool  # of another buffer that is no whole pool it has all bytes
    is_name: bool = False  # one more name of its source


class KernelText:
    """The part of a PrimFunc that is the same for all calls and symbols; one object stands for each variable."""

    def __init__(self, function: Any) -> None:
        self.same = Same()
        self.body = function.body
        self.is_host = bool(function.attrs and function.attrs.get("tirx.is_host_func", False))
        self.is_npu = is_npu(function)
        stated = (function.attrs or {}).get(DISTANCES, ())
        self.distances = {(str(i), str(o)): int(distance) for i, o, distance in stated}
        self.parameters = [self.same.one(p) for p in function.params]
        self.buffers = {p for p in self.parameters if tirx.is_buffer_var(p)}
        self.shapes = {p: [self.one(e) if isinstance(e, ir.Var) else None for e in p.shape] for p in self.buffers}
        self.has_objects = len(self.buffers) < len(self.parameters)
        self.shaped: dict[tuple[Any, ...], ShapedKernel] = {}  # for values of `symbols`

    def one(self, var: Any) -> Any:
        """The object that stands for a variable."""
        return self.same.one(var)

    @cached_property
    def declarations(self) -> list[Declared]:
        """The buffers that are declared on an address, or over another one."""
        found: list[Declared] = []

        def declare(stmt: Any) -> None:
            buffer, name = self.one(stmt.buffer), operator_name(stmt.data)
            item_bytes = element_bytes(str(buffer.dtype))
            if name == "tirx.address_of":
                load = stmt.data.args[0]
                index = load.indices[0] + begin(buffer) * item_bytes
                begins = meaning(index, self.same)
                found.append(Declared(buffer, item_bytes, self.one(load.source), begins, False, _is_pool(buffer, load)))
            elif name == "tirx.buffer_data":
                begins = meaning(buffer.elem_offset * item_bytes, self.same)
                found.append(Declared(buffer, item_bytes, self.one(stmt.data.args[0]), begins, True))

        tvm_ffi.structural_walk(self.body, (tirx.DeclBuffer, declare), order="pre")
        return found

    @cached_property
    def sources(self) -> set[Any]:
        """The buffers that others lie over."""
        return {found.source for found in self.declarations if found.over}

    @cached_property
    def symbols(self) -> list[Any]:
        """The numbers that are parameters, and the extents of these, that extents, strides and indices have."""
        buffers = {found.buffer: None for found in self.declarations}
        exprs: list[Any] = []

        def access(buffer: Any, indices: Any) -> None:
            buffers.setdefault(self.one(buffer))
            exprs.extend(indices)

        kinds = [
            (tirx.For, lambda loop: exprs.extend((loop.min, loop.extent))),
            (tirx.BufferStore, lambda store: access(store.buffer, store.indices)),
            (ir.TensorLoad, lambda load: access(load.source, load.indices)),
        ]
        for statement in _nests(self.body):
            tvm_ffi.structural_walk(statement, kinds)
        exprs += [e for buffer in buffers if tirx.is_buffer_var(buffer) for e in (*buffer.shape, *buffer.strides)]
        used: dict[Any, None] = {}
        for expr in exprs:
            if not isinstance(expr, tirx.IntImm):
                tvm_ffi.structural_walk(expr, (ir.Var, lambda v: used.setdefault(self.one(v))))
        given = {*self.parameters, *(e for shape in self.shapes.values() for e in shape)} - self.buffers
        return [v for v in used if v in given]

    @cached_property
    def stores(self) -> list[tuple[Any, Meaning, Meaning]]:
        """What a host function stores: the buffer, the place, the value; with no buffer where it does anything else."""
        found: list[tuple[Any, Meaning, Meaning]] = []
        for statement in self.body.seq[:] if isinstance(self.body, tirx.SeqStmt) else [self.body]:
            if not isinstance(statement, tirx.BufferStore):
                return [*found, (None, _nothing, _nothing)]
            places = meaning(statement.indices[0], self.same), meaning(statement.value, self.same)
            found.append((self.one(statement.buffer), *places))
        return found


@dataclass(frozen=True, slots=True)
class Statement:
    """A top-level statement of a kernel."""

    nest: Nest
    buffers: Mapping[Any, bool]  # those that it touches, and whether it reads each first
    writes: Sequence[NestAccess]  # accesses that write; the one that is over first at the beginning

    @classmethod
    def of_nest(cls, nest: Nest) -> Statement:
        """The statement with these accesses."""
        buffers: dict[Any, bool] = {}
        for access in nest.accesses:
            buffers.setdefault(access.buffer, not access.writes)
        return cls(nest, buffers, sorted((a for a in nest.accesses if a.writes), key=_last))


class ShapedKernel:
    """The accesses of a kernel where its symbols have the values `known`, and what was proven of them."""

    def __init__(self, text: KernelText, known: Mapping[Any, Any]) -> None:
        self.known = dict(known)
        self.same = text.same
        self.statements = [self.statement(statement) for statement in _nests(text.body)]
        self.reached: dict[Any, int] = {}
        self.hulls: dict[int, tuple[int, int] | None] = {}  # by id of an access: the bytes of all its executions
        self.proven: dict[tuple[int, ...], bool] = {}  # by ids of accesses

    def statement(self, statement: Any) -> Statement:
        """A statement with its accesses."""
        nest = Nest(known=self.known)
        nest.visit(statement)
        nest.accesses = [replace(a, buffer=self.same.one(a.buffer)) for a in nest.accesses]
        return Statement.of_nest(nest)

    def reach(self, buffer: Any) -> int:
        """The elements that a buffer reaches."""
        if buffer not in self.reached:
            self.reached[buffer] = reach(buffer, self.known)
        return self.reached[buffer]

    def hull(self, access: NestAccess) -> tuple[int, int] | None:
        """The bytes of its buffer that an access may touch; None where that is not known."""
        if id(access) not in self.hulls:
            self.hulls[id(access)] = _hull(access, self.known)
        return self.hulls[id(access)]

    def never_meets(self, write: NestAccess, read: NestAccess, ahead: int) -> bool:
        """`never_meets`, the buffer that is read `ahead` bytes behind the other one."""
        key = (id(write), id(read), ahead)
        if key not in self.proven:
            self.proven[key] = never_meets(write, 0, read, ahead, self.known)
        return self.proven[key]

    def begins_with_write(self, read: NestAccess, writes: Sequence[NestAccess]) -> bool:
        """`begins_with_write`."""
        key = (id(read), *map(id, writes))
        if key not in self.proven:
            self.proven[key] = begins_with_write(read, writes)
        return self.proven[key]


def run(text: KernelText, arguments: Sequence[Any]) -> None:
    """Stores what a host function does into those of its `arguments` that are `Numbers`; others: numbers, None."""
    known = {p: a for p, a in zip(text.parameters, arguments, strict=True) if a is not None}
    for buffer, place, stored in text.stores:
        if buffer not in known:
            for found in known.values():
                if isinstance(found, dict):
                    found.clear()
            return
        elements: Numbers = known[buffer]
        try:
            at = int(place(known))
        except Undecided:
            elements.clear()
            continue
        try:
            elements[at] = int(stored(known))
        except Undecided:  # it is not known any more
            elements.pop(at, None)


def _nothing(known: Mapping[Any, Any]) -> int:
    return 0


def _nests(stmt: Any) -> Iterator[Any]:
    """The top-level statements that touch anything."""
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _nests(part)
    elif not isinstance(stmt, tirx.DeclBuffer | tirx.AllocBuffer | tirx.Bind):
        yield stmt


@dataclass(slots=True)
class State:
    """The state while a function runs: owners of bytes, faults so far, and what could not be decided."""

    owners: Owners = field(default_factory=Owners)
    faults: dict[Fault, None] = field(default_factory=dict)
    undecided: dict[str, None] = field(default_factory=dict)
    homes: dict[Any, OwnedBytes] = field(default_factory=dict)  # of each named storage, where it was first seen
    hidden: set[Any] = field(default_factory=set)  # storages that something opaque may have written
    held: dict[Any, list[OwnedBytes]] = field(default_factory=dict)  # of what calls gave back, what they were given
    texts: dict[str, KernelText | None] = field(default_factory=dict)  # of PrimFuncs by name; None: something else

    def fault(self, kind: FaultKind, where: str, text: str) -> None:
        """Notes a fault."""
        self.faults.setdefault(Fault(kind, where, text))

    def read(self, place: OwnedBytes, where: str) -> None:
        """Note a read of `place`; faults where some of its bytes are another's, or none was written."""
        if place.owner in self.hidden:
            return
        if place.memory.freed:
            self.fault(FaultKind.FREED, where, f"reads {place}, which was freed before")
        owned = self.adopt(place)
        for held in self.held.get(place.owner, ()):  # which it may be
            for start, stop, name in self.owners.stolen_spans(held, held.start, held.stop):
                return self.foreign(held, start, stop, name, where)
        for start, stop, name in self.owners.stolen_spans(place, place.start, place.stop):
            return self.foreign(place, start, stop, name, where)
        if not owned and place.start < place.stop:
            self.fault(FaultKind.UNDEFINED, where, f"reads {place}, which was never written")

    def foreign(self, place: OwnedBytes, start: int, stop: int, name: str, where: str) -> None:
        """`place` is read where bytes [start, stop) are another's."""
        text = f"reads {place}, but bytes [{start}, {stop}) there are {name!r}'s, written since"
        self.fault(FaultKind.OVERWRITTEN, where, text)

    def adopt(self, place: OwnedBytes) -> bool:
        """Make `place` the owner of bytes that were written into its whole pool (constants); whether any has one."""
        spans = list(self.owners.spans_within(place.memory, place.start, place.stop))
        for start, stop, owner, _ in spans:
            if owner is place.memory:
                self.owners.write(place, start, stop)
        return bool(spans)

    def check_place(self, place: OwnedBytes, where: str, before: int = 0) -> None:
        """`place`, `before` bytes after the beginning of its storage, is in its memory, and where it was before."""
        size = place.memory.size_bytes
        if size is not None and place.stop > size:
            self.fault(FaultKind.OUTSIDE, where, f"{place}, which has {size} bytes")
        begins = replace(place, start=place.start - before) if before else place
        home = self.homes.setdefault(place.owner, begins)
        if home.memory is not begins.memory or home.start != begins.start:
            self.fault(FaultKind.MOVED, where, f"{begins}, but earlier {home}")


class CallWalk:
    """One call: `arguments` are places, numbers, or None; `found` the storages in pools, with bytes before."""

    def __init__(
        self, state: State, where: str, text: KernelText, arguments: Sequence[Any], found: Sequence[tuple[str, int]]
    ) -> None:
        self.state = state
        self.where = where
        self.text = text
        self.known: dict[Any, Any] = {}
        self.places: dict[Any, OwnedBytes] = {}
        self.touches = False  # any of them
        for parameter, argument in zip(text.parameters, arguments, strict=False):
            if isinstance(argument, int):
                self.known[parameter] = argument
            elif isinstance(argument, OwnedBytes) and parameter in text.buffers:
                self.places[parameter] = argument
                extents = text.shapes[parameter]
                if argument.shape is not None and len(argument.shape) == len(extents):
                    for extent, actual in zip(extents, argument.shape, strict=True):
                        if extent is not None:  # a symbol of the PrimFunc's own
                            self.known.setdefault(extent, actual)
        self.pools = dict(self.places)
        key = tuple(map(self.known.get, text.symbols))
        if key not in text.shaped:
            text.shaped[key] = ShapedKernel(text, {v: self.known[v] for v in text.symbols if v in self.known})
        self.kernel = text.shaped[key]
        self.declare(iter(found))

    def declare(self, found: Iterator[tuple[str, int]]) -> None:
        """Finds every declared buffer: on an address in a parameter, or over another buffer."""
        for one in self.text.declarations:
            source = self.pools.get(one.source)
            if one.is_name and one.buffer in self.text.sources and source is not None:
                self.pools[one.buffer] = source
            elif not one.over or (source is not None and source.owner is source.memory):
                self.check_element(one, source, *next(found, ("", 0)))
            elif one.source in self.places:
                self.places[one.buffer] = self.places[one.source]

    def check_element(self, declared: Declared, pool: OwnedBytes | None, name: str, before: int) -> None:
        """A buffer, `before` bytes within the storage `name`, is where it begins in `pool`."""
        buffer, item_bytes = declared.buffer, declared.item_bytes
        if pool is None:
            return
        try:
            start = pool.start + int(declared.begins(self.known))
            size = item_bytes * self.kernel.reach(buffer)
        except Undecided as unknown:
            self.state.undecided.setdefault(f"{self.where}: where {buffer.name!r} lies depends on {unknown}")
            return
        shown = name or buffer.name
        place = OwnedBytes(pool.memory, start, start + size, name or (self.where, buffer.name), shown)
        if (start - pool.start) % item_bytes:
            text = f"{place} has elements of {item_bytes} bytes"
            self.state.fault(FaultKind.MISALIGNED, self.where, text)
        self.state.check_place(place, self.where, before)
        self.places[buffer] = place

    def run(self) -> None:
        """The top-level statements, in order, each as one step."""
        for statement in self.kernel.statements:
            self.step(statement)

    def step(self, statement: Statement) -> None:
        """One statement: what it reads first is its own, and what it wrote is afterwards."""
        places, state = self.places, self.state
        touched: dict[Any, tuple[OwnedBytes, bool]] = {}  # owner -> its place, whether it is read first
        for buffer, reads in statement.buffers.items():
            if buffer in places:
                touched.setdefault(places[buffer].owner, (places[buffer], reads))
        self.touches = self.touches or bool(touched)
        written = {places[access.buffer].owner for access in statement.writes if access.buffer in places}
        shared = self.shared_pairs([place for place, _ in touched.values()], written)
        apart = touched.keys() - state.hidden - {place.owner for pair in shared for place in pair}
        for owner, (place, reads) in touched.items():
            if reads and owner in apart:
                state.read(place, self.where)
            elif reads:
                state.adopt(place)
        for a, b in shared:
            self.look(statement.nest, a, b)
        for access in statement.writes:
            if access.buffer in places:
                state.owners.write(places[access.buffer], *self.hull(access, places[access.buffer]))

    def shared_pairs(self, places: Sequence[OwnedBytes], written: set[Any]) -> list[tuple[OwnedBytes, OwnedBytes]]:
        """Pairs of storages that have bytes in common, one of them written."""
        pairs = combinations(places, 2)
        return [(a, b) for a, b in pairs if a.meets(b) and not written.isdisjoint((a.owner, b.owner))]

    def look(self, nest: Nest, a: OwnedBytes, b: OwnedBytes) -> None:
        """Two storages that one statement touches share bytes: every access, one by one."""
        found = [(access, self.places[access.buffer]) for access in nest.accesses if access.buffer in self.places]
        own = [(access, place) for access, place in found if place.owner in (a.owner, b.owner)]
        window = max(a.start, b.start), min(a.stop, b.stop)
        for place in (a, b):  # what is read beyond the window is an ordinary read
            if not any(x.writes for x, p in own if p.owner == place.owner):
                for start, stop in ((place.start, window[0]), (window[1], place.stop)):
                    self.beyond(place, start, stop)
        if not nest.ordered:
            text = f"{a} and {b} share bytes in one statement whose order is not known"
            self.state.undecided.setdefault(f"{self.where}: {text}")
            return
        if self.in_order(own, a, b):
            return
        events = []
        try:
            for access, place in own:
                size = element_bytes(str(access.buffer.dtype))
                times, starts = executions(access, self.known, size)
                events.append(Event(place, access.writes, times, starts + place.start, size))
        except Undecided as unknown:
            text = f"{a} and {b} share bytes in one statement, whose accesses depend on {unknown} (or are above {MOST})"
            self.state.undecided.setdefault(f"{self.where}: {text}")
            return
        wrong = stolen(events, window, self.state.owners)
        if wrong is not None:
            reader, writer, byte = wrong
            text = f"reads byte {byte} of {reader}, which {writer!r} has overwritten"
            self.state.fault(FaultKind.OVERWRITTEN, self.where, text)

    def in_order(self, own: Sequence[tuple[NestAccess, OwnedBytes]], a: OwnedBytes, b: OwnedBytes) -> bool:
        """Whether it is proven that each of two storages is read before the other one is written there."""
        window = max(a.start, b.start), min(a.stop, b.stop)
        for place in (a, b):
            reads = [(x, p.start) for x, p in own if p.owner == place.owner and not x.writes]
            writes = [x for x, p in own if p.owner == place.owner and x.writes]
            others = [(x, p.start) for x, p in own if p.owner != place.owner and x.writes]
            before = any(
                owner != place.owner for _, _, owner, _ in self.state.owners.spans_within(place.memory, *window)
            )
            if before and not all(self.kernel.begins_with_write(read, writes) for read, _ in reads):
                return False
            if not all(self.kernel.never_meets(w, read, start - at) for w, at in others for read, start in reads):
                return False
        return True

    def beyond(self, place: OwnedBytes, start: int, stop: int) -> None:
        """Bytes of a storage that is read, and that no other one of the statement lies on."""
        for first, last, name in self.state.owners.stolen_spans(place, start, stop):
            if place.owner not in self.state.hidden:
                self.state.foreign(place, first, last, name, self.where)

    def hull(self, access: NestAccess, place: OwnedBytes) -> tuple[int, int]:
        """The bytes that a store may write."""
        found = self.kernel.hull(access)
        if found is None:
            return place.start, place.stop
        return max(place.start, place.start + found[0]), min(place.stop, place.start + found[1])


def _hull(access: NestAccess, known: Mapping[Any, Any]) -> tuple[int, int] | None:
    """The bytes of its buffer that an access may touch; None where that is not known."""
    size = element_bytes(str(access.buffer.dtype))
    try:
        low, high = hull_of(address(access, known), access.loops)
        return low, high + size
    except Undecided:
        pass
    analyzer = sym.Analyzer()
    for var, extent, _ in access.loops:
        analyzer.bind(var, ir.Range(0, max(1, extent)))
    try:
        element: Any = tirx.IntImm("int64", 0)
        for index, stride in zip(access.indices, strides(access.buffer, known), strict=True):
            element = element + _bound(index, known) * stride
        found = analyzer.const_int_bound(analyzer.simplify(element))
    except (Undecided, ValueError):
        return None
    return int(found.min_value) * size, (int(found.max_value) + 1) * size


def _is_pool(buffer: Any, load: Any) -> bool:
    """Whether a buffer declared on the address of an element is one more name of the whole buffer that has it."""
    first = load.indices[0]
    alike = tvm_ffi.structural_equal(buffer.shape, load.source.shape) and buffer.dtype == load.source.dtype
    return alike and isinstance(first, tirx.IntImm) and int(first) == 0


def _last(access: NestAccess) -> int:
    """The time of an access's last execution."""
    return int(access.time + sum((extent - 1) * turn for _, extent, turn in access.loops))


def _bound(expr: Any, known: Mapping[Any, Any]) -> Any:
    """`expr` with the symbols that have values put in."""
    if isinstance(expr, tirx.IntImm) or not known:
        return expr
    return tvm_ffi.structural_map(expr, (ir.Var, lambda v: tirx.IntImm(str(v.ty.dtype), known[v]) if v in known else v))
