"""One call of a PrimFunc, top-level statement by top-level statement, and what a host function of numbers stores.

Invariant: before a statement, each storage that it reads first owns its bytes; where storages of one statement share
bytes, their order is proven, or the accesses are followed one by one (`accesses`). Afterwards, each storage owns the
bytes written to it. A number that is found is the one that the function stores; what is not understood stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from .accesses import (
    MOST,
    Event,
    Nest,
    NestAccess,
    Undecided,
    address,
    begin,
    begins_with_write,
    element_bytes,
    executions,
    hull_of,
    never_meets,
    number,
    operator_name,
    reach,
    stolen,
    strides,
)
from .memory import Fault, FaultKind, OwnedBytes, Owners

Numbers = dict[int, int]
"""The elements of a tensor of one dimension that are known."""


def is_host_function(function: Any) -> bool:
    """Whether a PrimFunc runs on the host, whatever device the module is for."""
    return function.attrs is not None and bool(function.attrs.get("tirx.is_host_func", False))


def run(function: Any, arguments: Sequence[Any]) -> None:
    """Stores what `function` does into those of its `arguments` that are `Numbers`; the others are numbers or None."""
    known = {p: a for p, a in zip(function.params, arguments, strict=True) if a is not None}
    for statement in _statements(function.body):
        if isinstance(statement, tirx.BufferStore) and statement.buffer in known:
            _store(statement, known)
        else:
            for found in known.values():
                if isinstance(found, dict):
                    found.clear()
            return


def _store(statement: Any, known: Mapping[Any, Any]) -> None:
    """One store; an element whose value is not known is not known any more."""
    elements: Numbers = known[statement.buffer]
    try:
        place = number(statement.indices[0], known)
    except Undecided:
        elements.clear()
        return
    try:
        elements[place] = number(statement.value, known)
    except Undecided:
        elements.pop(place, None)


def _statements(body: Any) -> Sequence[Any]:
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


@dataclass(frozen=True, slots=True)
class KernelText:
    """The part of a PrimFunc that is the same for all calls and symbols.

    `declared` are its buffers that have no memory of their own: the buffer, the bytes of an element, the load whose
    address it has, or the buffer that it lies over. `extents` are the variables that extents of loops depend on,
    `reach` the elements that a declared buffer reaches, where they do not depend on symbols.
    """

    declared: list[tuple[Any, int, Any, Any]] = field(default_factory=list)
    extents: list[Any] = field(default_factory=list)
    reach: dict[Any, int] = field(default_factory=dict)
    nests: dict[Any, list[Nest]] = field(default_factory=dict)  # for given extents of its loops
    hulls: dict[int, tuple[int, int]] = field(default_factory=dict)  # by id of an access of these: bytes of all turns


@dataclass(slots=True)
class State:
    """The state while a function runs: owners of bytes, faults so far, and what could not be decided."""

    owners: Owners = field(default_factory=Owners)
    faults: dict[Fault, None] = field(default_factory=dict)
    undecided: dict[str, None] = field(default_factory=dict)
    homes: dict[Any, OwnedBytes] = field(default_factory=dict)  # of each named storage, where it was first seen
    hidden: set[Any] = field(default_factory=set)  # storages that something opaque may have written
    held: dict[Any, list[OwnedBytes]] = field(default_factory=dict)  # of what calls gave back, what they were given
    texts: dict[Any, KernelText] = field(default_factory=dict)  # of PrimFuncs, whatever the symbols are

    def fault(self, kind: FaultKind, where: str, text: str) -> None:
        """Notes a fault."""
        self.faults.setdefault(Fault(kind, where, text))

    def read(self, place: OwnedBytes, where: str) -> None:
        """Note a read of `place`; faults where some of its bytes are another's, or none was written."""
        if place.owner in self.hidden:
            return
        if place.memory.freed:
            self.fault(FaultKind.FREED, where, f"reads {place}, which was freed before")
        self.adopt(place)
        for held in self.held.get(place.owner, ()):  # which it may be
            for start, stop, name in self.owners.stolen_spans(held, held.start, held.stop):
                return self.foreign(held, start, stop, name, where)
        for start, stop, name in self.owners.stolen_spans(place, place.start, place.stop):
            return self.foreign(place, start, stop, name, where)
        if not any(self.owners.spans_within(place.memory, place.start, place.stop)) and place.start < place.stop:
            self.fault(FaultKind.UNDEFINED, where, f"reads {place}, which was never written")

    def foreign(self, place: OwnedBytes, start: int, stop: int, name: str, where: str) -> None:
        """`place` is read where bytes [start, stop) are another's."""
        text = f"reads {place}, but bytes [{start}, {stop}) there are {name!r}'s, written since"
        self.fault(FaultKind.OVERWRITTEN, where, text)

    def adopt(self, place: OwnedBytes) -> None:
        """Make `place` the owner of bytes that were written into its whole pool (constants)."""
        for start, stop, owner, _ in list(self.owners.spans_within(place.memory, place.start, place.stop)):
            if owner is place.memory:
                self.owners.write(place, start, stop)

    def check_place(self, place: OwnedBytes, where: str, before: int = 0) -> None:
        """`place`, `before` bytes after the beginning of its storage, is in its memory, and where it was before."""
        size = place.memory.size_bytes
        if size is not None and place.stop > size:
            self.fault(FaultKind.OUTSIDE, where, f"{place}, which has {size} bytes")
        begins = replace(place, start=place.start - before)
        home = self.homes.setdefault(place.owner, begins)
        if (home.memory, home.start) != (begins.memory, begins.start):
            self.fault(FaultKind.MOVED, where, f"{begins}, but earlier {home}")


