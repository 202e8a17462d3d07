"""What a host PrimFunc does to its parameters and allocations, statement by statement.

Invariant: a statement that could touch a storage is recorded as touching it. A use that is not a
plain load or store (a pointer handed on, an intrinsic) reads and writes the whole storage. Only
allocations that run once at a time in global memory are offered for planning: those of other
scopes and those inside parallel loops stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from ...vocabulary import ONLY_READ
from ..program import Branch, Internal, Loop, Node, RelaxTensor, Step, StepAccess
from ..sizes import static_extent
from .distance import highest_distance


@dataclass(eq=False, slots=True)
class Touch:
    """A storage (index into parameters, then allocations) touched by one statement."""

    storage: int
    writes: bool
    exact: bool


@dataclass(eq=False, slots=True)
class Outline:
    """A PrimFunc as steps over storage indices: parameters first, then planned allocations."""

    parameters: int
    function: Any = None
    allocations: list[Any] = field(default_factory=list)  # AllocBuffer statements
    nodes: list[_Node] = field(default_factory=list)

    def buffer(self, storage: int) -> Any:
        """The buffer variable of a storage index."""
        if storage < self.parameters:
            return self.function.params[storage]
        return self.allocations[storage - self.parameters].buffer

    def distance(self, node: _Node, sources: tuple[int, ...], target: int) -> Any:
        """`highest_distance` of one statement, computed once for all calls: int, expression of its symbols, None."""
        key = (sources, target)
        if key not in node.distances:
            if node.opaque & {*sources, target}:
                node.distances[key] = None
            else:
                node.distances[key] = highest_distance(
                    node.statement, [self.buffer(i) for i in sources], self.buffer(target)
                )
        return node.distances[key]


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


def outline(function: Any) -> Outline:
    """The outline of `function`; it depends on nothing but the function."""
    return _Walker(function).run()


class _Walker:
    def __init__(self, function: Any) -> None:
        self.function = function
        self.result = Outline(len(function.params), function)
        self.roots: dict[Any, frozenset[int]] = {p: frozenset((i,)) for i, p in enumerate(function.params)}
        self.count = 0
        self.only_read = {str(name) for name in (function.attrs or {}).get(ONLY_READ, ())}

    def run(self) -> Outline:
        self.visit(self.function.body, self.result.nodes, [], serial=True)
        return self.result

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
            node = _Node(body=[])
            assert node.body is not None
            inner = serial and (isinstance(stmt, tirx.While) or stmt.kind in _SERIAL)
            if isinstance(stmt, tirx.While):
                self.leaf(stmt.condition, node.body)
            self.visit(stmt.body, node.body, node.local, serial=inner)
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
        index = self.result.parameters + len(self.result.allocations)
        self.result.allocations.append(stmt)
        self.roots[stmt.buffer] = frozenset((index,))
        local.append(index)

    def used(self, expr: Any) -> frozenset[int]:
        found: set[int] = set()
        tvm_ffi.structural_walk(expr, (ir.Var, lambda v: found.update(self.roots.get(v, ()))))
        return frozenset(found)

    def leaf(self, stmt: Any, into: list[_Node]) -> None:
        """One point: everything that `stmt` touches."""
        loads: list[Any] = []
        stores: list[Any] = []
        uses: list[Any] = []
        tvm_ffi.structural_walk(
            stmt,
            [
                (tirx.BufferStore, lambda s: stores.append(s)),
                (ir.TensorLoad, lambda s: loads.append(s)),
                (ir.Var, lambda v: uses.append(v)),
            ],
            order="pre",
        )
        plain: dict[Any, int] = {}
        for node in loads:
            plain[node.source] = plain.get(node.source, 0) + 1
        for node in stores:
            plain[node.buffer] = plain.get(node.buffer, 0) + 1
        opaque = {v for v in uses if v in self.roots and _count_down(plain, v) < 0}
        opaque.update(_addressed(stmt, self.roots))
        read = {i for n in loads for i in self.roots.get(n.source, ())}
        written = {i for n in stores for i in self.roots.get(n.buffer, ())}
        for v in opaque:
            read |= self.roots[v]
            if v.name not in self.only_read:
                written |= self.roots[v]
        whole = _whole_write(stmt)
        exact = next(iter(self.roots.get(whole, ())), None) if whole is not None else None
        if len(self.roots.get(whole, ())) != 1 or whole not in self.direct():
            exact = None
        touches = [Touch(i, False, False) for i in sorted(read)]
        touches += [Touch(i, True, i == exact and i not in read) for i in sorted(written)]
        if touches:
            indirect = {i for n in (*loads, *stores) for i in self.indirect(n)}
            hidden = frozenset(indirect.union(*(self.roots[v] for v in opaque)))
            into.append(_Node(label=str(self.count), statement=stmt, opaque=hidden, touches=touches))
            self.count += 1

    def indirect(self, access: Any) -> frozenset[int]:
        """Storages that a load or store reaches through a view of them."""
        buffer = access.buffer if isinstance(access, tirx.BufferStore) else access.source
        return frozenset() if buffer in self.direct() else self.roots.get(buffer, frozenset())

    def direct(self) -> set[Any]:
        """Buffers that are a storage itself, not a view of one."""
        return set(self.function.params) | {a.buffer for a in self.result.allocations}


_SERIAL = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)


def _count_down(counts: dict[Any, int], key: Any) -> int:
    counts[key] = counts.get(key, 0) - 1
    return counts[key]


def _declares(stmt: Any) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, ((tirx.AllocBuffer, tirx.DeclBuffer), lambda s: found.append(s)))
    return bool(found)


def _addressed(stmt: Any, roots: dict[Any, Any]) -> set[Any]:
    """Buffers whose element address is taken: the pointer may reach any of their bytes."""
    found: set[Any] = set()

    def look(call: Any) -> None:
        if isinstance(call.op, ir.Op) and call.op.name == "tirx.address_of" and call.args[0].source in roots:
            found.add(call.args[0].source)

    tvm_ffi.structural_walk(stmt, (ir.Call, look))
    return found


def _whole_write(stmt: Any) -> Any:
    """The buffer that `stmt` overwrites completely, each element once, or None.

    Only the plain case: nested loops from 0 whose variables are the indices of one store.
    """
    extents: dict[Any, Any] = {}
    while isinstance(stmt, tirx.For) and _is_zero(stmt.min) and (stmt.step is None or _equal(stmt.step, 1)):
        extents[stmt.loop_var] = stmt.extent
        stmt = stmt.body
    if not isinstance(stmt, tirx.BufferStore):
        return None
    shape = stmt.buffer.shape
    indices = list(stmt.indices)
    variables = [i for i in indices if isinstance(i, ir.Var)]
    if len(set(variables)) != len(variables) or len(indices) != len(shape):
        return None
    for index, extent in zip(indices, shape, strict=True):
        loop = extents.get(index)
        if loop is None:
            if not (_is_zero(index) and _equal(extent, 1)):
                return None
        elif not _equal(loop, extent):
            return None
    return stmt.buffer


def _is_zero(expr: Any) -> bool:
    return isinstance(expr, tirx.IntImm) and int(expr.value) == 0


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, tirx.IntImm):
        return int(left.value) == int(getattr(right, "value", right)) if not isinstance(right, ir.Var) else False
    return bool(tvm_ffi.structural_equal(left, right)) if not isinstance(right, int) else False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a step comes from: enough to ask how its storages may overlap."""

    outline: Outline
    node: _Node
    storages: Sequence[RelaxTensor | Internal | None]
    symbols: Mapping[Any, Any]  # of the PrimFunc -> what they are in the caller

    def distance(self, first: RelaxTensor | Internal, second: RelaxTensor | Internal) -> Any:
        """The greatest proven offset(second) - offset(first), in the caller's symbols; None: nothing is proven."""
        sources = tuple(i for i, s in enumerate(self.storages) if s is first)
        targets = tuple(i for i, s in enumerate(self.storages) if s is second)
        if not sources or len(targets) != 1:
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


