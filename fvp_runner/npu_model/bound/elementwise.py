"""ELEMENTWISE: one or two inputs, element by element.

Invariant: both inputs are read before anything is written, so an operation may write over its own input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import ElementwiseMode, Rounding
from npu_memplan.ethosu.stream.isa_u85 import ScaleRounding

from ..arithmetic.rescale import Int64, Scale
from ..spec.elementwise import SCALED, ElementwiseSpec
from ..spec.layout import InputSpec
from ..spec.registers import Registers
from .memory import FeatureMapAccess, RegionMemory
from .output import OutputPath

Mode = ElementwiseMode
# The operand that is not rescaled is shifted by half of what TFLite shifts both by.
_INPUT_SHIFT = {1: 20, 2: 15}
_SUMS = {Mode.ADD: np.add, Mode.SUB: np.subtract, Mode.MUL: np.multiply}  # which are rescaled
_CHOICES = {Mode.MIN: np.minimum, Mode.MAX: np.maximum}


def bound_input(found: InputSpec | None, memory: RegionMemory, regs: Registers) -> FeatureMapAccess | None:
    """An input that is a map, on real memory."""
    if found is None or found.layout is None:
        return None
    return FeatureMapAccess(memory, regs, found.layout, found.shape, is_write=False)


class Elementwise:
    def __init__(self, spec: ElementwiseSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec = spec
        self.output = OutputPath(spec.output, memory, regs)
        bound = (bound_input(found, memory, regs) for found in spec.inputs)
        self.maps = [found for found in bound if found is not None]
        a, b = spec.first, spec.second or spec.first
        if spec.swap:
            a, b = b, a
        # Functions of one operand: value -> summand, tabulated for 8-bit operands.
        self._a = self._function(a, first=True)
        self._b = self._function(b, first=False)
        if spec.mode in SCALED:
            reach = self._reach(a, b)
            scale = Scale.of(*spec.ofm_scale, spec.output.rounding)
            self.output.rescale(scale, None, reach)

    def _reach(self, a: InputSpec, b: InputSpec) -> float:
        spec = self.spec
        extremes = []
        for operand, function in ((a, self._a), (b, self._b)):
            info = np.iinfo(operand.dtype)
            ends = np.array([int(info.min) - operand.zero_point, int(info.max) - operand.zero_point], np.int64)
            extremes.append(float(np.abs(function.exact(ends)).max()))
        return extremes[0] * extremes[1] if spec.mode is Mode.MUL else extremes[0] + extremes[1]

    def _function(self, operand: InputSpec, first: bool) -> _Operand:
        spec, dtype, zero = self.spec, operand.dtype, operand.zero_point
        if spec.mode not in (Mode.ADD, Mode.SUB) or dtype.itemsize == 4:
            return _Operand(dtype, zero, None, 0)
        if not spec.operand_mode:
            return _Operand(dtype, zero, Scale.of(*(spec.opa_scale if first else spec.opb_scale)), 0)
        shift = _INPUT_SHIFT[dtype.itemsize]
        if (spec.operand_mode == 1) == first:
            multiplier, right = spec.opa_scale
            return _Operand(dtype, zero, Scale.of(multiplier, min(right + shift, 63), spec.operand_rounding), shift)
        return _Operand(dtype, zero, None, shift - 1)

    def run(self) -> None:
        spec, output = self.spec, self.output
        for found in self.maps:
            found.load()
        first: NDArray[Any] = self.maps[0].array
        second: NDArray[Any] | None = None
        if spec.second is not None:
            is_scalar = spec.second.layout is None
            second = np.full((1, 1, 1), spec.second.scalar, np.int64) if is_scalar else self.maps[1].array
        step = output.rows_per_block
        if step < spec.output.height and not output.map.is_scratch:  # what is put is in memory at once
            first = first.copy()
            second = None if second is None else second.copy()
        for row in range(0, spec.output.height, step):
            a = first[row : row + step]
            b = second
            if b is not None and b.shape[0] > 1:
                b = b[row : row + step]
            shape = a.shape
            if spec.swap and b is not None:
                a, b = b, a
            self._block(row, a, b, shape)
        output.finish()

    def _block(self, row: int, a: NDArray[Any], b: NDArray[Any] | None, shape: tuple[int, ...]) -> None:
        mode, output = self.spec.mode, self.output
        x = self._a(a)
        if b is None:
            if mode is Mode.CLZ:
                output.put_values(row, leading_zeros(x))
            elif mode is Mode.ABS:
                output.put(row, np.abs(x))
            else:
                scaled = Scale.of(*self.spec.ofm_scale, self.spec.output.rounding).exact(x)
                output.put_values(row, np.where(x < 0, scaled, x))  # LRELU
            return
        y = self._b(b)
        if mode in _SUMS:
            output.put(row, np.broadcast_to(_SUMS[mode](x, y), shape))
        else:
            value = _CHOICES[mode](x, y) if mode in _CHOICES else self._shift(x, y)
            output.put_values(row, np.broadcast_to(value, shape))

    def _shift(self, x: Int64, y: Int64) -> Int64:
        by = np.clip(y, 0, 63)
        if self.spec.mode is Mode.SHL:
            room = (np.int64(1) << 62) >> by  # beyond this the result saturates anyway
            return np.clip(x, -room, room) << by
        return shifted_right(x, by, self.spec.output.rounding)


class _Operand:
    """What an operand contributes: ((value - zero point) << shift), rescaled. Tabulated for 8 bits."""

    def __init__(self, dtype: np.dtype[Any], zero: int, scale: Scale | None, shift: int) -> None:
        self.zero, self.scale, self.shift = zero, scale, shift
        self.table: Int64 | None = None
        if dtype.itemsize == 1:
            self.table = self.exact(np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64) - zero)

    def exact(self, value: Int64) -> Int64:
        """From the value without its zero point."""
        value = value << self.shift if self.shift else value
        return value if self.scale is None or self.scale.is_identity else self.scale.exact(value)

    def __call__(self, raw: NDArray[Any]) -> Int64:
        if self.table is not None and raw.itemsize == 1:
            return self.table[raw.view(np.uint8)]
        value = raw.astype(np.int64)
        if self.zero:
            value -= self.zero
        return self.exact(value)


def shifted_right(value: Int64, by: Int64, rounding: Rounding | ScaleRounding) -> Int64:
    """`value` / 2**by, rounded."""
    half = (np.int64(1) << by) >> 1
    if rounding is Rounding.TRUNCATE or rounding is ScaleRounding.TRUNCATE_TO_LOWER:
        half = np.zeros_like(half)
    elif rounding is Rounding.TFL:
        half = half - ((value < 0) & (by > 0))
    shifted: Int64 = (value + half) >> by
    return shifted


def leading_zeros(value: Int64) -> Int64:
    """Leading zero bits of 32-bit values; none for negative ones, 32 for 0."""
    _, exponent = np.frexp(np.maximum(value, 0).astype(np.float64))
    return np.where(value < 0, 0, 32 - exponent).astype(np.int64)
