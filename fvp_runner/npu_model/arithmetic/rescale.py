"""Accumulator to output value, exactly as the NPU does: multiply, shift, round, and activations by table.

Invariant: every result is exact. Most operations run in float64, which is exact where it matters: a product below 2**53
is exact, and a larger one can only belong to a value that is clamped anyway; where that argument does not hold the same
formula runs on integers. Tanh and sigmoid are integer arithmetic only, identical to TFLite's 16-bit reference
functions.

A scale is (multiplier m, shift n) and stands for m / 2**n. One rounding: floor((v*m + 2**(n-1)) >> n). TFLite's double
rounding for n > 31: first floor((v*m + 2**30) >> 31), then by n - 31 bits with halves away from zero. The 256-entry
table of the sigmoid is generated: each entry is the sigmoid in steps of 1/24 as a Q16 number, lowered by half of what
linear interpolation would be too high in the middle between it and the next entry.
"""

from __future__ import annotations

import functools
import math
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import Rounding, ScaleRounding, TableKind

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

_FIRST = 31  # bits of the first of two roundings
_EXACT = 2.0**51  # a margin below 2**53 for the added half
# Makes halves away from zero into plain nearest: too small to move any other value of < 2**20 steps.
_AWAY = 1.0 + 2.0**-40


@dataclass(frozen=True, slots=True)
class Scale:
    """Multipliers and shifts, one for each channel or one for all (arrays of one element)."""

    multiplier: Int64
    shift: Int64
    rounding: Rounding | ScaleRounding
    first: int = _FIRST  # bits of the first of two roundings

    @staticmethod
    def single_scale(
        multiplier: int, shift: int, rounding: Rounding | ScaleRounding = Rounding.TFL, first: int = _FIRST
    ) -> Scale:
        """One scale for all channels."""
        return Scale(np.array([multiplier], np.int64), np.array([shift], np.int64), rounding, first)

    @property
    def is_identity(self) -> bool:
        return bool(np.all(self.multiplier == 1) and np.all(self.shift == 0))

    def rescale_exact(self, value: Any) -> Int64:
        """`value` (integers, channels last) rescaled, for any magnitude; clipped to 62 bits."""
        v = np.asarray(value, np.int64)
        m, n = np.broadcast_arrays(self.multiplier, self.shift)
        result: Int64
        if int(np.abs(v).max(initial=0)) * int(m.max(initial=0)) < 1 << 62:
            result = self._shift_product(v * m, n)
        else:
            exact = self._shift_product(v.astype(object) * m.astype(object), n.astype(object))  # Python's integers
            result = np.clip(exact, -(1 << 62), 1 << 62).astype(np.int64)
        return result

    def _shift_product(self, product: Any, n: Any) -> Any:
        """`product` / 2**n, rounded."""
        if self.rounding is Rounding.TRUNCATE:
            return np.where(product < 0, -(-product >> n), product >> n)
        if self.rounding is Rounding.NATURAL:
            return (product + _half_unit(n)) >> n
        if isinstance(self.rounding, ScaleRounding):
            return (product + self._rounding_term(product, n)) >> n
        first = np.minimum(n, self.first)
        result = (product + _half_unit(first)) >> first
        rest = n - first
        if not rest.any():
            return result
        # halves away from zero: lower the half for negative values
        return (result + _half_unit(rest) - ((result < 0) & (rest > 0))) >> rest

    def _rounding_term(self, product: Any, n: Any) -> Any:
        """The number that the roundings of Ethos-U85 alone add before the shift."""
        if self.rounding is ScaleRounding.TRUNCATE_TO_LOWER:
            return np.zeros_like(product)
        half = _half_unit(n)
        if self.rounding is ScaleRounding.SYMMETRIC:  # halves away from zero
            return half - ((product < 0) & (n > 0))
        # Double, asymmetric: a first rounding to 31 bits that the sign moves, the rest up.
        early = np.where(n > _FIRST, 1 << (_FIRST - 1), 0)
        return half + np.where(product < 0, -early, early)


