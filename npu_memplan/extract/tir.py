"""A host PrimFunc's statements: what they read and write, and how far an output may lie over an input.

Invariant: independent of Relax; what is not proven is not claimed. A statement that could touch a storage is recorded
as touching it. A use that is not a plain load or store (a pointer handed on, an intrinsic) reads and writes the whole
storage. Only allocations that run once at a time in global memory are offered for planning: those of other scopes and
those inside parallel loops stay what they are. A distance d returned for (input, output) is safe: when the output
starts at most d bytes after the input (d is negative if it must start before it), no byte of the input is overwritten
before its last read. With symbolic shapes d is an expression, safe for all values of its symbols. Both proofs order
time by the loop counters, compare every write with every later read, and round what they cannot see (inner loops,
conditions, unknown indices) towards "everything is touched". Only serial loops have an order; others prove nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, sym, tirx
from tvm.tirx.layout import TileLayout
from tvm_ffi import StructuralKey

from ..vocabulary import DISTANCES, ONLY_READ
from .program import (
    Branch,
    Internal,
    Loop,
    Node,
    RelaxTensor,
    Step,
    StepAccess,
    element_alignment,
    element_bytes,
    static_extent,
    strides_of,
)


def nodes_of(tree: Any, *kinds: type) -> list[Any]:
    """All nodes of these `kinds` in a statement, an expression or a function, in textual order."""
    found: list[Any] = []
    tvm_ffi.structural_walk(tree, (kinds, found.append), order="pre")
    return found


def used_variables(tree: Any) -> set[Any]:
    """The variables that are used in a statement, an expression or a function, other than where they are defined."""
    found: set[Any] = set()

    def use(var: Any, kind: Any) -> None:
        if kind == tvm_ffi.DefRegionKind.NONE:
            found.add(var)

    tvm_ffi.structural_walk(tree, with_def_region_kind=(ir.Var, use), order="pre")
    return found


def operator_of(expr: Any) -> str:
    """The name of the operator that an expression calls; "" where it calls none."""
    operator = expr.op if isinstance(expr, ir.Call) else None
    return str(operator.name) if isinstance(operator, ir.Op) else ""


GRID = 1 << 16
"""Most time steps that are looked at one by one; above, only the closed form is used."""

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Loop:
    var: Any
    extent: Any  # int, or an expression of shape symbols


@dataclass(frozen=True, slots=True)
class _Access:
    buffer: Any
    strides: tuple[Any, ...]  # in elements: ints, or expressions
    indices: tuple[Any, ...]
    writes: bool
    loops: tuple[_Loop, ...]
    order: int  # of its statement in the text; loads of a store come before it


class _NoOrder(Exception):
    """The statement has no serial order that is understood."""


def highest_distance(statement: Any, inputs: Sequence[Any], output: Any, compact: Collection[Any] = ()) -> Any:
    """The greatest safe `offset(output) - offset(input)` in bytes for buffers `inputs`: an int or an expression.

    `inputs` are the names that the statement has for one input; `output` must be written and the
    inputs only be read, with plain loads and stores. Strides that are symbols of `compact` are row-major. None when
    nothing can be proven.
    """
    if not all(_is_plain(buffer, compact) for buffer in (*inputs, output)):
        return None
    if _pointwise(statement, inputs, output, compact):
        return 0
    try:
        found = _Collector(statement, compact).found
    except _NoOrder:
        return None
    reads = [a for a in found if not a.writes and any(a.buffer.same_as(b) for b in inputs)]
    writes = [a for a in found if a.writes and a.buffer.same_as(output)]
    if not reads or not writes:
        return None
    loops = _common_loops(reads + writes)
    # In one step of the shared loops everything is read before anything is written.
    strict = all(a.loops == loops for a in writes) and max(a.order for a in reads) <= min(a.order for a in writes)
    linear = _linear(reads, writes, loops, strict=strict)
    if not _is_static(reads + writes):
        return linear
    proofs = [linear, _stepwise(reads, writes, loops, strict=strict)]
    return max((p for p in proofs if p is not None), default=None)


def _is_plain(buffer: Any, compact: Collection[Any]) -> bool:
    """Whether the strides, none of them negative, say where the elements lie."""
    row_major = buffer.layout is None or (isinstance(buffer.layout, TileLayout) and buffer.layout.is_trivial())
    begins = static_extent(buffer.elem_offset) == 0 or buffer.elem_offset in compact
    return row_major and begins and all(not isinstance(s, int) or s >= 0 for s in strides_of(buffer, compact))


def _is_static(accesses: Sequence[_Access]) -> bool:
    return all(isinstance(loop.extent, int) for a in accesses for loop in a.loops) and all(
        static_extent(e) is not None for a in accesses for e in (*a.buffer.shape, *a.strides)
    )


def _pointwise(statement: Any, inputs: Sequence[Any], output: Any, compact: Collection[Any]) -> bool:
    """Whether each element, in order, is made from the input's element at the same address alone.

    Holds for symbolic shapes as well: the loop variables themselves are the indices of both.
    """
    loops: list[Any] = []
    while isinstance(statement, tirx.For):
        if statement.kind not in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED) or statement.step is not None:
            return False
        loops.append(statement.loop_var)
        statement = statement.body
    if not isinstance(statement, tirx.BufferStore) or not statement.buffer.same_as(output):
        return False
    variables = [i for i in statement.indices if static_extent(i) is None]
    if len(variables) != len(loops) or not all(i.same_as(v) for i, v in zip(variables, loops, strict=True)):
        return False
    loads = [n for n in nodes_of(statement.value, ir.TensorLoad) if any(n.source.same_as(b) for b in inputs)]
    return bool(loads) and all(
        tvm_ffi.structural_equal(n.indices, statement.indices)
        and tvm_ffi.structural_equal(n.source.shape, output.shape)
        and all(map(tvm_ffi.structural_equal, strides_of(n.source, compact), strides_of(output, compact)))
        and element_bytes(str(n.source.dtype)) == element_bytes(str(output.dtype))
        for n in loads
    )


# -- accesses ----------------------------------------------------------------------------------


class _Collector:
    """Every load and store of a statement, in textual order, with the loops around it."""

    def __init__(self, statement: Any, compact: Collection[Any]) -> None:
        self.compact = compact
        self.strides: dict[Any, tuple[Any, ...]] = {}  # of each buffer
        self.stores = Counter(store.buffer for store in nodes_of(statement, tirx.BufferStore))
        self.found: list[_Access] = []
        self.order = 0  # number of the statement at hand: its loads come before its store
        self.conditions = 0
        # Scalars that are set once, without a condition: their value stands for them.
        self.scalars: dict[Any, tuple[Any, tuple[_Loop, ...]]] = {}
        self.visit(statement, ())

    def visit(self, stmt: Any, loops: tuple[_Loop, ...]) -> None:
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self.visit(part, loops)
        elif isinstance(stmt, tirx.For):
            extent, start = static_extent(stmt.extent), static_extent(stmt.min)
            if stmt.kind not in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED) or start != 0:
                raise _NoOrder
            if stmt.step is not None and static_extent(stmt.step) != 1:
                raise _NoOrder
            self.visit(stmt.body, (*loops, _Loop(stmt.loop_var, stmt.extent if extent is None else extent)))
        elif isinstance(stmt, tirx.BufferStore):
            self.order += 1
            for expr in (stmt.value, *stmt.indices):
                self.loads(expr, loops)
            once = self.stores[stmt.buffer] == 1 and not self.conditions
            if once and all(static_extent(e) == 1 for e in stmt.buffer.shape):
                self.scalars[stmt.buffer] = self.resolve_scalars(stmt.value, loops), loops
            indices = tuple(self.resolve_scalars(e, loops) for e in stmt.indices)
            self.note(stmt.buffer, indices, loops, writes=True)
        elif isinstance(stmt, tirx.IfThenElse):
            self.order += 1
            self.loads(stmt.condition, loops)
            self.conditions += 1
            self.visit(stmt.then_case, loops)
            if stmt.else_case is not None:
                self.visit(stmt.else_case, loops)
            self.conditions -= 1
        else:  # also attributes: they may make threads of what is inside
            raise _NoOrder

    def loads(self, expr: Any, loops: tuple[_Loop, ...]) -> None:
        for load in nodes_of(expr, ir.TensorLoad):
            indices = tuple(self.resolve_scalars(e, loops) for e in load.indices)
            self.note(load.source, indices, loops, writes=False)

    def note(self, buffer: Any, indices: tuple[Any, ...], loops: tuple[_Loop, ...], *, writes: bool) -> None:
        if buffer not in self.strides:
            self.strides[buffer] = tuple(strides_of(buffer, self.compact))
        self.found.append(_Access(buffer, self.strides[buffer], indices, writes, loops, self.order))

    def resolve_scalars(self, expr: Any, loops: tuple[_Loop, ...]) -> Any:
        """`expr` with scalars replaced by what was stored there in this very iteration."""

        def value(n: Any) -> Any:
            known = self.scalars.get(n.source)
            return n if known is None or known[1] != loops[: len(known[1])] else known[0]

        if isinstance(expr, ir.Var | tirx.IntImm):
            return expr
        return tvm_ffi.structural_map(expr, (ir.TensorLoad, value))


def _common_loops(accesses: Sequence[_Access]) -> tuple[_Loop, ...]:
    """Loops around all of `accesses`."""
    shared = accesses[0].loops
    for access in accesses[1:]:
        pairs = zip(shared, access.loops, strict=False)
        shared = tuple(a for a, _ in takewhile(lambda pair: pair[0].var.same_as(pair[1].var), pairs))
    return shared


# -- step by step ------------------------------------------------------------------------------


def _stepwise(
    reads: Sequence[_Access], writes: Sequence[_Access], loops: tuple[_Loop, ...], *, strict: bool
) -> int | None:
    """Hulls of what every step of the outer loops reads and writes, compared with all later steps."""
    depth, count = 0, 1
    while depth < len(loops) and count * loops[depth].extent <= GRID:
        count *= loops[depth].extent
        depth += 1
    if count == 0:
        return None
    grid: dict[Any, Array] = {}
    stride = count
    index = np.arange(count, dtype=np.int64)
    for loop in loops[:depth]:
        stride //= loop.extent
        grid[loop.var] = index // stride % loop.extent
    lowest_read = np.min([_hull(a, grid, count)[0] for a in reads], axis=0)
    end_of_write = np.max([_hull(a, grid, count)[1] for a in writes], axis=0)
    later = np.minimum.accumulate(lowest_read[::-1])[::-1]
    if strict and depth == len(loops):
        if count == 1:
            return 0
        later, end_of_write = later[1:], end_of_write[:-1]
    return int((later - end_of_write).min())


def _hull(access: _Access, grid: dict[Any, Array], count: int) -> tuple[Array, Array]:
    """Lowest byte and end of the highest byte touched in each step; indices are in range."""
    size = element_bytes(str(access.buffer.dtype))
    inner = {loop.var: loop.extent for loop in access.loops if loop.var not in grid}
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for expr, extent, stride in zip(access.indices, access.buffer.shape, access.strides, strict=True):
        length = static_extent(extent)
        if length is None:
            raise ValueError("symbolic shape")
        a, b = _interval(expr, grid, inner) or (np.int64(0), np.int64(length - 1))
        low = low + np.clip(a, 0, length - 1) * stride
        high = high + np.clip(b, 0, length - 1) * stride
    return low * size, (high + 1) * size


def index_ranges(loop: Any, axis: int) -> list[tuple[Any, bool, Array, Array]] | None:
    """(buffer, whether it is written, least and greatest index along `axis` in each round of `loop`) of all accesses to
    buffers that have such an axis; None where there is no order, or no number of rounds.
    """
    rounds = static_extent(loop.extent)
    try:
        found = _Collector(loop, ()).found
    except _NoOrder:
        return None
    if rounds is None:
        return None
    grid, ranges = {loop.loop_var: np.arange(rounds)}, []
    for access in found:
        if len(access.indices) <= axis:
            continue
        last = int(access.buffer.shape[axis]) - 1
        inner = {other.var: other.extent for other in access.loops if other.var not in grid}
        ends = _interval(access.indices[axis], grid, inner) or (np.int64(0), np.int64(last))
        low, high = (np.broadcast_to(np.clip(end, 0, last), rounds) for end in ends)
        ranges.append((access.buffer, access.writes, low, high))
    return ranges


def _interval(expr: Any, grid: dict[Any, Array], inner: dict[Any, int]) -> tuple[Any, Any] | None:
    """Least and greatest value of an index in each step; None when it cannot be bounded."""
    if isinstance(expr, tirx.IntImm):
        value = np.int64(int(expr.value))
        return value, value
    if isinstance(expr, ir.Var):
        if expr in grid:
            return grid[expr], grid[expr]
        return (np.int64(0), np.int64(inner[expr] - 1)) if expr in inner else None
    if isinstance(expr, tirx.Cast):
        return _interval(expr.value, grid, inner)
    if not isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul | tirx.FloorDiv | tirx.FloorMod | tirx.Min | tirx.Max):
        return None
    left, right = _interval(expr.a, grid, inner), _interval(expr.b, grid, inner)
    if left is None or right is None:
        return None
    (a, b), (c, d) = left, right
    if isinstance(expr, tirx.Add):
        return a + c, b + d
    if isinstance(expr, tirx.Sub):
        return a - d, b - c
    if isinstance(expr, tirx.Min):
        return np.minimum(a, c), np.minimum(b, d)
    if isinstance(expr, tirx.Max):
        return np.maximum(a, c), np.maximum(b, d)
    if isinstance(expr, tirx.Mul):
        products = [a * c, a * d, b * c, b * d]
        return np.minimum.reduce(np.broadcast_arrays(*products)), np.maximum.reduce(np.broadcast_arrays(*products))
    if np.any(c != d) or np.any(np.asarray(c) <= 0):
        return None
    if isinstance(expr, tirx.FloorDiv):
        return a // c, b // c
    same = a // c == b // c
    return np.where(same, a % c, 0), np.where(same, b % c, c - 1)


# -- closed form -------------------------------------------------------------------------------


def _linear(reads: Sequence[_Access], writes: Sequence[_Access], loops: tuple[_Loop, ...], *, strict: bool) -> Any:
    """The minimum for addresses linear in the counters: over the first loop in which two steps differ."""
    distances = [_linear_pair(read, write, loops, strict=strict) for read in reads for write in writes]
    return None if any(distance is None for distance in distances) else _least(*distances)


def _linear_pair(read: _Access, write: _Access, loops: tuple[_Loop, ...], *, strict: bool) -> Any:
    source, target = _address(read), _address(write)
    if source is None or target is None:
        return None
    names = {loop.var for loop in loops}
    size = element_bytes(str(write.buffer.dtype))
    base = source.get(None, 0) - target.get(None, 0) - size
    for x in read.loops:
        base = base + (_least(0, source.get(x.var, 0) * (x.extent - 1)) if x.var not in names else 0)
    for x in write.loops:
        base = base - (_most(0, target.get(x.var, 0) * (x.extent - 1)) if x.var not in names else 0)
    r = [source.get(loop.var, 0) for loop in loops]
    w = [target.get(loop.var, 0) for loop in loops]
    last = [loop.extent - 1 for loop in loops]
    together = [_least(0, (r[j] - w[j]) * last[j]) for j in range(len(loops))]
    apart = [_least(0, r[j] * last[j]) - _most(0, w[j] * last[j]) for j in range(len(loops))]
    cases = [] if strict else [base + sum(together)]
    for k in range(len(loops)):
        if isinstance(last[k], int) and last[k] < 1:
            continue
        # t' > t in loop k: extremes of r*t' - w*t lie at the corners of 0 <= t < t' <= last
        corners = [r[k] * b - w[k] * a for a, b in ((0, 1), (0, last[k]), (last[k] - 1, last[k]))]
        case = base + sum(together[:k]) + _least(*corners) + sum(apart[k + 1 :])
        if not isinstance(last[k], int):  # a loop that may run once has no later step
            case = tirx.Select(tirx.LT(_wide(last[k]), _wide(1)), _NEVER, _wide(case))
        cases.append(case)
    return _least(*cases) if cases else 0


_NEVER = tirx.IntImm("int64", 1 << 40)
"""A distance that limits nothing: larger than any buffer."""


def _least(*values: Any) -> Any:
    return _fold(values, min, tirx.min)


def _most(*values: Any) -> Any:
    return _fold(values, max, tirx.max)


def _fold(values: Sequence[Any], number: Any, expression: Any) -> Any:
    result = values[0]
    for value in values[1:]:
        both = isinstance(result, int) and isinstance(value, int)
        result = number(result, value) if both else expression(_wide(result), _wide(value))
    return result


def _wide(value: Any) -> Any:
    """An expression of 64 bits."""
    if isinstance(value, int):
        return tirx.IntImm("int64", value)
    return value if str(value.ty.dtype) == "int64" else tirx.Cast("int64", value)


def _address(access: _Access) -> dict[Any, Any] | None:
    """Byte address as coefficients of loop variables (None: the constant); None if not linear."""
    known = {loop.var for loop in access.loops}
    total: dict[Any, Any] = {}
    for expr, stride in zip(access.indices, access.strides, strict=True):
        part = _coefficients(expr, known)
        if part is None:
            return None
        for v, c in part.items():
            total[v] = total.get(v, 0) + c * stride
    size = element_bytes(str(access.buffer.dtype))
    return {v: c * size for v, c in total.items()}


def _coefficients(expr: Any, loops: set[Any]) -> dict[Any, Any] | None:
    if isinstance(expr, tirx.IntImm):
        return {None: int(expr.value)}
    if isinstance(expr, ir.Var):
        return {expr: 1} if expr in loops else {None: expr}
    if isinstance(expr, tirx.Cast):
        return _coefficients(expr.value, loops)
    if not isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
        return None
    left, right = _coefficients(expr.a, loops), _coefficients(expr.b, loops)
    if left is None or right is None:
        return None
    if isinstance(expr, tirx.Mul):
        if set(left) <= {None}:
            left, right = right, left
        if not set(right) <= {None}:
            return None
        factor = right.get(None, 0)
        return {v: c * factor for v, c in left.items()}
    sign = 1 if isinstance(expr, tirx.Add) else -1
    return {v: left.get(v, 0) + right.get(v, 0) * sign for v in {**left, **right}}


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


OVERLAPS = "npu_memplan.overlaps"
"""Attribute of a function, Relax or PrimFunc: False forbids in-place and partial overlaps in it."""


def may_overlap(function: Any) -> bool:
    """Whether the function's attributes leave overlaps on."""
    return bool(function.attrs.get(OVERLAPS, True))


