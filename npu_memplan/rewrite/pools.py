"""The pools of a planned function, which storages share their bytes, and offsets and sizes as expressions.

Invariant: a pool's constants are in it as bytes at their planned offsets; a read-only pool has nothing else in it.
`tirx.noalias` stays where it is true: TVM's LLVM code generator takes every declared buffer of a marked kernel for
bytes of its own, unless it is declared over another one. So storages that share bytes, at any time of the call, are
declared over one buffer, their pool or another name of it, the others on addresses of their own.

Definitions of variables are one PrimFunc that runs on the host. In Relax each level of definitions would be a function
of its own, and TVM's simplifier compares the terms of nested choices with each other. Here choices and products of
symbols are computed once, into memory, which the simplifier does not look through. A division by 0, which occurs only
on the side of a choice that is not taken, divides by 1. As text, an expression of values >= 0 means the same in C and,
with `/` rounding down, in `evaluate`; choices (min, max, `a if c else b`) and divisions that round towards 0, where
they are requested, are for `evaluate` alone.
"""

from __future__ import annotations

import ast
import heapq
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import DataType, ir, relax, tirx

from ..errors import NpuMemplanError
from ..extract.liveness import device_of, labels
from ..extract.program import Internal, Invoke, Program, View, static_extent
from ..extract.symbolic import as_expr
from ..extract.tir import nodes_of, operator_of
from ..problem import BufferKind, Plan, Problem, used_bytes


@dataclass(frozen=True, slots=True)
class PoolSlot:
    """Bytes of a pool: its index, an offset (an int, or an expression of symbols, always a multiple of `unit`)."""

    pool: int
    offset: Any
    unit: int = 1


