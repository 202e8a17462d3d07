"""Sums, differences, products and left shifts of the host that may leave their type.

Invariant: a result that is not proven to stay in int32 or int64 is computed in the unsigned type of the same width, so
that every compiler keeps its low bits, as the reference kernels' do. Arithmetic on loop variables and shapes is left as
it is: it addresses memory that is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, tirx

_KINDS = {tirx.Add: "add", tirx.Sub: "sub", tirx.Mul: "mul", tirx.LShift: "shl"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "shl": "<<"}
WRAPPING = re.compile(r"npu_memplan_(?P<what>add|sub|mul|shl)_(?P<dtype>int32|int64)")
"""Names of the functions that `with_wrapping` calls."""
_WRAPPED = ("int32", "int64")
_WIDEST_SHIFT = 63


@dataclass(frozen=True, slots=True)
class Range:
    """The integers `low` to `high`, both included; `has_elements`: it depends on an element of a buffer."""

    low: int
    high: int
    has_elements: bool = True

    def joined(self, other: Range) -> Range:
        """The smallest range that has both."""
        return Range(min(self.low, other.low), max(self.high, other.high), self.has_elements or other.has_elements)


def with_wrapping(function: Any, constants: Sequence[npt.NDArray[np.generic] | None] = ()) -> Any:
    """The PrimFunc with calls of `npu_memplan_{add,sub,mul,shl}_{int32,int64}` where a result may leave its type.

    `constants[i]` is what parameter i holds, if that is known.
    """
    known = zip(function.params, constants, strict=False)
    ranges = _Ranges(function.body, {p: _range_of(a) for p, a in known if a is not None and _is_known(p, a)})

    def replaced(node: Any) -> Any:
        dtype = str(node.ty.dtype)
        if dtype not in _WRAPPED:
            return node
        exact = ranges.of_operation(node)
        if not exact.has_elements or _holds(dtype, exact):
            return node
        return tirx.call_pure_extern(dtype, f"npu_memplan_{_KINDS[type(node)]}_{dtype}", node.a, node.b)

    body = tvm_ffi.structural_map(function.body, (tuple(_KINDS), replaced), order="post")
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def wrapping_function(what: str, dtype: str) -> str:
    """The C function that `with_wrapping` calls for `what` of two numbers of type `dtype`."""
    kind, unsigned = f"{dtype}_t", f"u{dtype}_t"
    result = f"({kind})(({unsigned})a {_SIGNS[what]} ({unsigned})b)"
    return f"static inline {kind} npu_memplan_{what}_{dtype}({kind} a, {kind} b) {{ return {result}; }}"


def _is_known(parameter: Any, values: npt.NDArray[np.generic]) -> bool:
    return values.size > 0 and values.dtype.kind in "iu" and str(parameter.dtype) == str(values.dtype)


def _range_of(values: npt.NDArray[np.generic]) -> Range:
    return Range(int(values.min()), int(values.max()))


def _type_range(dtype: str, has_elements: bool = True) -> Range:
    if dtype == "bool":
        return Range(0, 1, has_elements)
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("u"):
        return Range(0, (1 << bits) - 1, has_elements)
    return Range(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, has_elements)


def _holds(dtype: str, values: Range) -> bool:
    limits = _type_range(dtype)
    return limits.low <= values.low and values.high <= limits.high


class _Ranges:
    """What integers the expressions of a body can be; of what C keeps in registers, over all that is stored there."""

    def __init__(self, body: Any, known: Mapping[Any, Range]) -> None:
        self._known = known
        self._stores: dict[Any, list[Any]] = {}
        self._extents: dict[Any, Any] = {}
        self._locals: dict[Any, Range | None] = {}  # None: it is being found out
        tvm_ffi.structural_walk(body, [(tirx.BufferStore, self._stored), (tirx.For, self._looped)], order="pre")

    def _stored(self, store: Any) -> None:
        if str(store.buffer.scope()) == "local":
            self._stores.setdefault(store.buffer, []).append(store.value)

    def _looped(self, loop: Any) -> None:
        self._extents[loop.loop_var] = loop

    def of(self, node: Any) -> Range:
        """The range of an expression, within its type."""
        dtype = str(node.ty.dtype)
        found = self._of(node, dtype)
        return found if _holds(dtype, found) else _type_range(dtype, found.has_elements)

    def _of(self, node: Any, dtype: str) -> Range:
        if isinstance(node, tirx.IntImm):
            return Range(int(node.value), int(node.value), False)
        if type(node) in _KINDS:
            return self.of_operation(node)
        if isinstance(node, ir.TensorLoad):
            if node.source in self._known:
                return self._known[node.source]
            return self._of_local(node.source, dtype) if node.source in self._stores else _type_range(dtype)
        if isinstance(node, ir.Var):
            return self._of_variable(node, dtype)
        if isinstance(node, tirx.Cast):
            kind = str(node.value.ty.dtype)
            return self.of(node.value) if _is_integer(kind) else _type_range(dtype)
        if isinstance(node, tirx.Select):
            return self.of(node.true_value).joined(self.of(node.false_value))
        if isinstance(node, (tirx.Min, tirx.Max, tirx.RShift, tirx.FloorDiv, tirx.FloorMod, tirx.BitwiseAnd)):
            return _combined(node, self.of(node.a), self.of(node.b), dtype)
        return _type_range(dtype)

    def of_operation(self, node: Any) -> Range:
        """The range of the exact result of a sum, difference, product or left shift."""
        a, b = self.of(node.a), self.of(node.b)
        elements = a.has_elements or b.has_elements
        if isinstance(node, tirx.Add):
            return Range(a.low + b.low, a.high + b.high, elements)
        if isinstance(node, tirx.Sub):
            return Range(a.low - b.high, a.high - b.low, elements)
        if isinstance(node, tirx.LShift):
            if a.low < 0 or b.low < 0 or b.high > _WIDEST_SHIFT:  # C leaves a shift of what is negative undefined
                return Range(-(1 << 64), 1 << 64, elements)
            return Range(a.low << b.low, a.high << b.high, elements)
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return Range(min(corners), max(corners), elements)

    def _of_local(self, buffer: Any, dtype: str) -> Range:
        if buffer in self._locals:
            return self._locals[buffer] or _type_range(dtype, False)
        self._locals[buffer] = None
        found, *others = (self.of(value) for value in self._stores[buffer])
        for other in others:
            found = found.joined(other)
        self._locals[buffer] = found
        return found

    def _of_variable(self, variable: Any, dtype: str) -> Range:
        loop = self._extents.get(variable)
        if loop is None or not isinstance(loop.min, tirx.IntImm) or not isinstance(loop.extent, tirx.IntImm):
            return _type_range(dtype, False)
        low = int(loop.min.value)
        return Range(low, max(low, low + int(loop.extent.value) - 1), False)


def _is_integer(dtype: str) -> bool:
    return dtype == "bool" or dtype.lstrip("u").startswith("int")


def _combined(node: Any, a: Range, b: Range, dtype: str) -> Range:
    """The range of an operation that never leaves its type, of operands in `a` and `b`."""
    elements = a.has_elements or b.has_elements
    if isinstance(node, tirx.Min):
        return Range(min(a.low, b.low), min(a.high, b.high), elements)
    if isinstance(node, tirx.Max):
        return Range(max(a.low, b.low), max(a.high, b.high), elements)
    if isinstance(node, tirx.RShift) and b.low >= 0:
        low, high = (a.low >> b.low, a.low >> b.high), (a.high >> b.low, a.high >> b.high)
        return Range(min(low), max(high), elements)
    if isinstance(node, tirx.FloorDiv) and 0 < b.low == b.high:
        return Range(a.low // b.low, a.high // b.low, elements)
    if isinstance(node, tirx.FloorMod) and 0 < b.low == b.high:
        return Range(0, b.low - 1, elements)
    if isinstance(node, tirx.BitwiseAnd) and min(a.high, b.high) >= 0 and max(a.low, b.low) >= 0:
        return Range(0, min(r.high for r in (a, b) if r.low >= 0), elements)
    return _type_range(dtype, elements)
