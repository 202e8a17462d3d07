"""Definitions of variables as one PrimFunc that runs on the host.

Invariant: the values are those of the expressions. In Relax each level of definitions would be a function of its own,
and TVM's simplifier compares the terms of nested choices with each other. Here choices and products of symbols are
computed once, into memory, which the simplifier does not look through. A quotient by 0, which only what is not chosen
has, is that by 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from ..extract.sizes import static_extent
from ..extract.symbolic.extents import as_expr
from ..extract.tir import nodes_of, operator_of
from .aliasing import NOALIAS

Definitions = Sequence[Sequence[tuple[Any, Any]]]
"""Level by level: (variable, its value, an expression of symbols and of variables of earlier levels)."""

_PAIRS = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod, tirx.Min, tirx.Max),
    *(tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE, tirx.And, tirx.Or),
)
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_STORED = (tirx.Mul, tirx.Min, tirx.Max)


def used_by(exprs: Iterable[Any], definitions: Definitions) -> list[Any]:
    """The variables of `definitions` that are in `exprs`, in the order of their definitions."""
    found = {v for expr in exprs for v in nodes_of(as_expr(expr), ir.Var)}
    return [var for level in definitions for var, _ in level if var in found]


def symbols_needed_by(definitions: Definitions) -> list[Any]:
    """The variables that `definitions` need and do not define."""
    pairs = [pair for level in definitions for pair in level]
    own = {var for var, _ in pairs}
    return list({v: None for _, expr in pairs for v in nodes_of(as_expr(expr), ir.Var) if v not in own})


def evaluation(definitions: Definitions, wanted: Sequence[Any]) -> Any:
    """A PrimFunc: a tensor for the values of `wanted`, one for others, then the symbols that the definitions need."""
    apart = _Evaluation(definitions, wanted)
    return _Evaluation(definitions, wanted, _places(apart.statements, apart.others)).function()


def _places(statements: Sequence[Any], others: Any) -> list[int]:
    """For each statement a place for what it stores, the least that is free: values after their last use are dead."""
    used = [
        {int(load.indices[0]) for load in nodes_of(statement.value, ir.TensorLoad) if load.source.same_as(others)}
        for statement in statements
    ]
    last = {value: at for at, values in enumerate(used) for value in values}
    places: list[int] = []
    free: list[int] = []
    count = 0
    for at, statement in enumerate(statements):
        for value in used[at]:
            if last[value] == at:
                heapq.heappush(free, places[value])
        if not free and statement.buffer.same_as(others):
            heapq.heappush(free, count)
            count += 1
        places.append(heapq.heappop(free) if at in last else free[0] if free else 0)  # a result has its place
    return places


@dataclass(frozen=True, slots=True)
class _Value:
    """An expression of parameters and of what is stored; equal ones have one `number`, a constant has its `known`."""

    number: int
    expr: Any
    symbolic: bool  # whether it has parameters
    known: int | None = None


class _Evaluation:
    """Statements that store what is `wanted` in `results`, and what else is needed in `others`.

    `slots` has the place there for each statement; without it, each has its own.
    """

    def __init__(self, definitions: Definitions, wanted: Sequence[Any], slots: Sequence[int] | None = None) -> None:
        symbols = symbols_needed_by(definitions)
        self.parameters = [tirx.Var(symbol.name, "int64") for symbol in symbols]
        self.places = {var: place for place, var in enumerate(wanted)}
        self.results = tirx.decl_buffer((len(wanted),), "int64", name="results", layout=None)
        self.slots = slots
        self.others = tirx.decl_buffer((max(slots or (0,)) + 1,), "int64", name="others", layout=None)
        self.statements: list[Any] = []
        self.numbers: dict[Any, int] = {}  # of a symbol, a constant, or an operation on numbered operands
        self.values = {s: _Value(self.number(s), p, True) for s, p in zip(symbols, self.parameters, strict=True)}
        self.known: dict[int, _Value] = {}
        for level in definitions:
            for var, expr in level:
                self.values[var] = self.stored(self.value(expr), self.places.get(var))

    def function(self) -> Any:
        """The PrimFunc."""
        attributes = {"s_tir": True, NOALIAS: True, "tirx.is_host_func": True}
        parameters = [self.results, self.others, *self.parameters]
        body = tirx.SeqStmt(self.statements) if len(self.statements) > 1 else self.statements[0]
        return tirx.PrimFunc(parameters, body).with_attr(attributes)

    def stored(self, value: _Value, place: int | None = None) -> _Value:
        """The same value, stored at a `place` of the results or among the others."""
        memory = self.others if place is None else self.results
        if place is None:
            place = len(self.statements) if self.slots is None else self.slots[len(self.statements)]
        index = [tirx.IntImm("int64", place)]
        self.statements.append(tirx.BufferStore(memory, value.expr, index))
        return _Value(value.number, tirx.BufferLoad(memory, index), symbolic=False, known=value.known)

    def number(self, what: Any) -> int:
        """One number for equal expressions: the keys of nested operations would be as long as these written out."""
        return self.numbers.setdefault(what, len(self.numbers))

    def value(self, expr: Any) -> _Value:
        """The value of an expression of symbols and variables."""
        known = static_extent(expr)
        if known is not None:
            return _Value(self.number(("constant", known)), as_expr(known), symbolic=False, known=known)
        if isinstance(expr, ir.Var):
            return self.values[expr]
        if isinstance(expr, tirx.Cast):
            return self.value(expr.value)
        parts = [self.value(part) for part in _parts(expr)]
        kind = type(expr) if isinstance(expr, _PAIRS) else tirx.Select
        key = self.number((kind, *(part.number for part in parts)))
        if key not in self.known:
            symbolic = any(part.symbolic for part in parts)
            if kind in _DIVISIONS:
                parts[1] = self.divisor(parts[1])
            found = _Value(key, kind(*(part.expr for part in parts)), symbolic)
            product_with_number = kind is tirx.Mul and any(part.known is not None for part in parts)
            stored = symbolic and kind in _STORED and not product_with_number
            self.known[key] = self.stored(found) if stored else found
        return self.known[key]

    def divisor(self, value: _Value) -> _Value:
        """A value, but 1 for 0; stored, or the simplifier would see that a condition around it excludes 0."""
        if value.known is not None:
            return value
        key = self.number(("divisor", value.number))
        if key not in self.known:
            other = tirx.Select(tirx.EQ(value.expr, as_expr(0)), as_expr(1), value.expr)
            self.known[key] = self.stored(_Value(key, other, value.symbolic))
        return self.known[key]


def _parts(expr: Any) -> tuple[Any, ...]:
    """The operands of an operation; of a choice, both sides are computed."""
    if isinstance(expr, _PAIRS):
        return expr.a, expr.b
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    assert operator_of(expr) == "prim.if_then_else", expr
    return tuple(expr.args)