def _half_unit(bits: Any) -> Any:
    """2**(bits-1), and 0 for no bits."""
    return np.where(bits > 0, np.ones_like(bits) << np.maximum(bits - 1, 0), 0)


class Clamped:
    """Rescale, add the zero point, clamp a block of sums, in place; `reach` bounds |sum + bias|."""

    __slots__ = (
        "_first",
        "_half",
        "_identity",
        "_offset",
        "_second",
        "bias",
        "exact",
        "high",
        "low",
        "scale",
        "zero_point",
    )

    def __init__(self, scale: Scale, bias: Int64 | None, zero_point: int, low: int, high: int, reach: float) -> None:
        self.scale, self.bias, self.zero_point, self.low, self.high = scale, bias, zero_point, low, high
        self._identity = scale.is_identity
        m = scale.multiplier.astype(np.float64)
        n = scale.shift
        span = max(abs(low - zero_point), abs(high - zero_point)) + 2.0
        in_range = float((span * np.exp2(n.astype(np.float64))).max(initial=0))
        reached = float(reach * m.max(initial=0))
        small = bias is None or float(np.abs(bias).max(initial=0)) < _EXACT
        plain = scale.rounding is Rounding.TFL or scale.rounding is Rounding.NATURAL
        plain &= scale.first == _FIRST
        self.exact = plain and min(in_range, reached) < _EXACT and reach < _EXACT and small
        two_steps = scale.rounding is Rounding.TFL and bool((n > _FIRST).any())
        first = np.minimum(n, _FIRST) if scale.rounding is Rounding.TFL else n
        self._first = m * np.exp2(-first.astype(np.float64))
        self._half: Any = np.where(n > 0, 0.5, 0.0) if (n == 0).any() else 0.5
        self._second: Float64 | None = None
        if two_steps:
            self._second = np.where(n > _FIRST, np.exp2((first - n).astype(np.float64)) * _AWAY, 1.0)
        # The bias can be multiplied beforehand when every product stays exact.
        self._offset: Any = None
        if bias is not None:
            folded = 2 * reached < _EXACT and float((np.abs(bias) * m).max(initial=0)) < _EXACT
            if folded:
                self._half = self._half + bias * self._first
            else:
                self._offset = bias.astype(np.float64)

    def repeat_pixels(self, times: int) -> Clamped:
        """The same for rows of `times` pixels at once."""
        if times == 1:
            return self
        other = copy(self)
        for name in Clamped.__slots__:
            value = getattr(self, name)
            if isinstance(value, np.ndarray) and value.size > 1:
                setattr(other, name, np.tile(value, times))
        return other

    def __call__(self, sums: NDArray[Any], out: Float64 | None = None) -> NDArray[Any]:
        """`sums` [.., channels] as clamped integers: in `out`, of the same shape, where this is `exact`, else int64."""
        if out is None or not self.exact:
            total = sums.astype(np.int64)
            if self.bias is not None:
                total = total + self.bias
            value = total if self._identity else self.scale.rescale_exact(total)
            return np.clip(value + self.zero_point, self.low, self.high)
        if self._offset is not None:
            np.add(sums, self._offset, out=out)
            np.multiply(out, self._first, out=out)
        else:
            np.multiply(sums, self._first, out=out)
        np.add(out, self._half, out=out)
        np.floor(out, out=out)
        if self._second is not None:
            np.multiply(out, self._second, out=out)
            np.rint(out, out=out)
        if self.zero_point:
            np.add(out, self.zero_point, out=out)
        np.maximum(out, self.low, out=out)
        np.minimum(out, self.high, out=out)
        return out


_STEPS = 24  # table entries per unit of the argument
_LAST = 255


