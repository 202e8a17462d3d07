"""Which elements loop nests touch, and when: by index expressions, access by access, or in closed form.

Invariant: time is the serial order of execution, counted in accesses; a read of a statement comes before its write. An
expression has a value, one for each turn of the loops or for all of them, or `Undecided` is raised; a linear form is
equal to its expression for all values of the variables. "Never meets" is proven for every execution that the loops
allow, those that a condition hides included; where an index is not linear in the loops nothing is proven. Two
executions are distinguished by the outermost common loop in which they differ, as in dependence analysis: for each such
loop the distance of the two elements is linear, so that its extremes are at corners. All this is the verification's
own, so that no mistake is made twice.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import DataType, ir, relax, sym, tirx

from .memory import OwnedBytes, Owners


class Undecided(Exception):
    """The value depends on data, or on something that is not understood."""


@functools.cache
def element_bytes(dtype: str) -> int:
    """Bytes of one element with its lanes; what is smaller than a byte takes one."""
    kind = DataType(dtype)
    return -(-int(kind.bits) // 8) * int(kind.lanes)


def symbols_of(function: Any) -> Iterator[Any]:
    """The shape symbols that parameters of a Relax function define, each once."""
    found = (v for p in function.params for v in relax.analysis.definable_tir_vars_in_type(p.ty))
    return iter(dict.fromkeys(found))


def number(expr: Any, known: Mapping[Any, Any]) -> int:
    """The value of what depends on no loop."""
    return int(value(expr, known))


def value(expr: Any, known: Mapping[Any, Any]) -> Any:
    """The value of `expr` with the values `known` of variables, which may be arrays."""
    return meaning(expr, Same())(known)


Meaning = Callable[[Mapping[Any, Any]], Any]
"""The value of an expression, given those of its variables."""


class Same:
    """One object for each variable, however often it is read off the module: looking that up in a dict is cheap."""

    def __init__(self) -> None:
        self._found: dict[int, Any] = {}  # by address
        self.loads: dict[int, tuple[Any, Meaning]] = {}  # by address of a load, which it keeps

    def one(self, var: Any) -> Any:
        """The object that stands for a variable."""
        return self._found.setdefault(hash(var), var)


def meaning(expr: Any, same: Same) -> Meaning:
    """What `expr` comes to, as a function of the values of its variables: keys that are those of `same`."""
    kind = type(expr)
    if function := _MEANING.get(kind):
        a, b = meaning(expr.a, same), meaning(expr.b, same)
        return lambda known: function(a(known), b(known))
    if kind is tirx.IntImm:
        constant = int(expr.value)
        return lambda known: constant
    if isinstance(expr, ir.TensorLoad):
        if hash(expr) not in same.loads:
            same.loads[hash(expr)] = expr, _load(same.one(expr.source), expr.indices, same)
        return same.loads[hash(expr)][1]
    if isinstance(expr, ir.Var):
        var = same.one(expr)
        return lambda known: known[var] if var in known else _raise_undecided(var.name)
    if kind is tirx.Cast:
        return meaning(expr.value, same)
    if kind is tirx.Not:
        negated = meaning(expr.a, same)
        return lambda known: np.logical_not(negated(known))
    parts = _choice(expr)
    if parts:
        condition, yes, no = (meaning(part, same) for part in parts)
        return lambda known: _choose(condition, yes, no, known)
    if isinstance(expr, int | np.integer | np.ndarray):
        return lambda known: expr
    return lambda known: _raise_undecided(type(expr).__name__)


def _load(source: Any, indices: Any, same: Same) -> Meaning:
    """An element of `source`."""
    if len(indices) != 1:
        return lambda known: _raise_undecided(source.name)
    index = indices[0]
    if type(index) is tirx.IntImm:
        fixed = int(index.value)
        return lambda known: _element(source, fixed, known)
    place = meaning(index, same)
    return lambda known: _element(source, int(place(known)), known)


def _choice(expr: Any) -> tuple[Any, ...]:
    """Condition and both values of a choice; nothing of another expression."""
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    return tuple(expr.args) if operator_name(expr) == "prim.if_then_else" else ()


def _raise_undecided(what: str) -> Any:
    raise Undecided(what)


def _element(source: Any, place: int, known: Mapping[Any, Any]) -> int:
    """An element of a tensor of one dimension whose elements are `known`, by their places."""
    elements = known.get(source, {})
    return int(elements[place] if place in elements else _raise_undecided(source.name))


def _choose(condition: Meaning, yes: Meaning, no: Meaning, known: Mapping[Any, Any]) -> Any:
    """One of two values; what a single condition does not choose needs none."""
    holds = condition(known)
    if isinstance(holds, np.ndarray) and holds.ndim:
        return np.where(holds, yes(known), no(known))
    return yes(known) if holds else no(known)


def _nonzero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def check_divisor(a: Any, b: Any) -> Any:
        if not (np.all(b) if isinstance(b, np.ndarray) else b):
            raise Undecided("a division by 0")
        return function(a, b)

    return check_divisor


def _either(number_of: Callable[[Any, Any], Any], array_of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function of numbers, or of arrays."""
    return lambda a, b: (number_of if isinstance(a, int) and isinstance(b, int) else array_of)(a, b)