VECTOR_ALIGNMENT = 16
"""In bytes: vector loads of GPUs are of so many at most; those of LLVM take what elements have."""


def _least_alignment(body: Any) -> int:
    """The alignment of all buffers of a PrimFunc: for its vectors, and for views of them in other types."""
    if any(loop.kind in _WIDE for loop in nodes_of(body, tirx.For)) or nodes_of(body, tirx.Ramp):
        return VECTOR_ALIGNMENT
    if any(a.attr_key in ("thread_extent", "virtual_thread") for a in nodes_of(body, tirx.AttrStmt)):
        return VECTOR_ALIGNMENT
    return max((element_alignment(str(d.buffer.dtype)) for d in nodes_of(body, tirx.DeclBuffer)), default=1)


_MOST_PROVEN = 1 << 10
_PROVEN: dict[tuple[Any, ...], int | None] = {}


class Outline:
    """A PrimFunc as steps over storage indices: parameters first, then planned allocations."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.buffers: list[Any] = list(function.params)  # of each storage
        self.allocations: list[Any] = []  # AllocBuffer statements
        self.nodes: list[_Node] = []
        self.roots: dict[Any, frozenset[int]] = {p: frozenset((i,)) for i, p in enumerate(function.params)}
        self.direct = set(function.params)  # buffers that are a storage itself, not a view of one
        self.count = 0
        self.compact = own_symbols(function)
        self.may_overlap = may_overlap(function)
        self.only_read = {str(name) for name in function.attrs.get(ONLY_READ, ())}
        self.stated = {(str(i), str(o)): int(d) for i, o, d in function.attrs.get(DISTANCES, ())}
        self.visit(function.body, self.nodes, [], serial=True)
        self.least_alignment = _least_alignment(function.body)
        self.alignments = [self.alignment_of(p) for p in function.params]  # of the first bytes of its buffers
        self.strided = [i for i, p in enumerate(function.params) if tirx.is_buffer_var(p) and not self.is_compact(p)]

    def is_compact(self, parameter: Any) -> bool:
        """Whether a parameter's elements lie row by row, as those of every tensor that Relax makes do."""
        if static_extent(parameter.elem_offset) != 0 and parameter.elem_offset not in self.compact:
            return False
        rows = strides_of(parameter, {*self.compact, *parameter.strides})
        pairs = zip(strides_of(parameter, self.compact), rows, parameter.shape, strict=True)
        return all(static_extent(extent) == 1 or _equal(own, row) for own, row, extent in pairs)

    def alignment_of(self, parameter: Any) -> int:
        """The alignment of the first byte of a parameter's buffer."""
        own = element_alignment(str(parameter.dtype)) if tirx.is_buffer_var(parameter) else 1
        return max(own, self.least_alignment)

    def distance(self, node: _Node, sources: tuple[int, ...], target: int) -> Any:
        """`highest_distance` of one statement, computed once for all calls: int, expression of its symbols, None."""
        key = (sources, target)
        if key not in node.distances:
            hidden = node.opaque & {*sources, target}
            inputs = [self.buffers[i] for i in sources]
            names = [(str(buffer.name), str(self.buffers[target].name)) for buffer in inputs]
            if all(pair in self.stated for pair in names):
                node.distances[key] = min(self.stated[pair] for pair in names)
            elif hidden:
                node.distances[key] = None
            else:
                node.distances[key] = self._proven_distance(node, sources, target)
        return node.distances[key]

    def _proven_distance(self, node: _Node, sources: tuple[int, ...], target: int) -> Any:
        """`highest_distance`, which is looked for once in functions that do the same, where it is a number."""
        place = self.nodes.index(node) if node in self.nodes else None
        key = self._content, place, sources, target
        if key not in _PROVEN:
            inputs = [self.buffers[i] for i in sources]
            found = highest_distance(node.statement, inputs, self.buffers[target], self.compact)
            if place is None or not isinstance(found, int | None):
                return found
            if len(_PROVEN) == _MOST_PROVEN:
                _PROVEN.clear()
            _PROVEN[key] = found
        return _PROVEN[key]

    @cached_property
    def _content(self) -> StructuralKey:
        """Equal for functions that do the same."""
        return StructuralKey(tirx.PrimFunc(self.function.params, self.function.body))

    def visit(self, stmt: Any, into: list[_Node], local: list[int], *, serial: bool) -> None:
        """Appends the steps of `stmt`; allocations met at this level are added to `local`."""
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self.visit(part, into, local, serial=serial)
        elif isinstance(stmt, tirx.AllocBuffer):
            self.allocate(stmt, local, serial=serial)
        elif isinstance(stmt, tirx.DeclBuffer):
            self.roots[stmt.buffer] = self.storages_in(stmt.data)
        elif isinstance(stmt, tirx.Bind) and isinstance(stmt.var.ty, ir.PointerType):
            self.roots[stmt.var] = self.storages_in(stmt.value)
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

    def storages_in(self, expr: Any) -> frozenset[int]:
        """The numbers of the storages whose variables `expr` names."""
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
        opaque.update(b for b in _addressed_buffers(stmt) if b in self.roots)
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
        whole = [None if s is None else ((0, s.size_bytes or 1),) for s in storages]
        call = _OutlinedCall(self, storages, whole, label, symbols, partial)
        return [call.make_node(node, overlaps) for node in self.nodes]


