"""What a host PrimFunc does to its parameters and allocations, statement by statement.

Invariant: a statement that could touch a storage is recorded as touching it. A use that is not a
plain load or store (a pointer handed on, an intrinsic) reads and writes the whole storage. Only
allocations that run once at a time in global memory are offered for planning: those of other
scopes and those inside parallel loops stay what they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tvm_ffi
from tvm import ir, sym, tirx

from ...vocabulary import ONLY_READ
from ..program import Branch, Internal, Loop, Node, RelaxTensor, Step, StepAccess
from ..sizes import element_alignment, static_extent, strides_of
from . import nodes_of, operator_of
from .distance import highest_distance


class Touch(NamedTuple):
    """A storage (index into parameters, then allocations) touched by one statement."""

    storage: int
    writes: bool
    exact: bool


@dataclass(eq=False, slots=True)
class _Node:
    label: str = ""
    statement: Any = None
    opaque: frozenset[int] = frozenset()
    distances: dict[tuple[tuple[int, ...], int], Any] = field(default_factory=dict)
    mapped: dict[tuple[tuple[int, ...], int], list[tuple[Mapping[Any, Any], Any]]] = field(default_factory=dict)
    touches: list[Touch] = field(default_factory=list)
    body: list[_Node] | None = None  # a loop
    local: list[int] = field(default_factory=list)
    branches: tuple[list[_Node], list[_Node]] | None = None


VECTOR_ALIGNMENT = 16
"""In bytes: vector loads of GPUs are of so many at most; those of LLVM take what elements have."""


def _least_alignment(body: Any) -> int:
    """What all buffers of a PrimFunc are aligned to: for its vectors, and for views of them in other types."""
    if any(loop.kind in _WIDE for loop in nodes_of(body, tirx.For)) or nodes_of(body, tirx.Ramp):
        return VECTOR_ALIGNMENT
    if any(a.attr_key in ("thread_extent", "virtual_thread") for a in nodes_of(body, tirx.AttrStmt)):
        return VECTOR_ALIGNMENT
    return max((element_alignment(str(d.buffer.dtype)) for d in nodes_of(body, tirx.DeclBuffer)), default=1)


class Outline:
    """A PrimFunc as steps over storage indices: parameters first, then planned allocations."""

    def __init__(self, function: Any) -> None:
        self.buffers: list[Any] = list(function.params)  # of each storage
        self.allocations: list[Any] = []  # AllocBuffer statements
        self.nodes: list[_Node] = []
        self.roots: dict[Any, frozenset[int]] = {p: frozenset((i,)) for i, p in enumerate(function.params)}
        self.direct = set(function.params)  # buffers that are a storage itself, not a view of one
        self.count = 0
        self.compact = own_symbols(function)
        self.only_read = {str(name) for name in function.attrs.get(ONLY_READ, ())}
        self.visit(function.body, self.nodes, [], serial=True)
        self.least_alignment = _least_alignment(function.body)
        self.strided = [i for i, p in enumerate(function.params) if tirx.is_buffer_var(p) and not self.is_compact(p)]

    def is_compact(self, parameter: Any) -> bool:
        """Whether a parameter's elements lie row by row, as those of every tensor that Relax makes do."""
        if static_extent(parameter.elem_offset) != 0 and parameter.elem_offset not in self.compact:
            return False
        rows = strides_of(parameter, {*self.compact, *parameter.strides})
        pairs = zip(strides_of(parameter, self.compact), rows, parameter.shape, strict=True)
        return all(static_extent(extent) == 1 or _equal(own, row) for own, row, extent in pairs)

    def alignment_of(self, parameter: int) -> int:
        """What the first byte of a parameter's buffer is a multiple of."""
        buffer = self.buffers[parameter]
        own = element_alignment(str(buffer.dtype)) if tirx.is_buffer_var(buffer) else 1
        return max(own, self.least_alignment)

    def distance(self, node: _Node, sources: tuple[int, ...], target: int) -> Any:
        """`highest_distance` of one statement, computed once for all calls: int, expression of its symbols, None."""
        key = (sources, target)
        if key not in node.distances:
            hidden = node.opaque & {*sources, target}
            inputs = [self.buffers[i] for i in sources]
            node.distances[key] = (
                None if hidden else highest_distance(node.statement, inputs, self.buffers[target], self.compact)
            )
        return node.distances[key]

    def visit(self, stmt: Any, into: list[_Node], local: list[int], *, serial: bool) -> None:
        """Appends the steps of `stmt`; allocations met at this level are added to `local`."""
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self.visit(part, into, local, serial=serial)
        elif isinstance(stmt, tirx.AllocBuffer):
            self.allocate(stmt, local, serial=serial)
        elif isinstance(stmt, tirx.DeclBuffer):
            self.roots[stmt.buffer] = self.used(stmt.data)
        elif isinstance(stmt, tirx.Bind) and isinstance(stmt.var.ty, ir.PointerType):
            self.roots[stmt.var] = self.used(stmt.value)
        elif isinstance(stmt, tirx.AttrStmt):
            threads = stmt.attr_key in ("thread_extent", "virtual_thread")
            self.visit(stmt.body, into, local, serial=serial and not threads)
        elif isinstance(stmt, tirx.For | tirx.While) and _declares(stmt.body):
            body: list[_Node] = []
            node = _Node(body=body)
            inner = serial and (isinstance(stmt, tirx.While) or stmt.kind in _SERIAL)
            if isinstance(stmt, tirx.While):
                self.leaf(stmt.condition, body)
            self.visit(stmt.body, body, node.local, serial=inner)
            into.append(node)
        elif isinstance(stmt, tirx.IfThenElse) and _declares(stmt):
            self.leaf(stmt.condition, into)
            then: list[_Node] = []
            other: list[_Node] = []
            self.visit(stmt.then_case, then, local, serial=serial)
            if stmt.else_case is not None:
                self.visit(stmt.else_case, other, local, serial=serial)
            into.append(_Node(branches=(then, other)))
        else:
            self.leaf(stmt, into)

    def allocate(self, stmt: Any, local: list[int], *, serial: bool) -> None:
        if not serial or stmt.buffer.scope() != "global":
            self.roots[stmt.buffer] = frozenset()
            return
        index = len(self.buffers)
        self.allocations.append(stmt)
        self.buffers.append(stmt.buffer)
        self.direct.add(stmt.buffer)
        self.roots[stmt.buffer] = frozenset((index,))
        local.append(index)

    def used(self, expr: Any) -> frozenset[int]:
        return frozenset(i for v in nodes_of(expr, ir.Var) for i in self.roots.get(v, ()))

    def leaf(self, stmt: Any, into: list[_Node]) -> None:
        """One point: everything that `stmt` touches."""
        loads: list[Any] = []
        stores: list[Any] = []
        uses: list[Any] = []
        kinds = [(tirx.BufferStore, stores.append), (ir.TensorLoad, loads.append), (ir.Var, uses.append)]
        tvm_ffi.structural_walk(stmt, kinds, order="pre")
        read_from, written_to = [n.source for n in loads], [n.buffer for n in stores]
        plain, used = Counter(read_from + written_to), Counter(uses)
        opaque = {v for v in used if v in self.roots and used[v] > plain[v]}
        opaque.update(b for b in _addressed(stmt) if b in self.roots)
        read = {i for b in read_from for i in self.roots.get(b, ())}
        written = {i for b in written_to for i in self.roots.get(b, ())}
        for v in opaque:
            read |= self.roots[v]
            if v.name not in self.only_read:
                written |= self.roots[v]
        whole = _whole_write(stmt)
        exact = self.roots[whole] if whole in self.direct else frozenset()
        handed = {i for v in opaque for i in self.roots[v]}
        touches = [Touch(i, False, i not in written and i not in handed) for i in sorted(read)]
        touches += [Touch(i, True, i in exact and i not in read) for i in sorted(written)]
        if touches:
            indirect = {i for b in plain if b not in self.direct for i in self.roots.get(b, ())}
            hidden = frozenset(indirect.union(*(self.roots[v] for v in opaque)))
            into.append(_Node(label=str(self.count), statement=stmt, opaque=hidden, touches=touches))
            self.count += 1

    def steps(
        self,
        storages: Sequence[RelaxTensor | Internal | None],
        label: str,
        symbols: Mapping[Any, Any],
        partial: frozenset[int] = frozenset(),
        *,
        overlaps: bool,
    ) -> list[Node]:
        """The steps of one call: `storages[i]` stands for index i, None for what is not planned.

        Those of `partial` are larger than their parameter, which may begin anywhere in them. With `overlaps` steps can
        show how their storages may overlap.
        """
        sizes = [(s.size_bytes or 1) if s is not None else 0 for s in storages]

        def made(node: _Node, once: bool) -> Node:
            if node.body is not None:
                local = tuple(s for s in (storages[i] for i in node.local) if isinstance(s, Internal))
                return Loop([made(inner, False) for inner in node.body], local)
            if node.branches is not None:
                then, other = ([made(inner, once) for inner in part] for part in node.branches)
                return Branch(then, other)
            accesses = []
            for index, writes, exact in node.touches:
                storage = storages[index]
                if storage is not None:
                    accesses.append(StepAccess(storage, ((0, sizes[index]),), writes, exact and index not in partial))
            origin = Origin(self, node, storages, symbols, partial) if once else None
            return Step(f"{label}.{node.label}", tuple(accesses), origin=origin)

        return [made(node, overlaps) for node in self.nodes]