@dataclass(frozen=True, slots=True)
class PlannedPool:
    """A pool as the module has it."""

    name: str
    size: Any  # bytes that the plan uses: an int, or an expression of symbols
    read_only: bool = False
    constants: tuple[tuple[int, bytes], ...] = ()  # (offset in bytes, content), ascending
    device: int = 0  # the number of its virtual device
    vdevice: Any = None  # None in a module without any

    @property
    def extent(self) -> Any:
        """Its length as a tensor, at least 1: an int, or an expression of symbols."""
        known = static_extent(self.size)
        return self.size if known is None else max(1, known)

    @property
    def type(self) -> Any:
        """The type of its Relax value."""
        return relax.TensorType((self.extent,), "uint8", self.vdevice)

    def image(self) -> npt.NDArray[np.uint8]:
        """The bytes of the whole pool, 0 between constants."""
        image = np.zeros(int(self.extent), np.uint8)
        for offset, content in self.constants:
            image[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        return image


def pools_of(problem: Problem, plan: Plan, program: Program) -> tuple[list[PlannedPool], dict[str, PoolSlot]]:
    """The pools in the problem's order, and where each buffer lies."""
    heights = used_bytes(problem, plan.placements)
    index = {pool.name: i for i, pool in enumerate(problem.pools)}
    slots = {p.buffer: PoolSlot(index[p.pool], p.offset_bytes) for p in plan.placements}
    constants: list[list[tuple[int, bytes]]] = [[] for _ in problem.pools]
    for tensor in program.tensors:
        if tensor.kind in (BufferKind.CONSTANT, BufferKind.RESIDENT):
            slot = slots[tensor.name]
            constants[slot.pool].append((slot.offset, tensor.content))
    found = []
    devices = labels(program.vdevices)
    for pool, content in zip(problem.pools, constants, strict=True):
        device = device_of(pool, devices)
        virtual = program.vdevices[device] if devices else None
        size = heights[pool.name]
        found.append(PlannedPool(pool.name, size, pool.read_only, tuple(sorted(content)), device, virtual))
    return found, slots


def holds_boundary(program: Program, slots: Mapping[str, PoolSlot]) -> bool:
    """Whether all inputs and results of a program are in pools, which its caller supplies then."""
    boundary = [*program.inputs, *(view.tensor for view in program.results)]
    return bool(boundary) and all(t.name in slots for t in boundary)


def initialiser(pool: PlannedPool) -> tuple[Any, npt.NDArray[np.uint8]]:
    """A PrimFunc (image, pool) that copies a writable pool's constants to their places, and their image."""
    image = np.frombuffer(b"".join(content for _, content in pool.constants), np.uint8)
    source = tirx.decl_buffer((max(1, image.size),), "uint8", name="image", layout=None)
    target = tirx.decl_buffer((int(pool.extent),), "uint8", name="pool", layout=None)
    copies, start = [], 0
    for offset, content in pool.constants:
        i = tirx.Var("i", "int64")
        store = tirx.BufferStore(target, tirx.BufferLoad(source, [i + start]), [i + offset])
        copies.append(tirx.For(i, 0, len(content), tirx.ForKind.SERIAL, store))
        start += len(content)
    body = tirx.SeqStmt(copies) if len(copies) != 1 else copies[0]
    return tirx.PrimFunc([source, target], body).with_attr({"s_tir": True, "tirx.noalias": True}), image


def fill(pool: PlannedPool, byte: int) -> Any:
    """A PrimFunc that fills a pool with `byte`."""
    known = static_extent(pool.extent)
    extent: Any = tirx.Var("size", "int64") if known is None else tirx.IntImm("int64", known)
    target = tirx.decl_buffer((extent if known is None else known,), "uint8", name="pool", layout=None)
    i = tirx.Var("i", "int64")
    store = tirx.BufferStore(target, tirx.IntImm("uint8", byte), [i])
    body = tirx.For(i, 0, extent, tirx.ForKind.SERIAL, store)
    return tirx.PrimFunc([target], body).with_attr({"s_tir": True, "tirx.noalias": True})


NOALIAS, ON_HOST = "tirx.noalias", "tirx.is_host_func"
_POINTERS = ("tirx.buffer_data", "tirx.address_of", "tirx.tvm_access_ptr", "tirx.call_extern", "tirx.tvm_call_packed")


Apart = Callable[[str, str], bool]
"""Whether two storages of one pool, by name, are known to share no byte, whatever the symbols are."""


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A call, and the plan of the function that it is in: pools, where storages lie, which share no byte."""

    call: Invoke
    pools: Sequence[PlannedPool]
    slots: Mapping[str, PoolSlot]
    apart: Apart
    _places: list[list[PoolSlot | None]] = field(default_factory=list)

    @property
    def places(self) -> list[PoolSlot | None]:
        """The places of what the call may find in pools (`storages_of`); None for what is in no pool."""
        if not self._places:  # found once
            found = ((self.slots.get(name), start) for name, start in storages_of(self.call))
            places = [slot and (replace(slot, offset=slot.offset + start) if start else slot) for slot, start in found]
            self._places.append(places)
        return self._places[0]


@dataclass(frozen=True, slots=True)
class _Span:
    """A storage of a call, and its first byte and one past its last, None where that depends on symbols."""

    storage: int
    name: str
    reach: tuple[int, int] | None

    def may_meet(self, other: _Span, apart: Apart) -> bool:
        """Whether the two may have bytes in common."""
        if self.reach is None or other.reach is None:
            return self.name == other.name or not apart(self.name, other.name)
        return self.reach[0] < other.reach[1] and other.reach[0] < self.reach[1]


def storages_of(call: Invoke) -> list[tuple[str, int]]:
    """The storages that a call may find in pools, its arguments, then its internals: (name of the storage, its bytes
    before that).

    The name is "" for an argument that it cannot find there.
    """
    arguments = [
        (a.tensor.name, a.offset_bytes) if isinstance(a, View) and is_buffer else ("", 0)
        for a, is_buffer in zip(call.arguments, call.buffers, strict=True)
    ]
    return [*arguments, *((i.name, 0) for i in call.internals)]


def is_marked(function: Any) -> bool:
    """Whether a PrimFunc has `tirx.noalias`: its buffers share no bytes."""
    return function.attrs is not None and bool(function.attrs.get(NOALIAS, False))


def sharing(sites: Iterable[Site]) -> dict[int, int] | None:
    """Storages that may share bytes with another one in one of the calls -> their group.

    Storages are numbered as in `storages_of`. A group has those that share bytes directly or through others; its
    number is the least of theirs. Those whose offsets or sizes have symbols share unless they are `apart`. None where
    an offset is no multiple of the elements.
    """
    found: dict[int, int] = {}
    for site in sites:
        spans: dict[int, list[_Span]] = {}  # by pool
        for index, storage in enumerate([*site.call.arguments, *site.call.internals]):
            if not isinstance(storage, View | Internal):
                continue
            tensor, start = (storage.tensor, storage.offset_bytes) if isinstance(storage, View) else (storage, 0)
            slot = site.slots.get(tensor.name)
            if slot is None:
                continue
            first, item = static_extent(slot.offset), item_bytes(storage.dtype) or 1
            if (slot.unit if first is None else first) % item or start % item:
                return None
            size = tensor.size_bytes
            reach = None if first is None or size is None else (first + start, first + size)
            spans.setdefault(slot.pool, []).append(_Span(index, tensor.name, reach))
        for ones in spans.values():
            for one, other in combinations(ones, 2):
                joined = {found.get(one.storage, one.storage), found.get(other.storage, other.storage)}
                if len(joined) == 2 and one.may_meet(other, site.apart):
                    found |= {one.storage: min(joined), other.storage: min(joined)}
                    found |= {member: min(joined) for member, group in found.items() if group in joined}
    return found


def may_share(function: Any, buffers: Sequence[Any]) -> bool:
    """Whether `buffers` of a kernel can be declared over a pool: no pointers, elements of whole bytes."""
    pointers = any(operator_of(call) in _POINTERS for call in nodes_of(function.body, ir.Call))
    return not pointers and all(item_bytes(str(buffer.dtype)) for buffer in buffers)


def name_of_pool(pool: Any, name: str) -> Any:
    """The declaration of one more buffer that is `pool`, which the code generator takes for another memory."""
    made = tirx.decl_buffer(list(pool.shape), str(pool.dtype), name=name, layout=None)
    zero = tirx.IntImm("int64", 0)
    return tirx.DeclBuffer(made, data=tirx.address_of(tirx.BufferLoad(pool, [zero])))


def over_pool(buffer: Any, pool: Any, offset: Any, ahead: int = 0) -> Any:
    """The declaration of a new buffer like `buffer` at byte `offset + ahead` of `pool`, in its elements."""
    size = item_bytes(str(buffer.dtype))
    known = static_extent(offset)
    start: Any = tirx.floordiv(offset, size) if known is None else tirx.IntImm("int64", known // size)
    start = start + ahead // size if ahead else start
    start = start if isinstance(buffer.elem_offset, ir.Var) else start + buffer.elem_offset
    made = tirx.decl_buffer(
        list(buffer.shape),
        str(buffer.dtype),
        name=buffer.name,
        strides=list(buffer.strides) or None,
        elem_offset=start,
        layout=None,
    )
    return tirx.DeclBuffer(made, data=tirx.buffer_data(pool))


def settle_marks(module: Any) -> Any:
    """`module` with the mark on all of its kernels or on none.

    TVM 0.27 compiles all kernels of a module for the CPU with the mark of the last one, by name. Kernels of threads
    lose it, too: their buffers become parameters of a kernel on the device.
    """
    kernels = {gv: f for gv, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
    marked = {gv: f for gv, f in kernels.items() if is_marked(f)}
    if not marked or (len(marked) == len(kernels) and not any(has_threads(f) for f in kernels.values())):
        return module
    for gv, function in marked.items():
        module.update_func(gv, function.without_attr(NOALIAS))
    return module


@cache
def item_bytes(dtype: str) -> int:
    """Bytes of an element; 0 where elements are parts of bytes."""
    kind = DataType(dtype)
    bits = int(kind.bits) * int(kind.lanes)
    return 1 if dtype == "bool" else bits // 8 if bits % 8 == 0 else 0


def has_threads(function: Any) -> bool:
    """Whether a kernel has threads of its own."""
    if function.attrs is not None and function.attrs.get(ON_HOST, False):
        return False
    found = nodes_of(function.body, tirx.For, tirx.AttrStmt)
    return any(
        one.kind == tirx.ForKind.THREAD_BINDING if isinstance(one, tirx.For) else one.attr_key == "thread_extent"
        for one in found
    )


Definitions = Sequence[Sequence[tuple[Any, Any]]]
"""Level by level: (variable, its value: a `Selection`, or an expression of symbols and variables of earlier levels)."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The value that is taken: a number or a variable for each of `taken`, one of which is 1 and the others are 0."""

    taken: Sequence[Any]
    values: Sequence[Any]

    def terms(self) -> list[tuple[list[Any], Any]]:
        """Sums of `taken`, each times a value; their sum is the one that is taken."""
        found: dict[Any, list[Any]] = {}
        for variable, value in zip(self.taken, self.values, strict=True):
            found.setdefault(value, []).append(variable)
        return [(variables, value) for value, variables in found.items() if type(value) is not int or value]


_PAIRS = {
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod, tirx.Min, tirx.Max),
    *(tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE, tirx.And, tirx.Or),
}
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_STORED = (tirx.Mul, tirx.Min, tirx.Max)