def _toward_zero(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (abs(a) // abs(b))


_MEANING: dict[type, Callable[[Any, Any], Any]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: _nonzero(operator.floordiv),
    tirx.FloorMod: _nonzero(operator.mod),
    tirx.Div: _nonzero(_toward_zero),
    tirx.Mod: _nonzero(lambda a, b: a - _toward_zero(a, b) * b),
    tirx.Min: _either(min, np.minimum),
    tirx.Max: _either(max, np.maximum),
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}


def strides(buffer: Any, known: Mapping[Any, Any]) -> list[int]:
    """Elements between neighbours on each axis of a buffer; a stride without a value is read off a compact tensor."""
    found: list[int] = []
    row_major = 1
    for axis in reversed(range(len(buffer.shape))):
        try:
            found.append(number(buffer.strides[axis], known) if buffer.strides else row_major)
        except Undecided:
            found.append(row_major)
        if axis:
            row_major *= number(buffer.shape[axis], known)
    return found[::-1]


def reach(buffer: Any, known: Mapping[Any, Any]) -> int:
    """Elements from the first one of a buffer to one past the last one that its strides reach."""
    extents = [number(e, known) for e in buffer.shape]
    if not all(extents):
        return 0
    return 1 + sum((e - 1) * s for e, s in zip(extents, strides(buffer, known), strict=True))


def begin(buffer: Any) -> int:
    """Elements from a buffer's address to its first one."""
    offset = buffer.elem_offset
    return int(offset.value) if isinstance(offset, tirx.IntImm) else 0


Linear = tuple[int, dict[Any, int]]
"""A constant, and the factor of each variable."""


def linear(expr: Any, known: Mapping[Any, Any]) -> Linear:
    """`expr` as a linear form of the variables that are not `known`; `Undecided` where it is none."""
    if isinstance(expr, ir.Var) and expr not in known:
        return 0, {expr: 1}
    if isinstance(expr, tirx.Cast):
        return linear(expr.value, known)
    if isinstance(expr, (tirx.Add, tirx.Sub)):
        return add(linear(expr.a, known), linear(expr.b, known), 1 if isinstance(expr, tirx.Add) else -1)
    if isinstance(expr, tirx.Mul):
        a, b = linear(expr.a, known), linear(expr.b, known)
        if a[1] and b[1]:
            raise Undecided("a product of variables")
        return times(a, b[0]) if a[1] else times(b, a[0])
    return number(expr, known), {}


def add(a: Linear, b: Linear, factor: int = 1) -> Linear:
    """a + factor * b."""
    terms = dict(a[1])
    for var, coefficient in b[1].items():
        terms[var] = terms.get(var, 0) + factor * coefficient
    return a[0] + factor * b[0], terms


def times(a: Linear, factor: int) -> Linear:
    """a * factor."""
    return a[0] * factor, {var: coefficient * factor for var, coefficient in a[1].items()}


MOST = 1 << 23
"""Most executions of one access that are looked at one by one."""

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NestAccess:
    """One load or store in the text of a nest."""

    buffer: Any
    indices: tuple[Any, ...]
    writes: bool
    loops: tuple[tuple[Any, int, int], ...]  # variable, extent, how long one turn takes: one object for each loop
    conditions: tuple[tuple[Any, bool], ...]  # and the value that each must have
    time: int  # of the first execution


@dataclass(slots=True)
class Nest:
    """Accesses of a statement in textual order; `ordered` is False where threads run side by side."""

    accesses: list[NestAccess] = field(default_factory=list)
    ordered: bool = True
    known: Mapping[Any, Any] = field(default_factory=dict)
    clock: int = 0
    around: tuple[tuple[Any, int], ...] = ()  # loop variables of the statement, and how many turns each has at most

    def visit(self, stmt: Any, conditions: tuple[Any, ...] = ()) -> None:
        """Notes all accesses of `stmt`."""
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self.visit(part, conditions)
        elif isinstance(stmt, tirx.For):
            self.loop(stmt, conditions)
        elif isinstance(stmt, tirx.IfThenElse):
            self.expression(stmt.condition, conditions)
            self.visit(stmt.then_case, (*conditions, (stmt.condition, True)))
            if stmt.else_case is not None:
                self.visit(stmt.else_case, (*conditions, (stmt.condition, False)))
        elif isinstance(stmt, tirx.BufferStore):
            for expr in (*stmt.indices, stmt.value):
                self.expression(expr, conditions)
            self.note(stmt.buffer, stmt.indices, conditions, writes=True)
        elif isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer):
            pass
        elif isinstance(stmt, tirx.Evaluate | tirx.Bind):
            self.expression(stmt.value, conditions)
        elif isinstance(stmt, tirx.While):
            self.turns(stmt, conditions)
        elif isinstance(stmt, tirx.AttrStmt):
            self.ordered = self.ordered and stmt.attr_key not in ("thread_extent", "virtual_thread")
            self.visit(stmt.body, conditions)
        else:  # blocks: no order that is understood
            self.ordered = False
            self.anything(stmt)

    def loop(self, stmt: Any, conditions: tuple[Any, ...]) -> None:
        """A loop: one turn takes as long as its body."""
        serial = stmt.kind in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED) and stmt.step is None
        self.ordered = self.ordered and serial
        body, own = stmt.body, conditions
        if not isinstance(stmt.min, tirx.IntImm) or int(stmt.min.value):
            first = stmt.loop_var + stmt.min
            body = tvm_ffi.structural_map(body, (ir.Var, lambda v: first if v.same_as(stmt.loop_var) else v))
        try:
            extent = number(stmt.extent, self.known)
        except Undecided:  # it depends on the loops around: as many turns as it has at most, the others hidden
            extent = self.most(stmt.extent)
            own = (*conditions, (stmt.loop_var < stmt.extent, True))
        inner = Nest(known=self.known, around=(*self.around, (stmt.loop_var, extent)))
        inner.visit(body)
        self.repeat(inner, stmt.loop_var, extent, own)

    def turns(self, stmt: Any, conditions: tuple[Any, ...]) -> None:
        """A `while`, as two iterations: what one changes, the other finds."""
        inner = Nest(known=self.known, around=self.around)
        inner.expression(stmt.condition, ())
        inner.visit(stmt.body)
        self.repeat(inner, tirx.Var("turn", "int64"), 2, conditions)

    def repeat(self, inner: Nest, var: Any, extent: int, conditions: tuple[Any, ...]) -> None:
        """The accesses of one turn of a loop, for all turns."""
        self.ordered = self.ordered and inner.ordered
        turn, start = max(1, inner.clock), self.clock
        level = (var, extent, turn)
        for access in inner.accesses:
            own = (level, *access.loops)
            both = (*conditions, *access.conditions)
            self.accesses.append(replace(access, loops=own, conditions=both, time=start + access.time))
        self.clock = start + turn * extent

    def most(self, extent: Any) -> int:
        """The greatest value of an extent; where there is none, one turn without an order."""
        analyzer = sym.Analyzer()
        for var, turns in self.around:
            analyzer.bind(var, ir.Range(0, max(1, turns)))
        for var, number_of in self.known.items():
            if isinstance(number_of, int):
                analyzer.bind(var, tirx.IntImm(str(var.ty.dtype), number_of))
        greatest = int(analyzer.const_int_bound(extent).max_value)
        if greatest >= MOST:
            self.ordered = False
            return 1
        return max(0, greatest)

    def note(self, buffer: Any, indices: Any, conditions: tuple[Any, ...], *, writes: bool) -> None:
        """One access, now."""
        self.accesses.append(NestAccess(buffer, tuple(indices), writes, (), conditions, self.clock))
        self.clock += 1

    def expression(self, expr: Any, conditions: tuple[Any, ...]) -> None:
        """The loads of an expression; those that a condition inside it hides, too."""
        if operator_name(expr) == "prim.if_then_else":
            condition, yes, no = expr.args
            self.expression(condition, conditions)
            self.expression(yes, (*conditions, (condition, True)))
            self.expression(no, (*conditions, (condition, False)))
            return
        if operator_name(expr) == "tirx.address_of":  # reads nothing
            for index in expr.args[0].indices:
                self.expression(index, conditions)
            return
        if isinstance(expr, ir.TensorLoad):
            self.note(expr.source, expr.indices, conditions, writes=False)
        for part in _parts(expr):
            self.expression(part, conditions)

    def anything(self, stmt: Any) -> None:
        """Note the accesses of a statement of another kind."""
        tvm_ffi.structural_walk(
            stmt,
            [
                (ir.TensorLoad, lambda n: self.note(n.source, n.indices, (), writes=False)),
                (tirx.BufferStore, lambda n: self.note(n.buffer, n.indices, (), writes=True)),
            ],
        )


