"""Values of TIR expressions where symbols and loop counters have values: whole numbers, or arrays of them.

Invariant: what depends on data has no value (`Unknown`); nothing is guessed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import ir, tirx


class Unknown(Exception):
    """The value depends on data, or on something that is not understood."""


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Min": np.minimum,
    "Max": np.maximum,
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
    if isinstance(expr, int | np.ndarray | np.integer):
        return expr
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, ir.Var):
        if expr in known:
            return known[expr]
        raise Unknown(expr.name)
    kind = type(expr).__name__
    if kind in _BINARY:
        return _BINARY[kind](value(expr.a, known), value(expr.b, known))
    if kind in ("Div", "Mod"):  # truncating; the same as flooring where nothing is negative
        a, b = value(expr.a, known), value(expr.b, known)
        if np.min(a) < 0 or np.min(b) <= 0:
            raise Unknown(kind)
        return a // b if kind == "Div" else a % b
    if kind == "Not":
        return np.logical_not(value(expr.a, known))
    if kind == "Cast":
        return value(expr.value, known)
    if kind == "Select":
        return np.where(*(value(e, known) for e in (expr.condition, expr.true_value, expr.false_value)))
    if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) and expr.op.name == "tirx.if_then_else":
        return np.where(*(value(e, known) for e in expr.args))
    raise Unknown(kind)


def number(expr: Any, known: Mapping[Any, Any]) -> int:
    """`value` of what does not depend on loop counters."""
    return int(value(expr, known))
