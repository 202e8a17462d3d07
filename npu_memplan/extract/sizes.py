"""Bytes of shapes and dtypes, also of symbolic ones.

Invariant: a size is never too small. Sub-byte elements take a whole byte each (packing is up to
the kernel), and a bounded size uses the upper bound of every symbol at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import DataType, ir, relax, sym, tirx


def element_bytes(dtype: str) -> int:
    """Bytes of one element, vector lanes included, each rounded up to a whole byte."""
    kind = DataType(dtype)
    return int((kind.bits + 7) // 8 * kind.lanes)


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


def upper_bound(expr: Any, bounds: Mapping[Any, int]) -> int | None:
    """The greatest value of `expr` with each symbol in `[0, bound]`; None when there is none."""
    from tvm.tirx.analysis import undefined_vars

    free = undefined_vars(expr)
    if any(v not in bounds for v in free):
        return None
    analyzer = sym.Analyzer()
    for v in free:
        analyzer.bind(v, _range(int(bounds[v])))
    most = int(analyzer.const_int_bound(expr).max_value)
    return most if most < 2**62 else None


def lower_bound(expr: Any, bounds: Mapping[Any, int]) -> int | None:
    """The least value of `expr` with each symbol in `[0, bound]`; None when there is none."""
    greatest = upper_bound(0 - expr, bounds)
    return None if greatest is None else -greatest


def _range(bound: int) -> Any:
    return ir.Range(0, bound + 1)


def entry_symbols(function: Any) -> set[Any]:
    """Shape symbols that a parameter of a Relax function defines."""
    found: set[Any] = set()

    def look(ty: Any) -> None:
        if isinstance(ty, relax.TupleType):
            for field in ty.fields:
                look(field)
        elif isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
            found.update(e for e in ty.shape.values if isinstance(e, ir.Var))
        elif isinstance(ty, relax.ShapeType) and ty.values is not None:
            found.update(e for e in ty.values if isinstance(e, ir.Var))

    for parameter in function.params:
        look(parameter.ty)
    return found