def operator_name(expr: Any) -> str:
    """The name of the operator that an expression calls, "" where it calls none."""
    return str(expr.op.name) if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) else ""


def _parts(expr: Any) -> list[Any]:
    if isinstance(expr, ir.TensorLoad):
        return list(expr.indices)
    if isinstance(expr, ir.Call):
        return list(expr.args)
    names = ("a", "b", "condition", "true_value", "false_value", "value", "body", "base", "lanes")
    found = [getattr(expr, name) for name in names if not isinstance(expr, int | float) and hasattr(expr, name)]
    return [part for part in found if isinstance(part, ir.Expr)]


def executions(access: NestAccess, known: Mapping[Any, Any], item_bytes: int) -> tuple[Array, Array]:
    """Times, and first bytes within the buffer, of all executions of an access; `Undecided` where data decides."""
    shape = [extent for _, extent, _ in access.loops]
    if int(np.prod(shape, dtype=np.int64)) > MOST:
        raise Undecided("too many executions")
    counters = np.meshgrid(*(np.arange(e, dtype=np.int64) for e in shape), indexing="ij") if shape else []
    own = {var: c.ravel() for (var, _, _), c in zip(access.loops, counters, strict=True)}
    count = int(np.prod(shape, dtype=np.int64))
    values = {**known, **own}
    time: Any = np.full(count, access.time, np.int64)
    for var, _, turn in access.loops:
        time = time + own[var] * turn
    element: Any = np.zeros(count, np.int64)
    for index, stride in zip(access.indices, strides(access.buffer, known), strict=True):
        element = element + value(index, values) * stride
    kept: Any = np.ones(count, bool)
    for condition, wanted in access.conditions:
        try:
            kept = kept & (np.broadcast_to(value(condition, values), kept.shape).astype(bool) == wanted)
        except Undecided:
            continue
    return time[kept], element[kept] * item_bytes