@functools.cache
def sigmoid_table() -> Int64:
    """256 Q16 values of the sigmoid at 0, 1/24, 2/24, ..."""

    def sigmoid(step: float) -> float:
        return 1 / (1 + math.exp(-step / _STEPS))

    entries = []
    for i in range(_LAST):
        excess = (sigmoid(i) + sigmoid(i + 1)) / 2 - sigmoid(i + 0.5)
        entries.append(math.floor(65536 * (sigmoid(i) - excess / 2) + 0.5))
    return np.array([*entries, 65535], np.int64)


def _interpolate_slope(magnitude: Int64, bits: int, saturated: int) -> Int64:
    table = sigmoid_table()
    index = np.minimum(magnitude >> bits, _LAST)
    low = table[index]
    high = table[np.minimum(index + 1, _LAST)]
    value = (low << bits) + (magnitude & ((1 << bits) - 1)) * (high - low)
    return np.where(index >= _LAST, saturated, value)


def sigmoid(value: Int64) -> Int64:
    """Sigmoid of `value` / (3 * 4096) as a Q15 number."""
    result = _interpolate_slope(np.abs(value), 9, 0x7FFF << 10)
    return np.where(value >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1) >> 10


def tanh(value: Int64) -> Int64:
    """Hyperbolic tangent of `value` / (3 * 4096) as a Q15 number."""
    result = _interpolate_slope(np.abs(value), 8, 0xFFFF << 8)
    half, rounding = 1 << 23, 1 << 7
    return np.where(value >= 0, result - half + rounding, half - result + rounding - 1) >> 8


def look_up_16(table: Int64, value: Int64) -> Int64:
    """512 words `slope << 16 | base` (both signed), interpolated at a 16-bit `value`."""
    result: Int64 = (_interpolate_16(table, value) + 64) >> 7
    return result


def _interpolate_16(table: Int64, value: Int64) -> Int64:
    """The same with 7 bits of fraction: int32 results, as TOSA's TABLE of int16 has them."""
    entry = table[(value + 32768) >> 7]
    base = ((entry & 0xFFFF) ^ 0x8000) - 0x8000
    result: Int64 = (base << 7) + (entry >> 16) * (value & 127)
    return result


def look_up(kind: TableKind, table: NDArray[np.uint8], value: Int64) -> Int64:
    """The value that a table of Ethos-U85 holds for each value, which is in the range of its index already."""
    if kind is TableKind.U8_U8:
        return table[value].astype(np.int64)
    entries = _ENTRIES.get(kind)
    if entries is not None:
        found: Int64 = table.view(entries)[value + 128].astype(np.int64)
        return found
    words = table.view("<i4").astype(np.int64)
    if kind is TableKind.S16_S16:
        return look_up_16(words, value)
    if kind is TableKind.S16_S32:
        return _interpolate_16(words, value)
    return _look_up_curve(words, value, kind is TableKind.SIGMOID)


_ENTRIES: dict[TableKind, np.dtype[Any]] = {
    TableKind.S8_S8: np.dtype("i1"),
    TableKind.S8_S16: np.dtype("<i2"),
    TableKind.S8_S32: np.dtype("<i4"),
}


def _look_up_curve(words: Int64, value: Int64, is_sigmoid: bool) -> Int64:
    """Sigmoid or tanh from 512 words `slope << 16 | base`, steps of which are 2**9 or 2**8 wide; results in Q15."""
    bits = 9 if is_sigmoid else 8
    entry = words[np.clip(value >> bits, -256, 255) + 256]
    base = ((entry & 0xFFFF) ^ 0x8000) - 0x8000
    part = np.where(np.abs(value >> bits) > 256, 0, value & ((1 << bits) - 1))
    line = ((base + (0x8000 if is_sigmoid else 0)) << bits) + (entry >> 16) * part
    shift = bits + is_sigmoid
    downwards = (value < 0) & (value >> bits > -256)  # halves of what is not saturated
    result: Int64 = (line + (1 << (shift - 1)) - downwards) >> shift
    return np.clip(result, -32768, 32767)
