"""ELEMENTWISE: one or two inputs, element by element.

Invariant: both inputs are read before anything is written, so an operation may write over its own input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import ElementwiseMode, Rounding
from npu_memplan.ethosu.stream.isa_u85 import ScaleRounding

from ..arithmetic.rescale import Int64, Scale
from ..spec.elementwise import ElementwiseSpec
from ..spec.layout import InputSpec
from ..spec.registers import Registers
from .memory import FeatureMapAccess, RegionMemory
from .output import OutputPath

Kind = ElementwiseMode
_BINARY: dict[ElementwiseMode, Callable[[Any, Any], Any]] = {
    Kind.ADD: np.add,
    Kind.SUB: np.subtract,
    Kind.MUL: np.multiply,
    Kind.MIN: np.minimum,
    Kind.MAX: np.maximum,
    # All bits of a true result are set: regor masks with it (SELECT), and puts an AND with 1 after it (EQUAL).
    Kind.CMP_EQ: lambda a, b: np.where(a == b, -1, 0),
    Kind.CMP_NE: lambda a, b: np.where(a != b, -1, 0),
    Kind.CMP_GE: lambda a, b: np.where(a >= b, -1, 0),
    Kind.CMP_GT: lambda a, b: np.where(a > b, -1, 0),
    Kind.AND: np.bitwise_and,
    Kind.OR: np.bitwise_or,
    Kind.XOR: np.bitwise_xor,
    Kind.AND_NOT: lambda a, b: a & ~b,
}


class Elementwise:
    def __init__(self, spec: ElementwiseSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec = spec
        self.maps: list[FeatureMapAccess] = []
        self._inputs = [self._bound(found, memory, regs) for found in spec.inputs]
        self.output = OutputPath(spec.output, memory, regs)
        a, b = spec.first, spec.second or spec.first
        if spec.swap:
            a, b = b, a
        self._a, self._b = _Operand(a, spec.first_scale), _Operand(b, spec.second_scale)
        self._plain = _Operand(a, Scale.of(1, 0))
        if not spec.scale.is_identity:
            self.output.rescale(spec.scale, None, self._reach())

    def _bound(self, found: InputSpec, memory: RegionMemory, regs: Registers) -> NDArray[Any]:
        if found.layout is None:
            return np.full((1, 1, 1), found.scalar, np.int64)
        self.maps.append(FeatureMapAccess(memory, regs, found.layout, found.shape, is_write=False))
        return self.maps[-1].array

    def _reach(self) -> float:
        """Bounds what is rescaled."""
        if self.spec.kind is Kind.MUL:
            return self._a.reach * self._b.reach
        return self._a.reach + self._b.reach if self.spec.kind in (Kind.ADD, Kind.SUB) else math.inf

    def run(self) -> None:
        spec, output = self.spec, self.output
        for found in self.maps:
            found.load()
        inputs, (height, width, depth), step = self._inputs, spec.output.shape, output.rows_per_block
        if step < height and not output.map.is_scratch:  # what is put is in memory at once
            inputs = [values.copy() for values in inputs]
        for row in range(0, height, step):
            rows = [values[row : row + step] if values.shape[0] > 1 else values for values in inputs]
            if spec.swap:
                rows.reverse()
            value = self._unary(rows[0]) if spec.second is None else self._binary(self._a(rows[0]), self._b(rows[1]))
            shape = (min(step, height - row), width, depth)
            output.put(row, value if value.shape == shape else np.broadcast_to(value, shape))
        output.finish()

    def _unary(self, raw: NDArray[Any]) -> Int64:
        a, kind = self._a(raw), self.spec.kind
        if kind is Kind.ABS:
            return np.abs(a)
        if kind is Kind.NOT:
            return ~a
        if kind is Kind.CLZ:
            return _leading_zeros(a)
        return np.where(self._plain(raw) < 0, self._b(raw), a)  # LRELU

    def _binary(self, a: Int64, b: Int64) -> Int64:
        kind = self.spec.kind
        if kind in _BINARY:
            value: Int64 = _BINARY[kind](a, b)
            return value
        if kind is Kind.DIV:
            whole = np.abs(a) // np.maximum(np.abs(b), 1)
            return np.where((a < 0) != (b < 0), -whole, whole)
        by = np.clip(b, 0, 63)
        if kind is Kind.SHL:
            room = (np.int64(1) << 62) >> by  # beyond this the result saturates anyway
            return (a if self.spec.output.wraps else np.clip(a, -room, room)) << by
        if kind is Kind.LSR:
            bits = 8 * self.spec.first.dtype.itemsize
            return (a & ((1 << min(bits, 63)) - 1)) >> by
        return _shifted_right(a, by, self.spec.scale_rounding)


class _Operand:
    """What an operand contributes: its value without the zero point, rescaled. Tabulated for 8 bits."""

    def __init__(self, source: InputSpec, scale: Scale) -> None:
        self._zero, self._scale = source.zero_point, None if scale.is_identity else scale
        self._table: Int64 | None = None
        info = np.iinfo(source.dtype)
        if source.dtype.itemsize == 1:
            every = np.arange(256, dtype=np.uint8).view(source.dtype)
            self._table = self._exact(every.astype(np.int64) - self._zero)
        ends = [source.scalar] * 2 if source.layout is None else [int(info.min), int(info.max)]
        self.reach = math.inf  # bounds the magnitude
        if source.dtype.itemsize < 8:
            self.reach = float(np.abs(self._exact(np.array(ends, np.int64) - self._zero)).max())

    def _exact(self, value: Int64) -> Int64:
        return value if self._scale is None else self._scale.exact(value)

    def __call__(self, raw: NDArray[Any]) -> Int64:
        if self._table is not None and raw.itemsize == 1:
            return self._table[raw.view(np.uint8)]
        value = raw.astype(np.int64)
        if self._zero:
            value -= self._zero
        return self._exact(value)


def _shifted_right(value: Int64, by: Int64, rounding: Rounding | ScaleRounding) -> Int64:
    """`value` / 2**by, rounded."""
    half = (np.int64(1) << by) >> 1
    if rounding is Rounding.TRUNCATE or rounding is ScaleRounding.TRUNCATE_TO_LOWER:
        half = np.zeros_like(half)
    elif rounding is Rounding.TFL:
        half = half - ((value < 0) & (by > 0))
    shifted: Int64 = (value + half) >> by
    return shifted


def _leading_zeros(value: Int64) -> Int64:
    """Leading zero bits of 32-bit values; none for negative ones, 32 for 0."""
    _, exponent = np.frexp(np.maximum(value, 0).astype(np.float64))
    return np.where(value < 0, 0, 32 - exponent).astype(np.int64)