class CallWalk:
    """One call: `arguments` are places, numbers, or None for what is not looked into.

    `found` are the storages that it finds in pools, each with the bytes of it that come before.
    """

    def __init__(
        self, state: State, where: str, function: Any, arguments: Sequence[Any], found: Iterable[tuple[str, int]]
    ) -> None:
        self.state = state
        self.where = where
        self.function, self.body = function, function.body
        self.known: dict[Any, Any] = {}
        self.places: dict[Any, OwnedBytes] = {}
        self.touches = False  # any of them
        for parameter, argument in zip(function.params, arguments, strict=False):
            if isinstance(argument, int):
                self.known[parameter] = argument
            elif isinstance(argument, OwnedBytes) and tirx.is_buffer_var(parameter):
                self.places[parameter] = argument
                if argument.shape is not None and len(argument.shape) == len(parameter.shape):
                    for extent, actual in zip(parameter.shape, argument.shape, strict=True):
                        if isinstance(extent, ir.Var):  # a symbol of the PrimFunc's own
                            self.known.setdefault(extent, actual)
        self.pools = dict(self.places)
        if function not in state.texts:
            state.texts[function] = _text_of(function.body)
        self.text = state.texts[function]
        self.declare(iter(found))

    def declare(self, found: Iterator[tuple[str, int]]) -> None:
        """Finds every declared buffer: on an address in a parameter, or over another buffer."""

        sources = {other for _, _, _, other in self.text.declared}
        for buffer, item_bytes, load, other in self.text.declared:
            if load is not None and buffer in sources and _is_pool(buffer, load) and load.source in self.pools:
                self.pools[buffer] = self.pools[load.source]
            elif load is not None:
                begins = _behind(load, begin(buffer) * item_bytes)
                self.check_element(buffer, item_bytes, begins, *next(found, ("", 0)))
            elif other in self.pools and self.pools[other].owner is self.pools[other].memory:
                self.check_element(buffer, item_bytes, _element(other, buffer, item_bytes), *next(found, ("", 0)))
            elif other in self.places:
                self.places[buffer] = self.places[other]

    def check_element(self, buffer: Any, item_bytes: int, load: Any, name: str, before: int) -> None:
        """`buffer`, `before` bytes within the storage `name`, is where `load`'s element is."""
        pool = self.pools.get(load.source)
        if pool is None:
            return
        try:
            start = pool.start + number(load.indices[0], self.known)
            reached = self.text.reach.get(buffer)
            size = item_bytes * (reach(buffer, self.known) if reached is None else reached)
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
        key = tuple(self.known.get(v) for v in self.text.extents)
        if key not in self.text.nests:
            self.text.nests[key] = list(self.statements(self.body))
        for nest in self.text.nests[key]:
            self.step(nest)

    def statements(self, stmt: Any) -> Iterator[Nest]:
        """The accesses of each top-level statement of `stmt`."""
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                yield from self.statements(part)
        elif not isinstance(stmt, tirx.DeclBuffer | tirx.AllocBuffer | tirx.Bind):
            nest = Nest(known=self.known)
            nest.visit(stmt)
            yield nest

    def step(self, nest: Nest) -> None:
        """One statement: what it reads first is its own, and what it wrote is afterwards."""
        found = [(a, self.places[a.buffer]) for a in nest.accesses if a.buffer in self.places]
        self.touches = self.touches or bool(found)
        touched: dict[Any, tuple[OwnedBytes, bool]] = {}  # owner -> its place, whether it is read first
        for access, place in found:
            touched.setdefault(place.owner, (place, not access.writes))
        written = {place.owner for access, place in found if access.writes}
        shared = self.shared_pairs([place for place, _ in touched.values()], written)
        for owner, (place, reads) in touched.items():
            if reads:
                self.state.adopt(place)
            if reads and not any(owner in (a.owner, b.owner) for a, b in shared):
                self.state.read(place, self.where)
        for a, b in shared:
            self.look(nest, found, a, b)
        for access, place in sorted(((a, p) for a, p in found if a.writes), key=lambda e: _last(e[0])):
            self.state.owners.write(place, *self.hull(access, place))

    def shared_pairs(self, places: Sequence[OwnedBytes], written: set[Any]) -> list[tuple[OwnedBytes, OwnedBytes]]:
        """Pairs of storages that have bytes in common, one of them written."""
        pairs = combinations(places, 2)
        return [(a, b) for a, b in pairs if a.meets(b) and not written.isdisjoint((a.owner, b.owner))]

    def look(self, nest: Nest, found: Sequence[tuple[NestAccess, OwnedBytes]], a: OwnedBytes, b: OwnedBytes) -> None:
        """Two storages that one statement touches share bytes: every access, one by one."""
        window = max(a.start, b.start), min(a.stop, b.stop)
        for place in (a, b):  # what is read beyond the window is an ordinary read
            if not any(x.writes for x, p in found if p.owner == place.owner):
                for start, stop in ((place.start, window[0]), (window[1], place.stop)):
                    self.beyond(place, start, stop)
        if not nest.ordered:
            text = f"{a} and {b} share bytes in one statement whose order is not known"
            self.state.undecided.setdefault(f"{self.where}: {text}")
            return
        own = [(access, place) for access, place in found if place.owner in (a.owner, b.owner)]
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
            if before and not all(begins_with_write(read, writes) for read, _ in reads):
                return False
            if not all(never_meets(w, at, read, start, self.known) for w, at in others for read, start in reads):
                return False
        return True

    def beyond(self, place: OwnedBytes, start: int, stop: int) -> None:
        """Bytes of a storage that is read, and that no other one of the statement lies on."""
        for first, last, name in self.state.owners.stolen_spans(place, start, stop):
            if place.owner not in self.state.hidden:
                self.state.foreign(place, first, last, name, self.where)

    def hull(self, access: NestAccess, place: OwnedBytes) -> tuple[int, int]:
        """The bytes that a store may write."""
        known = self.text.hulls.get(id(access))
        if known is not None:
            return max(place.start, place.start + known[0]), min(place.stop, place.start + known[1])
        size = element_bytes(str(access.buffer.dtype))
        try:
            low, high = hull_of(address(access, self.known), access.loops)
            if _is_fixed(access.buffer) and not _free(access):
                self.text.hulls[id(access)] = low, high + size
            return max(place.start, place.start + low), min(place.stop, place.start + high + size)
        except Undecided:
            pass
        analyzer = sym.Analyzer()
        for var, extent, _ in access.loops:
            analyzer.bind(var, ir.Range(0, max(1, extent)))
        try:
            element: Any = tirx.IntImm("int64", 0)
            for index, stride in zip(access.indices, strides(access.buffer, self.known), strict=True):
                element = element + _bound(index, self.known) * stride
            found = analyzer.const_int_bound(analyzer.simplify(element))
        except (Undecided, ValueError):
            return place.start, place.stop
        start, stop = place.start + int(found.min_value) * size, place.start + (int(found.max_value) + 1) * size
        return max(place.start, start), min(place.stop, stop)


