"""A Relax function as a short list of statements over named storages, and the points of its time.

Invariant: every byte that the program touches belongs to exactly one `RelaxTensor` (a storage that Relax sees) or
`Internal` (an allocation inside a PrimFunc), and every touch is a `StepAccess` of a `Step`. Steps carry the points of
time: point t is the t-th step in textual order. `extract` turns this into a planning problem, `rewrite` turns it back
into Relax; neither looks at the original bindings again. A size is never too small: sub-byte elements take a whole byte
each (packing is up to the kernel), and a bounded size uses the upper bound of every symbol at once. What depends on
data has no value.
"""

from __future__ import annotations

import functools
import heapq
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from tvm import DataType, ir, relax, sym, tirx

from ..errors import NpuMemplanError
from ..problem import Agent, AllowedOverlap, BufferKind
from ..problem.spans import Spans
from ..vocabulary import VIEW_ALIGNMENT


@functools.cache
def element_bytes(dtype: str) -> int:
    """Bytes of one element, vector lanes included, each rounded up to a whole byte."""
    kind = DataType(dtype)
    return int((kind.bits + 7) // 8 * kind.lanes)


@functools.cache
def element_alignment(dtype: str) -> int:
    """The alignment of an element's address, in bytes: its size, rounded up to a power of two."""
    return 1 << (element_bytes(dtype) - 1).bit_length()


_IntImm = tirx.IntImm


def static_extent(expr: Any) -> int | None:
    """The value of an extent, or None when it depends on a symbol."""
    if type(expr) is _IntImm:  # asked of every extent: `isinstance` of a class of TVM's is dear
        return int(expr.value)
    return expr if isinstance(expr, int) else None


def extent_key(extent: Any) -> Any:
    """What tells an extent from others: its value, or the text of its expression."""
    known = static_extent(extent)
    return str(extent) if known is None else known


def size_bytes(shape: Sequence[Any], dtype: str, bounds: Mapping[Any, int] | None = None) -> int | None:
    """Bytes of a tensor; with `bounds` (symbol -> greatest value) the most it can need.

    None when the shape has a symbol without a bound, or an expression whose greatest value over
    `[0, bound]` cannot be established.
    """
    total = element_bytes(dtype)
    for extent in shape:
        value = static_extent(extent)
        if value is None:
            value = upper_bound(extent, bounds or {})
        if value is None:
            return None
        total *= value
    return total


def strides_of(buffer: Any, compact: Collection[Any] = ()) -> list[Any]:
    """How many elements lie between neighbours on each axis of a buffer; row-major where nothing else is known."""
    given, found = list(buffer.strides), []
    row_major: Any = 1
    for axis in reversed(range(len(buffer.shape))):
        stride = given[axis] if given else row_major
        stride = row_major if stride in compact else stride
        extent, known = static_extent(buffer.shape[axis]), static_extent(stride)
        found.append(stride if known is None else known)
        row_major = row_major * (buffer.shape[axis] if extent is None else extent)
    return found[::-1]


def allocated_shape(buffer: Any) -> tuple[Any, ...]:
    """The shape of what an allocation takes: its own, or one row up to the last element that its strides reach."""
    if not buffer.strides and static_extent(buffer.elem_offset) == 0:
        return tuple(buffer.shape)
    strides = strides_of(buffer)
    extents = [static_extent(e) for e in buffer.shape]
    start = static_extent(buffer.elem_offset)
    if start is None or None in extents or not all(isinstance(s, int) for s in strides):
        return (sum((e * s for e, s in zip(buffer.shape, strides, strict=True)), buffer.elem_offset),)
    reached = sum((e - 1) * s for e, s in zip(extents, strides, strict=True) if e is not None)
    return (start + reached + 1 if all(extents) else 0,)


def upper_bound(expr: Any, bounds: Mapping[Any, int]) -> int | None:
    """The greatest value of `expr` with each symbol in `[0, bound]`; None when there is none."""
    from tvm.tirx.analysis import undefined_vars

    if isinstance(expr, ir.Var) and expr not in bounds:
        return None
    free = undefined_vars(expr)
    if any(v not in bounds for v in free):
        return None
    analyzer = sym.Analyzer()
    for v in free:
        analyzer.bind(v, ir.Range(0, int(bounds[v]) + 1))
    most = int(analyzer.const_int_bound(expr).max_value)
    return most if most < 2**62 else None


_TRIED = 1 << 12
"""Combinations of symbols that are tried at once."""

_PARTS = 32
"""Ranges of symbols that are looked at for one least value."""


def lower_bound(expr: Any, bounds: Mapping[Any, int]) -> int | None:
    """A number that `expr` is never less than with each symbol in `[0, bound]`, mostly its least value; None when there
    is none.

    Ranges of the symbols are divided where the interval that TVM's analyser gives leaves the most open, down to such
    that have so few values that all are tried.
    """
    from tvm.tirx.analysis import undefined_vars

    free = list(undefined_vars(expr))
    if any(v not in bounds for v in free):
        return None
    least = _Least(expr, free)
    parts = [(least.interval(whole), whole) for whole in [tuple((0, int(bounds[v])) for v in free)]]
    found: int | None = None
    for _ in range(_PARTS):
        low, part = heapq.heappop(parts)
        if found is not None and low >= found:
            return found
        tried = least.try_values(part)
        if tried is not None:
            found = tried if found is None else min(found, tried)
        elif any(first < last for first, last in part):
            for half in _halves(part):
                heapq.heappush(parts, (least.interval(half), half))
        else:  # one point, without a value
            heapq.heappush(parts, (low, part))
            break
        if not parts:
            return found
    low = parts[0][0] if found is None else min(found, parts[0][0])
    return low if low > -(2**62) else None


_Ranges = tuple[tuple[int, int], ...]  # first and last value of each symbol


class _Least:
    """A number that an expression of `free` symbols is never less than in ranges of these."""

    def __init__(self, expr: Any, free: Sequence[Any]) -> None:
        self.expr, self.free = expr, free

    def interval(self, ranges: _Ranges) -> int:
        """The bound that TVM's analyser finds."""
        analyzer = sym.Analyzer()
        for v, (first, last) in zip(self.free, ranges, strict=True):
            analyzer.bind(v, ir.Range(first, last + 1))
        return int(analyzer.const_int_bound(self.expr).min_value)

    def try_values(self, ranges: _Ranges) -> int | None:
        """The least of all values, tried one by one; None: too many, or the expression has no value at one."""
        if math.prod(last - first + 1 for first, last in ranges) > _TRIED:
            return None
        axes = np.ix_(*(np.arange(first, last + 1) for first, last in ranges)) if ranges else ()
        try:
            return int(np.min(value(self.expr, dict(zip(self.free, axes, strict=True)))))
        except Unknown:
            return None


def _halves(ranges: _Ranges) -> tuple[_Ranges, _Ranges]:
    """The same with the largest range cut in two."""
    i = max(range(len(ranges)), key=lambda k: ranges[k][1] - ranges[k][0])
    first, last = ranges[i]
    middle = (first + last) // 2
    before, behind = ranges[:i], ranges[i + 1 :]
    return (*before, (first, middle), *behind), (*before, (middle + 1, last), *behind)


def entry_symbols(function: Any) -> set[Any]:
    """Shape symbols that a parameter of a Relax function defines."""
    return {v for p in function.params for v in relax.analysis.definable_tir_vars_in_type(p.ty)}


class Unknown(Exception):
    """The value depends on data, or on something that is not understood."""


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": lambda a, b: _divide_down(a, b)[0],
    "FloorMod": lambda a, b: _divide_down(a, b)[1],
    "Div": lambda a, b: _divide_toward_zero(a, b)[0],
    "Mod": lambda a, b: _divide_toward_zero(a, b)[1],
    "Min": lambda a, b: np.minimum(a, b) if _arrays(a, b) else min(a, b),
    "Max": lambda a, b: np.maximum(a, b) if _arrays(a, b) else max(a, b),
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "And": np.logical_and,
    "Or": np.logical_or,
}


