"""What index expressions come to, and bytes of elements: the verification's own, so that no mistake is made twice.

Invariant: an expression has a value, one for each turn of the loops or for all of them, or `Undecided` is raised. A
linear form is equal to its expression for all values of the variables.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from tvm import DataType, ir, relax, tirx


class Undecided(Exception):
    """The value depends on data, or on something that is not understood."""


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
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, ir.Var):
        if expr not in known:
            raise Undecided(expr.name)
        return known[expr]
    if isinstance(expr, tirx.Cast):
        return value(expr.value, known)
    if isinstance(expr, ir.TensorLoad):
        return _element(expr, known)
    if isinstance(expr, tirx.Not):
        return np.logical_not(value(expr.a, known))
    if meaning := _MEANING.get(type(expr)):
        return meaning(value(expr.a, known), value(expr.b, known))
    if isinstance(expr, tirx.Select):
        return _choose((expr.condition, expr.true_value, expr.false_value), known)
    if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) and expr.op.name == "prim.if_then_else":
        return _choose(tuple(expr.args), known)
    if isinstance(expr, int | np.integer | np.ndarray):
        return expr
    raise Undecided(type(expr).__name__)


def _element(load: Any, known: Mapping[Any, Any]) -> int:
    """An element of a tensor of one dimension whose elements are `known`, by their places."""
    elements = known.get(load.source)
    if elements is None or len(load.indices) != 1 or (place := number(load.indices[0], known)) not in elements:
        raise Undecided(load.source.name)
    return int(elements[place])


def _choose(parts: tuple[Any, Any, Any], known: Mapping[Any, Any]) -> Any:
    """One of two values; what a single condition does not choose needs none."""
    holds = value(parts[0], known)
    if isinstance(holds, np.ndarray) and holds.ndim:
        return np.where(holds, value(parts[1], known), value(parts[2], known))
    return value(parts[1] if holds else parts[2], known)


def _nonzero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def checked(a: Any, b: Any) -> Any:
        if not np.all(b):
            raise Undecided("a division by 0")
        return function(a, b)

    return checked


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
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
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
    if isinstance(expr, tirx.Add | tirx.Sub):
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
