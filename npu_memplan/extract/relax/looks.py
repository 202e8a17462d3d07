"""Operators that look at the bytes of a tensor: reshapes, `memory.view`, `memory.ensure_zero_offset`.

Invariant: a `View` made here lies within its tensor and begins at a multiple of its element; whether it does is known
at compile time, or there is no `View`: the run time then makes the tensor object, and checks it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from tvm import DataType, relax, sym, tirx

from ...vocabulary import VIEW_ALIGNMENT
from ..program import View
from ..sizes import element_bytes, size_bytes, static_extent
from ..tir import operator_of

ENSURE = "relax.memory.ensure_zero_offset"


def look(source: View, call: Any) -> View | None:
    """What `call` sees of `source`; None where only the run time can tell."""
    ty = call.ty
    known = isinstance(ty.shape, relax.ShapeExpr) and not source.tensor.external.startswith("its shape")
    if not known or ty.dtype is None:
        return source if operator_of(call) == ENSURE else None
    shape, dtype = tuple(ty.shape.values), str(ty.dtype)
    if operator_of(call) != "relax.memory.view":
        return View(source.tensor, shape, source.dtype, source.offset_bytes, source.partial)
    first = static_extent(call.args[3]) if isinstance(call.args[3], tirx.IntImm) else _given(call.args[3])
    if first is None or not (_whole_bytes(dtype) and _whole_bytes(source.dtype)):
        return None
    start = source.offset_bytes + first
    size, own = size_bytes(shape, dtype), size_bytes(source.shape, source.dtype)
    if size is not None and own is not None:
        if first < 0 or first + size > own or start % element_bytes(dtype):
            return None
        found = View(source.tensor, shape, dtype, start, source.partial or size < own)
    elif start or not _as_large(source, shape, dtype):
        return None
    else:
        found = View(source.tensor, shape, dtype, 0, source.partial)
    source.tensor.alignment = max(source.tensor.alignment, element_bytes(dtype))
    return found


def begins_at_zero(view: View) -> bool:
    """Whether a tensor object of the view has no offset of its own: the run time moves its pointer there instead."""
    return view.offset_bytes % VIEW_ALIGNMENT == 0


def _given(offset: Any) -> int | None:
    """0 for an offset that is left out, None for one that is known at run time only."""
    return 0 if isinstance(offset.ty, relax.TupleType) else None


def _whole_bytes(dtype: str) -> bool:
    """Whether elements lie at whole bytes; what the run time packs is its own."""
    return dtype == "bool" or DataType(dtype).bits % 8 == 0


def _as_large(source: View, shape: Sequence[Any], dtype: str) -> bool:
    """Whether a view is proven to have as many bytes as its source, for all values of the symbols."""
    return bool(sym.Analyzer().can_prove_equal(_bytes(source.shape, source.dtype), _bytes(shape, dtype)))


def _bytes(shape: Sequence[Any], dtype: str) -> Any:
    return functools.reduce(operator.mul, shape, tirx.IntImm("int64", element_bytes(dtype)))