def value(expr: Any, known: Mapping[Any, Any]) -> Any:
    """The value of `expr` where `known` gives variables theirs; `Unknown` when it has none."""
    if type(expr) is _IntImm:
        return int(expr.value)
    kind = type(expr).__name__
    if kind in _BINARY:
        return _BINARY[kind](value(expr.a, known), value(expr.b, known))
    if isinstance(expr, int | np.ndarray | np.integer):
        return expr
    if isinstance(expr, ir.Var):
        if expr in known:
            return known[expr]
        raise Unknown(expr.name)
    if kind == "Not":
        return np.logical_not(value(expr.a, known))
    if kind == "Cast":
        return value(expr.value, known)
    if kind == "Select":
        return _chosen(expr.condition, expr.true_value, expr.false_value, known)
    if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) and expr.op.name == "prim.if_then_else":
        condition, yes, no = expr.args
        return _chosen(condition, yes, no, known)
    raise Unknown(kind)


def _divide_down(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient, rounded down, and remainder."""
    if np.any(np.equal(b, 0)) if isinstance(b, np.ndarray) else b == 0:
        raise Unknown("a division by 0")
    return a // b, a % b


def _divide_toward_zero(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient, rounded towards 0, and remainder, which has the sign of `a`."""
    size, _ = _divide_down(abs(a), abs(b))
    quotient = size * (np.sign(a) * np.sign(b)) if _arrays(a, b) else size if (a < 0) == (b < 0) else -size
    return quotient, a - quotient * b


def _arrays(*values: Any) -> bool:
    return any(isinstance(v, np.ndarray) for v in values)


def _chosen(condition: Any, yes: Any, no: Any, known: Mapping[Any, Any]) -> Any:
    """A choice; of one number, what is not chosen needs no value."""
    holds = value(condition, known)
    if not _arrays(holds):
        return value(yes if holds else no, known)
    return np.where(holds, value(yes, known), value(no, known))


def number(expr: Any, known: Mapping[Any, Any]) -> int:
    """`value` of what does not depend on loop counters."""
    return int(value(expr, known))


class ExtractionError(NpuMemplanError):
    """A module cannot be planned: what is missing or not understood, in which function, and what to do about it."""


@dataclass(eq=False, slots=True)
class RelaxTensor:
    """A storage that Relax sees: one buffer however many names and shapes look at it.

    `shape` and `dtype` are those of its definition; `size_bytes` is None while the shape has
    symbols without an upper bound. `external` is the reason why it cannot be planned ("" when
    it can); `view` is True when something outside PrimFuncs needs it as a tensor object.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: str
    size_bytes: int | None
    kind: BufferKind = BufferKind.TENSOR
    external: str = ""
    view: bool = False
    agents: set[Agent] = field(default_factory=set)
    alignment: int = 1
    var: Any = None  # the Relax variable that defined it
    device: int = 0  # number of its virtual device
    scope: str = "global"  # memory scope on that device
    region: int = -1  # of the NPU stream that first used it; -1: none did
    content: bytes = b""  # of a constant
    scratch: bool = False  # nothing defines its content: a workspace of calls that are not looked into

    @property
    def least_alignment(self) -> int:
        """The least alignment of its first byte: what elements, calls that use it, and tensor objects require."""
        return max(self.alignment, element_alignment(self.dtype), VIEW_ALIGNMENT if self.view else 1)

    @property
    def whole(self) -> View:
        """All of it, as it was defined."""
        return View(self, self.shape, self.dtype)

    def access_all(self, *, writes: bool, exact: bool = False) -> StepAccess:
        """An access to all of it."""
        return StepAccess(self, ((0, self.size_bytes or 1),), writes, exact)

    def as_object(self) -> None:
        """Something on the host needs it as a tensor object."""
        self.view = True
        self.agents.add(Agent.HOST)


@dataclass(eq=False, slots=True)
class Internal:
    """An allocation inside one call of a PrimFunc. `allocation` is its AllocBuffer statement."""

    name: str
    size_bytes: int | None
    alignment: int
    kind: BufferKind
    agent: Agent
    allocation: Any
    role: str = ""
    original: tuple[int, int] | None = None  # (region, offset) in the stream it was lifted from
    shape: tuple[Any, ...] = ()  # in the symbols of the calling Relax function
    device: int = 0  # that the call runs on

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return str(self.allocation.buffer.dtype)

    @property
    def least_alignment(self) -> int:
        """The least alignment of its first byte: what its elements and the call require."""
        return max(self.alignment, element_alignment(self.dtype))


class StepAccess(NamedTuple):  # not a dataclass: a large stream has tens of thousands
    """Bytes of a storage touched in one step; `exact`: all of them are written, or their content is used."""

    storage: RelaxTensor | Internal
    spans: Spans
    writes: bool
    exact: bool = False


@dataclass(eq=False, slots=True)
class Step:
    """The accesses at one point of time."""

    label: str
    accesses: tuple[StepAccess, ...]
    point: int = -1
    origin: Any = None  # tir.walk.Origin of a statement that runs once in its call


@dataclass(eq=False, slots=True)
class Branch:
    """Either `then` or `other` runs. `merges` are (result, value in then, value in other).

    The three of one merge share a placement; a branch that has no storage of its own for the
    result writes the result itself, and its entry is the result.
    """

    then: list[Node]
    other: list[Node]
    merges: list[tuple[RelaxTensor, RelaxTensor, RelaxTensor]] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Loop:
    """`body` runs any number of times. `local` storages have no content between iterations."""

    body: list[Node]
    local: tuple[Internal, ...] = ()


Node = Step | Branch | Loop


@dataclass(slots=True)
class Body:
    """The contents of one block: for the rewriter, and for the analysis."""

    statements: list[Statement] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def steps(nodes: Sequence[Node]) -> Iterator[Step]:
    """All steps in textual order, which is the order of their points."""
    for node in nodes:
        if isinstance(node, Step):
            yield node
        elif isinstance(node, Loop):
            yield from steps(node.body)
        else:
            yield from steps(node.then)
            yield from steps(node.other)


# -- what runs, for the rewriter ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """A storage seen with a shape and dtype of its own from byte `offset_bytes` on; `partial`: fewer bytes."""

    tensor: RelaxTensor
    shape: tuple[Any, ...]
    dtype: str
    offset_bytes: int = 0
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant (of type `ir.GenericConst`) that is not in a pool; never written."""

    expr: Any


@dataclass(frozen=True, slots=True)
class Plain:
    """A Relax value that holds no planned bytes: a shape, a scalar, an object."""

    expr: Any


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple."""

    fields: tuple[Value, ...]


Value = View | Fixed | Plain | Several


@dataclass(frozen=True, slots=True)
class Candidate:
    """The overlap that the steps from `step` to `last` allow, where the first storage dies and another is born."""

    allowed: AllowedOverlap
    step: Step
    last: Step


@dataclass(eq=False, slots=True)
class Invoke:
    """A call of a PrimFunc, destination last. `arguments[i]` belongs to parameter i."""

    index: int
    function: str
    primfunc: Any
    arguments: tuple[View | Fixed | Plain, ...]
    internals: tuple[Internal, ...]
    agent: Agent
    nodes: list[Node] = field(default_factory=list)
    label: str = ""
    device: int = 0  # number of the virtual device that it runs on
    foreign: bool = False  # works in a memory scope that has no pools
    added: bool = False  # of no function of the module, whatever it is called
    results: Collection[int] = ()  # arguments that are new tensors, which it defines
    buffers: Sequence[bool] = ()  # of each parameter: whether it is a buffer
    overlaps: list[Candidate] = field(default_factory=list)
    npu: Any = None  # the NpuProgram that it runs on the NPU


@dataclass(eq=False, slots=True)
class External:
    """A call of a packed function in destination-passing style: arguments, then results."""

    function: Any
    arguments: tuple[Value, ...]
    results: tuple[View, ...]


@dataclass(eq=False, slots=True)
class Evaluate:
    """Any other Relax expression: packed calls, shape computations. `result` is None if unused."""

    expr: Any
    arguments: dict[Any, Value]  # Relax variable -> what it stands for
    var: Any
    result: Value


@dataclass(eq=False, slots=True)
class Cast:
    """A match_cast that defines shape symbols or must be checked at run time."""

    source: Value
    ty: Any
    var: Any
    result: Value


@dataclass(eq=False, slots=True)
class Choose:
    """`if`. The value of the `if` is in the tensors of `branch.merges`, or one of `objects`.

    Those are (what stands for it, its value in then, its value in other), where it holds no bytes, or has no known
    shape.
    """

    condition: Value
    then: list[Statement]
    other: list[Statement]
    branch: Branch
    objects: list[tuple[Value, Value, Value]] = field(default_factory=list)


Statement = Invoke | External | Evaluate | Cast | Choose


@dataclass(eq=False, slots=True)
class Program:
    """A Relax function: `statements` for the rewriter, `nodes` for the analysis."""

    name: str
    function: Any
    inputs: list[RelaxTensor]
    result: Value
    statements: list[Statement]
    nodes: list[Node]
    tensors: list[RelaxTensor]
    calls: list[Invoke]
    values: dict[Any, Value] = field(default_factory=dict)  # what each Relax variable stands for
    bounds: dict[Any, int] = field(default_factory=dict)  # greatest values promised for shape symbols
    vdevices: tuple[Any, ...] = ()  # of the module; empty: one device without a name
    kept: tuple[RelaxTensor, ...] = ()  # tensors that something which outlasts the function may hold

    @property
    def results(self) -> list[View]:
        """The tensors that are returned."""
        return list(views(self.result))

    def number_points(self) -> list[Step]:
        """Gives every step its point and returns the steps in that order."""
        ordered = list(steps(self.nodes))
        for point, step in enumerate(ordered):
            step.point = point
        return ordered


def result_views(value: Value) -> Iterator[View | Fixed | Plain]:
    """The leaves of a (nested) tuple, left to right."""
    if isinstance(value, Several):
        for item in value.fields:
            yield from result_views(item)
    else:
        yield value


def views(value: Value) -> Iterator[View]:
    """The leaves that are tensors."""
    return (leaf for leaf in result_views(value) if isinstance(leaf, View))