def _text_of(body: Any) -> KernelText:
    variables: dict[Any, None] = {}
    declared: list[tuple[Any, int, Any, Any]] = []

    def loop(stmt: Any) -> None:
        if not isinstance(stmt.extent, tirx.IntImm):
            tvm_ffi.structural_walk(stmt.extent, (ir.Var, lambda v: variables.setdefault(v)))

    def declare(stmt: Any) -> None:
        item_bytes, name = element_bytes(str(stmt.buffer.dtype)), operator_name(stmt.data)
        if name == "tirx.address_of":
            declared.append((stmt.buffer, item_bytes, stmt.data.args[0], None))
        elif name == "tirx.buffer_data":
            declared.append((stmt.buffer, item_bytes, None, stmt.data.args[0]))

    tvm_ffi.structural_walk(body, [(tirx.For, loop), (tirx.DeclBuffer, declare)], order="pre")
    fixed = {buffer: reach(buffer, {}) for buffer, _, _, _ in declared if _is_fixed(buffer)}
    return KernelText(declared, list(variables), fixed)


def _is_fixed(buffer: Any) -> bool:
    """Whether the extents and strides of a buffer are numbers."""
    return all(isinstance(extent, tirx.IntImm) for extent in (*buffer.shape, *buffer.strides))


def _free(access: NestAccess) -> list[Any]:
    """The variables in the indices of an access that are not of its loops."""
    used: list[Any] = []
    for index in access.indices:
        tvm_ffi.structural_walk(index, (ir.Var, used.append))
    return [v for v in used if not any(v.same_as(own) for own, _, _ in access.loops)]


