"""RESCALE, and functions of one value as tables.

What TOSA's RESCALE computes, and the scales of NPU operations that compute the same.

Invariant: a scale is handed out only where its results are TOSA's: by the same formula, or because all pairs of 8-bit
operands were tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.lower.scaling import AddScales, Scale
from ...ethosu.reading.reader import RejectedError

_INT32 = (-(1 << 31), (1 << 31) - 1)

_OPERAND_BITS, _HEADROOM = 19, 20  # the NPU shifts an 8-bit operand that it does not multiply; what its multiplier has
_WORD_BITS = 14  # the same of 16 bits
_VALUES = np.arange(256, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Rescaling:
    """The numbers of a RESCALE: `(x - input_zero) * scale + output_zero`, rounded once or twice."""

    scales: tuple[Scale, ...]  # one, or one for each channel
    input_zero: int
    output_zero: int
    twice: bool

    @property
    def scale(self) -> Scale:
        """The only scale; `RejectedError` where there are several."""
        if len(self.scales) != 1:
            raise RejectedError("a scale for each channel is of a sum with weights only")
        return self.scales[0]

    def __call__(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """`values` rescaled, not yet narrowed."""
        moved, (multiplier, shift) = values - self.input_zero, (self.scale.multiplier, self.scale.shift)
        half = np.full_like(moved, 1 << (shift - 1))
        if self.twice and shift > 31:
            half += np.where(moved < 0, -(1 << 30), 1 << 30)
        result: NDArray[np.int64] = ((moved * multiplier + half) >> shift) + self.output_zero
        return result

    @property
    def left_shift(self) -> int | None:
        """The bits by which it shifts to the left and does nothing else; None where it does anything else."""
        multiplier, shift = self.scale.multiplier, self.scale.shift
        bits = multiplier.bit_length() - 1
        return bits - shift if multiplier == 1 << bits and bits >= shift and self.output_zero == 0 else None


@dataclass(frozen=True, slots=True)
class TosaSum:
    """ADD or SUB of two rescaled 8-bit operands, rescaled, with the types' least and largest values."""

    first: Rescaling
    second: Rescaling
    output: Rescaling
    subtract: bool
    limits: tuple[int, int]

    def npu_scales(self) -> AddScales | None:
        """Scales with which one operation of the NPU makes the same of all pairs of operands; None: there are none."""
        if self.limits[0] < -128:
            return self._shifted_alike()
        wanted = self._results(self.first(self._every(0)), self.second(self._every(1)), self.output.scale)
        for place, (shifted, scaled) in enumerate(((self.second, self.first), (self.first, self.second)), 1):
            by = shifted.left_shift
            if by is None or scaled.output_zero:
                continue
            less = by - _OPERAND_BITS
            ofm = Scale(self.output.scale.multiplier, self.output.scale.shift - less)
            for operand in _operands(Scale(scaled.scale.multiplier, scaled.scale.shift + less)):
                if not (0 <= ofm.shift < 64 and 0 <= operand.shift < 64):
                    continue
                made = [rescaled << _OPERAND_BITS for rescaled in (self._moved(0), self._moved(1))]
                made[place - 1] = _by_npu(self._moved(place - 1), operand)
                if np.array_equal(self._results(made[0], made[1], ofm), wanted):
                    return AddScales(operand, ofm, place)
        return None

    def _shifted_alike(self) -> AddScales | None:
        """Of 16 bits: both operands are shifted by as many bits, in TOSA and by the NPU."""
        by = self.first.left_shift
        if by is None or by != self.second.left_shift or by > _WORD_BITS:
            return None
        less = by - _WORD_BITS
        scale = self.output.scale
        return AddScales(Scale(1 << 30, 16), Scale(scale.multiplier, scale.shift - less), 2)

    def _every(self, place: int) -> NDArray[np.int64]:
        """All values of an operand, the second one's across."""
        values = _VALUES + self.limits[0]
        return values[:, None] if place == 0 else values[None, :]

    def _moved(self, place: int) -> NDArray[np.int64]:
        return self._every(place) - (self.first, self.second)[place].input_zero

    def _results(self, a: NDArray[np.int64], b: NDArray[np.int64], scale: Scale) -> NDArray[Any]:
        total = np.clip(a - b if self.subtract else a + b, *_INT32)
        made = Rescaling((scale,), 0, self.output.output_zero, self.output.twice)(total)
        return np.clip(made, *self.limits)


def _operands(scale: Scale) -> list[Scale]:
    """Scales of the NPU's multiplied operand that may do what `scale` says: rounded once where its shift allows it."""
    multiplier, shift = scale.multiplier, scale.shift
    found = [scale]
    while shift + _HEADROOM > 31 and shift > 0:
        multiplier, shift = multiplier >> 1, shift - 1
    if (multiplier, shift) != (scale.multiplier, scale.shift):
        found = [Scale(multiplier, shift), Scale(multiplier + 1, shift), scale]
    return found


def _by_npu(values: NDArray[np.int64], scale: Scale) -> NDArray[np.int64]:
    """An operand of a sum as the NPU multiplies it: with 20 bits of headroom, rounded twice by shifts above 31."""
    shift = min(scale.shift + _HEADROOM, 63)
    product = values * (scale.multiplier << _HEADROOM)
    first = min(shift, 31)
    half = product + ((1 << first) >> 1) >> first
    rest = shift - first
    if not rest:
        return half
    made: NDArray[np.int64] = half + (1 << (rest - 1)) - (half < 0) >> rest
    return made