@dataclass(frozen=True, slots=True)
class Event:
    """All executions of one access: when, and the first byte in memory of each."""

    place: OwnedBytes
    writes: bool
    times: Array
    starts: Array
    item_bytes: int


def stolen(events: list[Event], window: tuple[int, int], owners: Owners) -> tuple[OwnedBytes, str, int] | None:
    """The first read in [start, stop) of one memory that sees another's write: reader, writer, byte."""
    start, stop = window
    grain = int(
        np.gcd.reduce(
            [start, stop, *(e.item_bytes for e in events), *(int(e.starts[0]) for e in events if e.starts.size)]
        )
    )
    grain = max(1, grain)
    ids: dict[Any, int] = {}
    names: dict[int, str] = {}

    def number_owner(owner: Any, name: str) -> int:
        names[ids.setdefault(owner, len(ids))] = name
        return ids[owner]

    before = np.full((stop - start) // grain, -1, np.int64)
    for first, last, owner, name in owners.spans_within(events[0].place.memory, start, stop):
        before[(first - start + grain - 1) // grain : (last - start) // grain] = number_owner(owner, name)
    taken: dict[int, Any] = {}  # reader -> where bytes that it wrote, or all if it wrote none, are another's
    for place in {event.place.owner: event.place for event in events}.values():
        gone = taken[number_owner(place.owner, place.name)] = np.zeros(before.size, bool)
        for first, last, _ in owners.stolen_spans(place, start, stop):
            gone[(first - start + grain - 1) // grain : (last - start) // grain] = True
    columns: list[tuple[Array, Array, Array, Array]] = []
    for event in events:
        one = number_owner(event.place.owner, event.place.name)
        for part in range(0, event.item_bytes, grain):
            at = (event.starts + part - start) // grain
            inside = (at >= 0) & (at < before.size)
            n = int(inside.sum())
            columns.append((at[inside], event.times[inside], np.full(n, event.writes), np.full(n, one)))
    at, time, writes, who = (np.concatenate(c) for c in zip(*columns, strict=True))
    order = np.lexsort((time, at))
    at, writes, who = at[order], writes[order], who[order]
    positions = np.arange(at.size)
    last_write = np.maximum.accumulate(np.where(writes, positions, -1))
    valid = (last_write >= 0) & (at[last_write] == at)
    seen = np.where(valid, who[last_write], before[at])
    gone_before = np.zeros(at.size, bool)
    for reader_id, gone in taken.items():
        gone_before |= (who == reader_id) & gone[at]
    wrong = np.flatnonzero(~writes & (seen != who) & (seen >= 0) & (valid | gone_before))
    if not wrong.size:
        return None
    first_wrong = int(wrong[0])
    reader = next(e.place for e in events if ids[e.place.owner] == who[first_wrong])
    return reader, names[int(seen[first_wrong])], start + int(at[first_wrong]) * grain


def never_meets(first: NestAccess, at: int, second: NestAccess, behind: int, known: Mapping[Any, Any]) -> bool:
    """Whether no execution of `second` touches a byte that an earlier execution of `first` touched."""
    try:
        a, b = address(first, known), address(second, known)
        hull_of(a, first.loops), hull_of(b, second.loops)  # nothing else moves them
    except Undecided:
        return False
    a, b = (a[0] + at, a[1]), (b[0] + behind, b[1])
    apart = element_bytes(str(first.buffer.dtype)), element_bytes(str(second.buffer.dtype))
    common = 0
    for own, other in zip(first.loops, second.loops, strict=False):
        if own is not other:
            break
        common += 1
    for level in range(common):
        if first.loops[level][1] > 1 and not _outside(_distances(first, a, second, b, level), apart):
            return False
    if first.time < second.time:  # in one turn of all common loops
        return _outside(_distances(first, a, second, b, common), apart)
    return True


def begins_with_write(read: NestAccess, writes: Sequence[NestAccess]) -> bool:
    """Whether one of `writes` has stored the element before, whenever `read` is executed.

    A write has if it stands before the read in the same iteration of the loops around it, or in the first iterations
    (of a sum: `if k == 0: o[i] = 0`) of loops that do not move the element.
    """
    for write in writes:
        around = [level for level, _ in zip(write.loops, read.loops, strict=False)]
        outer = len(around) == len(write.loops) and all(a is b for a, b in zip(around, read.loops, strict=False))
        if not outer or write.time >= read.time or not write.buffer.same_as(read.buffer):
            continue
        rest = [c for c in write.conditions if not any(c is own for own in read.conditions)]
        firsts = [v for condition, wanted in rest for v in _first_turns(condition, wanted)]
        if None in firsts or not all(any(v.same_as(w) for w, _, _ in write.loops) for v in firsts):
            continue
        if _same_element(write, read, firsts):
            return True
    return False


def _first_turns(condition: Any, wanted: bool) -> list[Any]:
    """The loop variables that a condition wants to be 0; with None where it wants anything else."""
    if isinstance(condition, tirx.And) and wanted:
        return [*_first_turns(condition.a, True), *_first_turns(condition.b, True)]
    if isinstance(condition, tirx.EQ) and wanted and isinstance(condition.a, ir.Var):
        return [condition.a if isinstance(condition.b, tirx.IntImm) and int(condition.b.value) == 0 else None]
    return [None]


def _same_element(a: NestAccess, b: NestAccess, without: Sequence[Any]) -> bool:
    """Whether two accesses of one buffer are of the same element, whatever the variables `without` are."""
    try:
        forms = [(linear(x, {}), linear(y, {})) for x, y in zip(a.indices, b.indices, strict=True)]
    except Undecided:
        return False
    differences = [add(x, y, -1) for x, y in forms]
    if any(constant or any(terms.values()) for constant, terms in differences):
        return False
    return not any(x[1].get(v, 0) for x, _ in forms for v in without)


def hull_of(form: Linear, loops: Sequence[tuple[Any, int, int]]) -> tuple[int, int]:
    """The least and the greatest value of a linear form of the `loops`; `Undecided` if it depends on more."""
    low = high = form[0]
    extents = {var: extent for var, extent, _ in loops}
    for var, factor in form[1].items():
        if var not in extents:
            raise Undecided(var.name)
        most = factor * max(0, extents[var] - 1)
        low, high = low + min(0, most), high + max(0, most)
    return low, high


def address(access: NestAccess, known: Mapping[Any, Any]) -> Linear:
    """The first byte of the element within the buffer, as a linear form of the loops."""
    element: Linear = (0, {})
    for index, stride in zip(access.indices, strides(access.buffer, known), strict=True):
        element = add(element, linear(index, known), stride)
    return times(element, element_bytes(str(access.buffer.dtype)))


def _distances(first: NestAccess, a: Linear, second: NestAccess, b: Linear, level: int) -> tuple[int, int]:
    """The least and greatest of `second`'s address less `first`'s, `second` a later turn of the loop `level`."""
    low = high = b[0] - a[0]

    def term(values: Sequence[int]) -> None:
        nonlocal low, high
        low, high = low + min(values), high + max(values)

    for var, extent, _ in first.loops[:level]:
        factor = b[1].get(var, 0) - a[1].get(var, 0)
        term((0, factor * (extent - 1)))
    own = level
    if level < min(len(first.loops), len(second.loops)) and first.loops[level] is second.loops[level]:
        var, extent, _ = first.loops[level]
        last = extent - 1
        mine, other = a[1].get(var, 0), b[1].get(var, 0)
        term((other, other * last, other * last - mine * (last - 1)))  # turns (0, 1), (0, last), (last - 1, last)
        own += 1
    for var, extent, _ in first.loops[own:]:
        term((0, -a[1].get(var, 0) * (extent - 1)))
    for var, extent, _ in second.loops[own:]:
        term((0, b[1].get(var, 0) * (extent - 1)))
    return low, high


def _outside(distances: tuple[int, int], sizes: tuple[int, int]) -> bool:
    """Whether elements at all those distances share no byte."""
    low, high = distances
    return low >= sizes[0] or high <= -sizes[1]
