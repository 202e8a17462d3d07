"""Bytes of shapes and dtypes, also of symbolic ones, and what expressions of symbols and loop counters come to.

Invariant: a size is never too small. Sub-byte elements take a whole byte each (packing is up to
the kernel), and a bounded size uses the upper bound of every symbol at once. What depends on data has no value.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import DataType, ir, relax, sym, tirx


def element_bytes(dtype: str) -> int:
    """Bytes of one element, vector lanes included, each rounded up to a whole byte."""
    kind = DataType(dtype)
    return int((kind.bits + 7) // 8 * kind.lanes)


def element_alignment(dtype: str) -> int:
    """What an element's address is a multiple of, in bytes: its size, rounded up to a power of two."""
    return 1 << (element_bytes(dtype) - 1).bit_length()


def static_extent(expr: Any) -> int | None:
    """The value of an extent, or None when it depends on a symbol."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


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
    """How many elements lie between neighbours on each axis of a buffer: ints, or expressions.

    Without strides of its own it is row-major; so is an axis whose stride is a symbol of `compact`.
    """
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
    """What `expr` is never less than with each symbol in `[0, bound]`, mostly its least value; None when there is none.

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
        tried = least.tried(part)
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
    """What an expression of `free` symbols is never less than in ranges of these."""

    def __init__(self, expr: Any, free: Sequence[Any]) -> None:
        self.expr, self.free = expr, free

    def interval(self, ranges: _Ranges) -> int:
        """By TVM's analyser."""
        analyzer = sym.Analyzer()
        for v, (first, last) in zip(self.free, ranges, strict=True):
            analyzer.bind(v, ir.Range(first, last + 1))
        return int(analyzer.const_int_bound(self.expr).min_value)

    def tried(self, ranges: _Ranges) -> int | None:
        """By trying all values; None where these are too many, or the expression has no value at one."""
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
    "FloorDiv": lambda a, b: _divided(a, b)[0],
    "FloorMod": lambda a, b: _divided(a, b)[1],
    "Div": lambda a, b: _truncated(a, b)[0],
    "Mod": lambda a, b: _truncated(a, b)[1],
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


def _divided(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient, rounded down, and remainder."""
    if np.any(np.equal(b, 0)):
        raise Unknown("a division by 0")
    return a // b, a % b


def _truncated(a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient, rounded towards 0, and remainder, which has the sign of `a`."""
    size, _ = _divided(abs(a), abs(b))
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