_SERIAL = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)
_WIDE = (tirx.ForKind.VECTORIZED, tirx.ForKind.THREAD_BINDING)


def own_symbols(function: Any) -> frozenset[Any]:
    """Symbols of strides and offsets that parameters read off their tensors, which are compact."""
    buffers = [p for p in function.params if tirx.is_buffer_var(p)]
    shapes = {e for b in buffers for e in b.shape if isinstance(e, ir.Var)}.union(function.params)
    found = (e for b in buffers for e in (*b.strides, b.elem_offset) if isinstance(e, ir.Var))
    return frozenset(found) - shapes


def _declares(stmt: Any) -> bool:
    return bool(nodes_of(stmt, tirx.AllocBuffer, tirx.DeclBuffer))


def _addressed(stmt: Any) -> list[Any]:
    """Buffers whose element address is taken: the pointer may reach any of their bytes."""
    return [call.args[0].source for call in nodes_of(stmt, ir.Call) if operator_of(call) == "tirx.address_of"]


def _whole_write(stmt: Any) -> Any:
    """The buffer that `stmt` overwrites completely, each element once, or None.

    Only the plain case: nested loops from 0 whose variables are the indices of one store.
    """
    extents: dict[Any, Any] = {}
    while isinstance(stmt, tirx.For) and static_extent(stmt.min) == 0 and (stmt.step is None or _equal(stmt.step, 1)):
        extents[stmt.loop_var] = stmt.extent
        stmt = stmt.body
    if not isinstance(stmt, tirx.BufferStore) or len(stmt.indices) != len(stmt.buffer.shape):
        return None
    variables = [i for i in stmt.indices if isinstance(i, ir.Var)]
    whole = len(set(variables)) == len(variables)
    for index, extent in zip(stmt.indices, stmt.buffer.shape, strict=True):
        whole = whole and (
            _equal(extents[index], extent) if index in extents else static_extent(index) == 0 and _equal(extent, 1)
        )
    return stmt.buffer if whole else None


