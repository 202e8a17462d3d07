"""A loop nest, access by access: which element is touched when.

Invariant: time is the serial order of execution, counted in accesses; a read of a statement comes before its
write. Accesses that a condition hides are left out only where the condition has a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, sym, tirx

from .memory import OwnedBytes, Owners
from .numbers import Undecided, number, strides, value

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
        """A `while`: whatever one turn finds changed, another one has done, so that two turns show it."""
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
        if called(expr) == "prim.if_then_else":
            condition, yes, no = expr.args
            self.expression(condition, conditions)
            self.expression(yes, (*conditions, (condition, True)))
            self.expression(no, (*conditions, (condition, False)))
            return
        if called(expr) == "tirx.address_of":  # reads nothing
            for index in expr.args[0].indices:
                self.expression(index, conditions)
            return
        if isinstance(expr, ir.TensorLoad):
            self.note(expr.source, expr.indices, conditions, writes=False)
        for part in _parts(expr):
            self.expression(part, conditions)

    def anything(self, stmt: Any) -> None:
        """Whatever a statement of another kind touches."""
        tvm_ffi.structural_walk(
            stmt,
            [
                (ir.TensorLoad, lambda n: self.note(n.source, n.indices, (), writes=False)),
                (tirx.BufferStore, lambda n: self.note(n.buffer, n.indices, (), writes=True)),
            ],
        )


def called(expr: Any) -> str:
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
    """The first read in [start, stop) that sees what another wrote: reader, writer, byte.

    All events are in one memory. Bytes are looked at in grains that no element straddles.
    """
    start, stop = window
    grain = int(
        np.gcd.reduce(
            [start, stop, *(e.item_bytes for e in events), *(int(e.starts[0]) for e in events if e.starts.size)]
        )
    )
    grain = max(1, grain)
    ids: dict[Any, int] = {}
    names: dict[int, str] = {}

    def numbered(owner: Any, name: str) -> int:
        names[ids.setdefault(owner, len(ids))] = name
        return ids[owner]

    before = np.full((stop - start) // grain, -1, np.int64)
    for first, last, owner, name in owners.within(events[0].place.memory, start, stop):
        before[(first - start + grain - 1) // grain : (last - start) // grain] = numbered(owner, name)
    taken: dict[int, Any] = {}  # reader -> where bytes that it wrote, or all if it wrote none, are another's
    for place in {event.place.owner: event.place for event in events}.values():
        gone = taken[numbered(place.owner, place.name)] = np.zeros(before.size, bool)
        for first, last, _ in owners.taken(place, start, stop):
            gone[(first - start + grain - 1) // grain : (last - start) // grain] = True
    columns: list[tuple[Array, Array, Array, Array]] = []
    for event in events:
        one = numbered(event.place.owner, event.place.name)
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
