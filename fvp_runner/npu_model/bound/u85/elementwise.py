"""Ethos-U85's ELEMENTWISE.

Invariant: both inputs are read before anything is written, so an operation may write over its own input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npu_memplan.ethosu.stream.isa_u85 import ElementwiseKind

from ...arithmetic.rescale import Int64, Scale
from ...spec.layout import InputSpec
from ...spec.registers import Registers
from ...spec.u85.elementwise import OperandsSpec
from ..elementwise import bound_input, leading_zeros, shifted_right
from ..memory import FeatureMapAccess, RegionMemory
from ..output import OutputPath

Kind = ElementwiseKind


class U85Elementwise:
    def __init__(self, spec: OperandsSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec = spec
        self._first, self._second = (bound_input(found, memory, regs) for found in (spec.first, spec.second))
        self.maps = [found for found in (self._first, self._second) if found is not None]
        self.output = OutputPath(spec.output, memory, regs)

    @staticmethod
    def _values(source: InputSpec, bound: FeatureMapAccess | None, scale: Scale) -> Int64:
        if bound is None:
            raw: Any = np.full((1, 1, 1), source.scalar, np.int64)
        else:
            bound.load()
            raw = bound.array.astype(np.int64)
        value: Int64 = raw - source.zero_point
        return value if scale.is_identity else scale.exact(value)

    def run(self) -> None:
        spec, output = self.spec, self.output
        shape = spec.output.shape
        a = self._values(spec.first, self._first, spec.first_scale)
        if spec.second is None:
            value = self._unary(a)
        else:
            value = self._binary(a, self._values(spec.second, self._second, spec.second_scale))
        if not spec.scale.is_identity:
            value = spec.scale.exact(value)
        output.put_values(0, np.array(np.broadcast_to(value, shape)))
        output.finish()

    def _unary(self, a: Int64) -> Int64:
        kind = self.spec.kind
        if kind is Kind.ABS:
            return np.abs(a)
        if kind is Kind.NOT:
            return ~a
        if kind is Kind.CLZ:
            return leading_zeros(a)
        raw = self._values(self.spec.first, self._first, Scale.of(1, 0))
        return np.where(raw < 0, self.spec.second_scale.exact(raw), a)  # LRELU

    def _binary(self, a: Int64, b: Int64) -> Int64:
        plain = _PLAIN.get(self.spec.kind)
        if plain is not None:
            value: Int64 = plain(a, b)
            return value.astype(np.int64)
        if self.spec.kind is Kind.DIV:
            whole = np.abs(a) // np.maximum(np.abs(b), 1)
            return np.where((a < 0) != (b < 0), -whole, whole)
        return self._shift(a, b)

    def _shift(self, a: Int64, b: Int64) -> Int64:
        by = np.clip(b, 0, 63)
        if self.spec.kind is Kind.SHL:
            return a << by  # what is beyond the type goes: shifts are not clipped
        if self.spec.kind is Kind.LSR:
            bits = 8 * self.spec.first.dtype.itemsize
            return (a & ((1 << min(bits, 63)) - 1)) >> by
        return shifted_right(a, by, self.spec.scale_rounding)


_PLAIN: dict[ElementwiseKind, Callable[[Any, Any], Any]] = {
    Kind.ADD: np.add,
    Kind.SUB: np.subtract,
    Kind.MUL: np.multiply,
    Kind.MIN: np.minimum,
    Kind.MAX: np.maximum,
    # All bits of a true result are set: regor masks with it (SELECT), and puts an AND with 1 behind it (EQUAL).
    Kind.CMP_EQ: lambda a, b: np.where(a == b, -1, 0),
    Kind.CMP_NE: lambda a, b: np.where(a != b, -1, 0),
    Kind.CMP_GE: lambda a, b: np.where(a >= b, -1, 0),
    Kind.CMP_GT: lambda a, b: np.where(a > b, -1, 0),
    Kind.AND: np.bitwise_and,
    Kind.OR: np.bitwise_or,
    Kind.XOR: np.bitwise_xor,
    Kind.AND_NOT: lambda a, b: a & ~b,
}