@dataclass(frozen=True, slots=True, eq=False)
class _OutlinedCall:
    """A call of an outlined PrimFunc; `whole` has all bytes of each storage."""

    outline: Outline
    storages: Sequence[RelaxTensor | Internal | None]
    whole: Sequence[Any]
    label: str
    symbols: Mapping[Any, Any]
    partial: frozenset[int]

    def make_node(self, node: _Node, once: bool) -> Node:
        """A node of the call's; `once` says that it runs once, and may show how its storages overlap."""
        storages, partial = self.storages, self.partial
        if node.body is not None:
            local = tuple(s for s in (storages[i] for i in node.local) if isinstance(s, Internal))
            return Loop([self.make_node(inner, False) for inner in node.body], local)
        if node.branches is not None:
            then, other = ([self.make_node(inner, once) for inner in part] for part in node.branches)
            return Branch(then, other)
        accesses = []
        for index, writes, exact in node.touches:
            storage = storages[index]
            if storage is not None:
                accesses.append(StepAccess(storage, self.whole[index], writes, exact and index not in partial))
        origin = Origin(self.outline, node, storages, self.symbols, partial) if once else None
        return Step(f"{self.label}.{node.label}", tuple(accesses), origin=origin)


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


def _addressed_buffers(stmt: Any) -> list[Any]:
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
    """The origin of a step: enough to ask how its storages may overlap."""

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
            if all(symbols[v] is e or tvm_ffi.structural_equal(symbols[v], e) for v, e in self.symbols.items()):
                return distance
        mapped = sym.Analyzer().simplify(tvm_ffi.structural_map(found, (ir.Var, lambda v: self.symbols.get(v, v))))
        number = static_extent(mapped)
        known.append((self.symbols, mapped if number is None else number))
        return known[-1][1]