def instantiate(
    plan: Outline,
    storages: Sequence[RelaxTensor | Internal | None],
    label: str,
    sizes: Sequence[int],
    symbols: Mapping[Any, Any],
    *,
    overlaps: bool = True,
) -> list[Node]:
    """The steps of one call: `storages[i]` stands for index i, None for what is not planned.

    With `overlaps` they can be asked how their storages may overlap.
    """
    return _instantiate(plan, plan.nodes, storages, label, sizes, symbols, once=overlaps)


def _instantiate(
    plan: Outline,
    nodes: Sequence[_Node],
    storages: Sequence[RelaxTensor | Internal | None],
    label: str,
    sizes: Sequence[int],
    symbols: Mapping[Any, Any],
    *,
    once: bool,
) -> list[Node]:
    result: list[Node] = []
    for node in nodes:
        if node.body is not None:
            local = tuple(s for s in (storages[i] for i in node.local) if isinstance(s, Internal))
            result.append(Loop(_instantiate(plan, node.body, storages, label, sizes, symbols, once=False), local))
        elif node.branches is not None:
            then, other = (
                _instantiate(plan, part, storages, label, sizes, symbols, once=once) for part in node.branches
            )
            result.append(Branch(then, other))
        else:
            accesses = []
            for touch in node.touches:
                storage = storages[touch.storage]
                if storage is not None:
                    accesses.append(StepAccess(storage, 0, sizes[touch.storage], touch.writes, touch.exact))
            origin = Origin(plan, node, storages, symbols) if once else None
            result.append(Step(f"{label}.{node.label}", tuple(accesses), origin=origin))
    return result