def used_by(exprs: Iterable[Any], definitions: Definitions) -> list[Any]:
    """The variables of `definitions` that are in `exprs`, in the order of their definitions."""
    found: set[Any] = set()
    for expr in exprs:
        if isinstance(expr, ir.Var):
            found.add(expr)
        elif not isinstance(expr, int):
            found.update(nodes_of(expr, ir.Var))
    return [var for level in definitions for var, _ in level if var in found]


def evaluation(definitions: Definitions, wanted: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A PrimFunc, and the symbols of the definitions: its inputs are tensors for `wanted` and others, symbols."""
    made = _Evaluation(definitions, wanted)
    return made.function(), list(made.parameters)


@dataclass(slots=True, eq=False)  # thousands are made: not frozen
class _Value:
    """An expression by `number`: variable or constant `expr`, what `stored` stores, or `kind` of its `parts`.

    `reads` are the statements whose values it reads.
    """

    number: int
    expr: Any = None
    symbolic: bool = False  # whether it has parameters
    known: int | None = None
    stored: int | None = None
    kind: Any = None
    parts: tuple[_Value, ...] = ()
    reads: frozenset[int] = frozenset()


class _Evaluation:
    """Statements that store what is `wanted` in `results` and what else is needed at free places in `others`."""

    def __init__(self, definitions: Definitions, wanted: Sequence[Any]) -> None:
        self.parameters: dict[Any, Any] = {}  # of the symbols that are met
        self.places = {var: place for place, var in enumerate(wanted)}
        self.statements: list[tuple[_Value, int | None]] = []  # a value, and its place in the results
        self.numbers: dict[Any, int] = {}  # of a symbol, a constant, or an operation on numbered operands
        self.values: dict[int, _Value] = {}  # of variables, by address
        self.known: dict[int, _Value] = {}
        for level in definitions:
            for var, expr in level:
                self.values[hash(var)] = self.store_value(self.value(expr), self.places.get(var))

    def function(self) -> Any:
        """The PrimFunc."""
        slots = self.slots()
        results = tirx.decl_buffer((len(self.places),), "int64", name="results", layout=None)
        others = tirx.decl_buffer((max(slots, default=0) + 1,), "int64", name="others", layout=None)
        memories = [
            (others if place is None else results, [tirx.IntImm("int64", slot if place is None else place)])
            for slot, (_, place) in zip(slots, self.statements, strict=True)
        ]

        loads: dict[int, Any] = {}  # by statement

        def expr(value: _Value) -> Any:
            if value.stored is not None:
                if value.stored not in loads:
                    loads[value.stored] = tirx.BufferLoad(*memories[value.stored])
                return loads[value.stored]
            return value.expr if value.kind is None else value.kind(*map(expr, value.parts))

        made = [
            tirx.BufferStore(memory, expr(value), index)
            for (value, _), (memory, index) in zip(self.statements, memories, strict=True)
        ]
        attributes = {"s_tir": True, NOALIAS: True, ON_HOST: True}
        body = tirx.SeqStmt(made) if len(made) > 1 else made[0]
        return tirx.PrimFunc([results, others, *self.parameters.values()], body).with_attr(attributes)

    def slots(self) -> list[int]:
        """A place among the others for what each statement stores; 0 for a result, which has its own."""
        used = [{i for i in value.reads if self.statements[i][1] is None} for value, _ in self.statements]
        last = {value: at for at, values in enumerate(used) for value in values}
        found: list[int] = []
        free: list[int] = []
        count = 0
        for at, (_, place) in enumerate(self.statements):
            for value in used[at]:
                if last[value] == at:
                    heapq.heappush(free, found[value])
            if not free and place is None:
                heapq.heappush(free, count)
                count += 1
            found.append(heapq.heappop(free) if at in last else free[0] if free and place is None else 0)
        return found

    def store_value(self, value: _Value, place: int | None = None) -> _Value:
        """The same value, stored at a `place` of the results or among the others."""
        self.statements.append((value, place))
        at = len(self.statements) - 1
        return _Value(value.number, known=value.known, stored=at, reads=frozenset((at,)))

    def number(self, what: Any) -> int:
        """One number for equal expressions: the keys of nested operations would be as long as these written out."""
        return self.numbers.setdefault(what, len(self.numbers))

    def value(self, expr: Any) -> _Value:
        """The value of an expression of symbols and variables."""
        kind = type(expr)
        if kind is not ir.Var and (known := static_extent(expr)) is not None:
            return _Value(self.number(("constant", known)), as_expr(known), symbolic=False, known=known)
        if kind not in _PAIRS:  # a set: `isinstance` of so many classes of TVM's is dear
            if isinstance(expr, ir.Var):
                if hash(expr) not in self.values:
                    self.parameters[expr] = tirx.Var(expr.name, "int64")
                    self.values[hash(expr)] = _Value(self.number(expr), self.parameters[expr], True)
                return self.values[hash(expr)]
            if kind is tirx.Cast:
                return self.value(expr.value)
            if kind is Selection:
                return self.selection(expr)
            kind = tirx.Select
        return self.operation(kind, [self.value(part) for part in _parts(expr)])

    def selection(self, chosen: Selection) -> _Value:
        """The value of a selection."""
        found = [
            self.operation(tirx.Mul, [self.sum(map(self.value, variables)), self.value(value)])
            for variables, value in chosen.terms()
        ]
        return self.sum(found)

    def sum(self, values: Iterable[_Value]) -> _Value:
        """The sum of values."""
        return reduce(lambda a, b: self.operation(tirx.Add, [a, b]), values)

    def operation(self, kind: Any, parts: list[_Value]) -> _Value:
        """The value of `kind` of its `parts`."""
        key = self.number((kind, *(part.number for part in parts)))
        if key not in self.known:
            symbolic = any(part.symbolic for part in parts)
            if kind in _DIVISIONS:
                parts[1] = self.divisor(parts[1])
            reads = frozenset[int]().union(*(part.reads for part in parts))
            found = _Value(key, symbolic=symbolic, kind=kind, parts=tuple(parts), reads=reads)
            product_with_number = kind is tirx.Mul and any(part.known is not None for part in parts)
            stored = symbolic and kind in _STORED and not product_with_number
            self.known[key] = self.store_value(found) if stored else found
        return self.known[key]

    def divisor(self, value: _Value) -> _Value:
        """A value, but 1 for 0; stored, or the simplifier would see that a condition around it excludes 0."""
        if value.known is not None:
            return value
        key = self.number(("divisor", value.number))
        if key not in self.known:
            zero, one = (_Value(self.number(("constant", n)), as_expr(n), known=n) for n in (0, 1))
            is_zero = replace(value, number=-1, stored=None, kind=tirx.EQ, parts=(value, zero))
            other = replace(value, number=key, stored=None, kind=tirx.Select, parts=(is_zero, one, value))
            self.known[key] = self.store_value(other)
        return self.known[key]


def _parts(expr: Any) -> tuple[Any, ...]:
    """The operands of an operation; of a choice, both sides are computed."""
    if type(expr) in _PAIRS:
        return expr.a, expr.b
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    assert operator_of(expr) == "prim.if_then_else", expr
    return tuple(expr.args)


_INFIX = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "/", tirx.FloorMod: "%"}
_CHOICES = {tirx.Min: "min", tirx.Max: "max", tirx.Div: "truncated", tirx.Mod: "remainder"}
_COMPARISONS = {tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">=", tirx.EQ: "==", tirx.NE: "!="}
_LOGIC = {tirx.And: "and", tirx.Or: "or"}
_SIGNS = _INFIX | _COMPARISONS | _LOGIC
_MEANING: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _divide_toward_zero(a: int, b: int) -> int:
    """The quotient, rounded towards 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "min": min,
    "max": max,
    "truncated": _divide_toward_zero,
    "remainder": lambda a, b: a - _divide_toward_zero(a, b) * b,
}