def _is_pool(buffer: Any, load: Any) -> bool:
    """Whether a buffer declared on the address of an element is one more name of the whole buffer that has it."""
    first = load.indices[0]
    alike = tvm_ffi.structural_equal(buffer.shape, load.source.shape) and buffer.dtype == load.source.dtype
    return alike and isinstance(first, tirx.IntImm) and int(first) == 0


def _behind(load: Any, count: int) -> Any:
    """The element `count` bytes behind the one that `load` has, of a pool of bytes."""
    return tirx.BufferLoad(load.source, [load.indices[0] + count]) if count else load


def _element(pool: Any, buffer: Any, item_bytes: int) -> Any:
    """The byte of a whole pool, declared as other elements, where `buffer` begins."""
    return tirx.BufferLoad(pool, [buffer.elem_offset * item_bytes])


def _last(access: NestAccess) -> int:
    """The time of an access's last execution."""
    return int(access.time + sum((extent - 1) * turn for _, extent, turn in access.loops))


def _bound(expr: Any, known: Mapping[Any, Any]) -> Any:
    """`expr` with the symbols that have values put in."""
    if isinstance(expr, tirx.IntImm) or not known:
        return expr
    return tvm_ffi.structural_map(expr, (ir.Var, lambda v: tirx.IntImm(str(v.ty.dtype), known[v]) if v in known else v))
