"""Scales as TFLite's reference computes them, as the NPU's (multiplier, shift) registers want them.

Invariant: for every accumulator value the NPU's rescale of `Scale` equals TFLite's
MultiplyByQuantizedMultiplier of the same real number: the same doubles, the same rounding to 31
bits, `shift = 31 - exponent`. All functions are pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...fixed_point import ScaleError, divide_scales, multiply_scales
from ...fixed_point import quantise_multiplier as multiplier_and_shift
from ..stream.fields import ScaleWord


@dataclass(frozen=True, slots=True)
class Scale:
    """The real number `multiplier * 2**-shift`; multiplier is unsigned 32 bits, shift 0..63."""

    multiplier: int
    shift: int

    @property
    def exponent(self) -> int:
        """The shift to the left in TFLite's pair of a 31-bit multiplier and a shift."""
        return 31 - self.shift

    @property
    def register(self) -> int:
        """Value of OFM_SCALE/OPA_SCALE: the shift is above the multiplier."""
        return ScaleWord.SHIFT.word_with(self.shift) | ScaleWord.MULTIPLIER.word_with(self.multiplier)


UNITY = Scale(1, 0)  # leaves a value as it is


def float32_value(scale: float) -> float:
    """A quantisation scale as TFLite holds it: a float32, widened to double."""
    return float(np.float32(scale))


def quantise_multiplier(real: float) -> Scale:
    """TFLite's QuantizeMultiplier. Zero and values below 2**-32 become 0; `ScaleError` from 2**31 up."""
    if real < 0 or not math.isfinite(real):
        raise ScaleError(f"the scale {real!r} is no positive number; quantise the model again")
    multiplier, shift = multiplier_and_shift(real)
    return Scale(multiplier, 31 - shift)


def conv_scale(ifm: float, weight: float, ofm: float, *, single: bool = False) -> Scale:
    """Output scale of a convolution. `single`: the input scales are multiplied as float32.

    TFLite does that in uint8 convolutions, which have one multiplier (`GetQuantizedConvolutionMultipler`); multipliers
    of channels, and those of fully connected layers, are products of doubles.
    """
    product = multiply_scales(float32_value(ifm), float32_value(weight), single=single)
    return quantise_multiplier(product / float32_value(ofm))


def rounded_once(scale: Scale) -> Scale:
    """The same scale for 64-bit accumulators, rounded once; from 2**15 up results saturate."""
    if scale.shift < 16:
        return Scale(0x7FFF, 0)
    return Scale(min((scale.multiplier + (1 << 15)) >> 16, 0x7FFF), scale.shift - 16)


@dataclass(frozen=True, slots=True)
class AddScales:
    """Registers of an ADD/SUB: the operand with the smaller scale is multiplied, the other shifted."""

    operand: Scale  # OPA_SCALE
    ofm: Scale  # OFM_SCALE
    scaled: int  # operand scale mode of IFM_PRECISION: 1 = first operand goes through OPA_SCALE, 2 = second


_ADD_HEADROOM = {8: 20, 16: 15}  # bits that TFLite shifts operands to the left, by their width


def add_scales(first: float, second: float, ofm: float, bits: int = 8) -> AddScales:
    """Scales of ADD/SUB of 8 or 16 bits with the headroom that both operands have in TFLite."""
    headroom = _ADD_HEADROOM[bits]
    a, b = float32_value(first), float32_value(second)
    twice_max = 2 * max(a, b)
    operand = quantise_multiplier(min(a, b) / twice_max)
    # the hardware shifts nothing for the scaled operand: the headroom goes into its multiplier
    operand = Scale(operand.multiplier, operand.shift - headroom)
    out = quantise_multiplier(twice_max / ((1 << headroom) * float32_value(ofm)))
    return AddScales(operand, out, 1 if a < b else 2)


_SATURATING = Scale(1 << 9, 0)  # of 8 bits: whatever is not zero ends at a limit, and no product of two overflows


def mul_scale(first: float, second: float, ofm: float, bits: int = 8, *, single: bool = False) -> Scale:
    """Output scale of a product, `single`: in float32 as LiteRT; from 2**31 up products saturate."""
    factor = multiply_scales(float32_value(first), float32_value(second), single=single)
    real = divide_scales(factor, float32_value(ofm), single=single)
    return _SATURATING if bits == 8 and 2.0**31 <= real < math.inf else quantise_multiplier(real)


SQUASH_LIMIT = 1 << 16  # the least multiplier by which an int16 value can exceed 32 bits


def squash_scale(ifm: float) -> Scale:
    """The scale from stored int16 values to units of 1 / (3 * 4096), which sigmoid and tanh take; TFLite truncates
    it. From `SQUASH_LIMIT` on, TFLite's products are undefined.
    """
    real, shift = float32_value(ifm) * 4096.0 * 3.0, 0
    while real <= 32767.0 / 2.0 and shift <= 30:
        real, shift = 2.0 * real, shift + 1
    return Scale(min(int(real), 2**31 - 1), shift)


def reciprocal_scale(count: int) -> Scale:
    """1/count for averaging: exact to the last step for any sum the NPU accumulates."""
    bits = math.frexp(count - 1)[1]
    return Scale(((1 << (31 + bits)) + (1 << bits)) // count, 31 + bits)


def real_mean_scale(ifm: float, ofm: float, count: int) -> Scale:
    """Output scale of an average over `count` elements, to 31 bits."""
    return quantise_multiplier(float32_value(ifm) / (float32_value(ofm) * count))


def mean_scale(ifm: float, ofm: float, count: int) -> Scale:
    """Output scale of a MEAN over `count` elements: TFLite folds 1/count into the multiplier, truncating."""
    scale = quantise_multiplier(float32_value(ifm) / float32_value(ofm))
    adjust = min(count.bit_length() - 1, 32, 31 + scale.exponent)
    return Scale((scale.multiplier << adjust) // count, scale.shift + adjust)