class FormulaError(NpuMemplanError):
    """An expression of shape symbols is more than sums, products, quotients and remainders, or lacks a value."""


def formula(expr: Any, *, choices: bool = False) -> str:
    """The text of an integer expression, e.g. `(h * 2)`."""
    if isinstance(expr, ir.Var):
        return str(expr.name)
    if (known := static_extent(expr)) is not None:
        return str(known)
    if sign := (_SIGNS if choices else _INFIX).get(type(expr)):
        return f"({formula(expr.a, choices=choices)} {sign} {formula(expr.b, choices=choices)})"
    text = partial(formula, choices=choices)
    if isinstance(expr, Selection):
        products = [f"({_sum_text(map(text, own))} * {text(value)})" for own, value in expr.terms()]
        return _sum_text(products)
    if choices and type(expr) in _CHOICES:
        return f"{_CHOICES[type(expr)]}({text(expr.a)}, {text(expr.b)})"
    if isinstance(expr, tirx.Cast):
        return text(expr.value)
    if choices and isinstance(expr, tirx.Not):
        return f"(not {text(expr.a)})"
    choice = (expr.condition, expr.true_value, expr.false_value) if isinstance(expr, tirx.Select) else ()
    if operator_of(expr) == "prim.if_then_else":
        choice = tuple(expr.args)
    if choices and choice:
        condition, yes, no = choice
        return f"({text(yes)} if {text(condition)} else {text(no)})"
    raise FormulaError(f"the extent {expr} has no plain form; use sums, products, quotients and remainders")


def _sum_text(terms: Iterable[str]) -> str:
    return reduce(lambda a, b: f"({a} + {b})", terms)


def evaluate(text: str, symbols: Mapping[str, int]) -> int:
    """The value of a formula."""

    def value(node: Any) -> int:
        if isinstance(node, ast.BinOp):
            return _MEANING[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Name):
            if node.id not in symbols:
                raise FormulaError(f"the shape {text} needs a value of {node.id!r}; give symbols={{{node.id!r}: ...}}")
            return symbols[node.id]
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            return _FUNCTIONS[node.func.id](*(value(a) for a in node.args))
        if isinstance(node, ast.IfExp):
            return value(node.body if value(node.test) else node.orelse)
        if isinstance(node, ast.Compare):
            return _MEANING[type(node.ops[0])](value(node.left), value(node.comparators[0]))
        if isinstance(node, ast.BoolOp):
            return int((all if isinstance(node.op, ast.And) else any)(value(v) for v in node.values))
        if isinstance(node, ast.UnaryOp):
            return int(not value(node.operand)) if isinstance(node.op, ast.Not) else -value(node.operand)
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, int)
        return node.value

    return value(ast.parse(text, mode="eval").body)
