"""Expressions of shape symbols as text.

Invariant: for values >= 0 the text means the same in C and, with `/` rounding down, in `evaluate`; choices (min, max,
`a if c else b`) and divisions that round towards 0, where they are requested, are for `evaluate` alone.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tvm import ir, tirx

from ..errors import NpuMemplanError
from ..extract.tir import operator_of

_INFIX = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "/", tirx.FloorMod: "%"}
_CHOICES = {tirx.Min: "min", tirx.Max: "max", tirx.Div: "truncated", tirx.Mod: "remainder"}
_COMPARISONS = {tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">=", tirx.EQ: "==", tirx.NE: "!="}
_LOGIC = {tirx.And: "and", tirx.Or: "or"}
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


def _truncated(a: int, b: int) -> int:
    """The quotient, rounded towards 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "min": min,
    "max": max,
    "truncated": _truncated,
    "remainder": lambda a, b: a - _truncated(a, b) * b,
}


class FormulaError(NpuMemplanError):
    """An expression of shape symbols is more than sums, products, quotients and remainders, or lacks a value."""


def formula(expr: Any, *, choices: bool = False) -> str:
    """The text of an integer expression, e.g. `(h * 2)`."""
    if isinstance(expr, int):
        return str(expr)
    if isinstance(expr, tirx.IntImm):
        return str(int(expr.value))
    if isinstance(expr, ir.Var):
        return str(expr.name)
    if isinstance(expr, tirx.Cast):
        return formula(expr.value, choices=choices)
    text = partial(formula, choices=choices)
    if sign := (_INFIX | _COMPARISONS | _LOGIC if choices else _INFIX).get(type(expr)):
        return f"({text(expr.a)} {sign} {text(expr.b)})"
    if choices and type(expr) in _CHOICES:
        return f"{_CHOICES[type(expr)]}({text(expr.a)}, {text(expr.b)})"
    if choices and isinstance(expr, tirx.Not):
        return f"(not {text(expr.a)})"
    choice = (expr.condition, expr.true_value, expr.false_value) if isinstance(expr, tirx.Select) else ()
    if operator_of(expr) == "prim.if_then_else":
        choice = tuple(expr.args)
    if choices and choice:
        condition, yes, no = choice
        return f"({text(yes)} if {text(condition)} else {text(no)})"
    raise FormulaError(f"the extent {expr} has no plain form; use sums, products, quotients and remainders")


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
