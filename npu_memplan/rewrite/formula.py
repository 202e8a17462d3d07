"""Expressions of shape symbols as text.

Invariant: for values >= 0 the text means the same in C and, with `/` rounding down, in `evaluate`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tvm import ir, tirx

from ..errors import NpuMemplanError

_INFIX = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "/", tirx.FloorMod: "%"}
_MEANING: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


class FormulaError(NpuMemplanError):
    """An expression of shape symbols is more than sums, products, quotients and remainders, or lacks a value."""


def formula(expr: Any) -> str:
    """The text of an integer expression, e.g. `(h * 2)`."""
    if isinstance(expr, int):
        return str(expr)
    if isinstance(expr, tirx.IntImm):
        return str(int(expr.value))
    if isinstance(expr, ir.Var):
        return str(expr.name)
    if isinstance(expr, tirx.Cast):
        return formula(expr.value)
    for kind, sign in _INFIX.items():
        if isinstance(expr, kind):
            return f"({formula(expr.a)} {sign} {formula(expr.b)})"
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
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, int)
        return node.value

    return value(ast.parse(text, mode="eval").body)
