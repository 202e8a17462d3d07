"""Accumulator to output value: multiply, shift, round, exactly as the NPU does.

Invariant: every result is exact. Most operations run in float64, which is exact where it matters: a
product below 2**53 is exact, and a larger one can only belong to a value that is clamped anyway; where
that argument does not hold the same formula runs on integers.

A scale is (multiplier m, shift n) and stands for m / 2**n. One rounding: floor((v*m + 2**(n-1)) >> n).
TFLite's double rounding for n > 31: first floor((v*m + 2**30) >> 31), then by n - 31 bits with
halves away from zero.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import Rounding
from npu_memplan.ethosu.stream.isa_u85 import ScaleRounding

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
    def of(
        multiplier: int, shift: int, rounding: Rounding | ScaleRounding = Rounding.TFL, first: int = _FIRST
    ) -> Scale:
        """One scale for all channels."""
        return Scale(np.array([multiplier], np.int64), np.array([shift], np.int64), rounding, first)

    @property
    def is_identity(self) -> bool:
        return bool(np.all(self.multiplier == 1) and np.all(self.shift == 0))

    def exact(self, value: Any) -> Int64:
        """`value` (integers, channels last) rescaled, for any magnitude; clipped to 62 bits."""
        v = np.asarray(value, np.int64)
        m, n = np.broadcast_arrays(self.multiplier, self.shift)
        result: Int64
        if int(np.abs(v).max(initial=0)) * int(m.max(initial=0)) < 1 << 62:
            result = self._shifted(v * m, n)
        else:
            exact = self._shifted(v.astype(object) * m.astype(object), n.astype(object))  # Python's integers
            result = np.clip(exact, -(1 << 62), 1 << 62).astype(np.int64)
        return result

    def _shifted(self, product: Any, n: Any) -> Any:
        """`product` / 2**n, rounded."""
        if self.rounding is Rounding.TRUNCATE:
            return np.where(product < 0, -(-product >> n), product >> n)
        if self.rounding is Rounding.NATURAL:
            return (product + _half(n)) >> n
        if isinstance(self.rounding, ScaleRounding):
            return (product + self._half(product, n)) >> n
        first = np.minimum(n, self.first)
        result = (product + _half(first)) >> first
        rest = n - first
        if not rest.any():
            return result
        # halves away from zero: lower the half for negative values
        return (result + _half(rest) - ((result < 0) & (rest > 0))) >> rest

    def _half(self, product: Any, n: Any) -> Any:
        """What the roundings of Ethos-U85 alone add before the shift."""
        if self.rounding is ScaleRounding.TRUNCATE_TO_LOWER:
            return np.zeros_like(product)
        half = _half(n)
        if self.rounding is ScaleRounding.SYMMETRIC:  # halves away from zero
            return half - ((product < 0) & (n > 0))
        # Double, asymmetric: a first rounding to 31 bits that the sign moves, the rest up.
        early = np.where(n > _FIRST, 1 << (_FIRST - 1), 0)
        return half + np.where(product < 0, -early, early)


def _half(bits: Any) -> Any:
    """2**(bits-1), and 0 for no bits."""
    return np.where(bits > 0, np.ones_like(bits) << np.maximum(bits - 1, 0), 0)


class Clamped:
    """Rescale, add the zero point, clamp: from a block of sums to float64 integers, in place.

    `bias` and the scale's arrays have one element or one per channel; `reach` bounds |sum + bias|.
    """

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

    def tiled(self, times: int) -> Clamped:
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
            value = total if self._identity else self.scale.exact(total)
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