def _equal(left: Any, right: Any) -> bool:
    """Whether two extents are the same number or the same expression."""
    number = static_extent(left)
    return number == static_extent(right) if number is not None else bool(tvm_ffi.structural_equal(left, right))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a step comes from: enough to ask how its storages may overlap."""

    outline: Outline
    node: _Node
    storages: Sequence[RelaxTensor | Internal | None]
    symbols: Mapping[Any, Any]  # of the PrimFunc -> what they are in the caller
    partial: frozenset[int] = frozenset()  # storages of which the parameter is a part

    def distance(self, first: RelaxTensor | Internal, second: RelaxTensor | Internal) -> Any:
        """The greatest proven offset(second) - offset(first), in the caller's symbols; None: nothing is proven."""
        sources = tuple(i for i, s in enumerate(self.storages) if s is first)
        targets = tuple(i for i, s in enumerate(self.storages) if s is second)
        if not sources or len(targets) != 1 or not self.partial.isdisjoint((*sources, *targets)):
            return None
        found = self.outline.distance(self.node, sources, targets[0])
        if found is None or isinstance(found, int):
            return found
        known = self.node.mapped.setdefault((sources, targets[0]), [])
        for symbols, distance in known:  # most calls of a PrimFunc have the same shapes
            if all(tvm_ffi.structural_equal(symbols[v], e) for v, e in self.symbols.items()):
                return distance
        mapped = sym.Analyzer().simplify(tvm_ffi.structural_map(found, (ir.Var, lambda v: self.symbols.get(v, v))))
        number = static_extent(mapped)
        known.append((self.symbols, mapped if number is None else number))
        return known[-1][1]
