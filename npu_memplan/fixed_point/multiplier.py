"""Real factors as 31-bit multipliers and shifts, and products with them, as TFLite's reference computes them.

Invariant: every function equals the reference's, including which products are rounded to
float32 on the way. Scales are float32 in the file; they come here as Python floats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import RefusalError

IntArray = Any  # an int64 array, or a scalar of one
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (INT32_MIN, INT32_MAX)}


def f32(value: float) -> Any:
    """`value` rounded to float32, to compute on in float32."""
    return np.float32(value)


def multiply_scales(first: float, second: float, *, single: bool) -> float:
    """A product of scales, in float32 where `single`, else in double precision."""
    return float(f32(first) * f32(second)) if single else first * second


def divide_scales(dividend: float, divisor: float, *, single: bool) -> float:
    """A ratio of scales: `single` as LiteRT's kernels of activations and DIV have it, in float32, which moves ties;
    else in double precision, as tflite-micro's have it.
    """
    return float(f32(dividend) / f32(divisor)) if single else dividend / divisor


def round_half_away(value: float) -> int:
    """C's round(): to nearest, halves away from zero."""
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)


class ScaleError(RefusalError):
    """A scale cannot be applied in 32-bit fixed point."""


def quantise_multiplier(real: float) -> tuple[int, int]:
    """TFLite's QuantizeMultiplier: `real` as (multiplier with 31 fraction bits in [2^30, 2^31), shift).

    A positive shift is to the left. What is below 2^-32 becomes 0; `ScaleError` from 2^31 up.
    """
    if real == 0.0:
        return 0, 0
    fraction, shift = math.frexp(real)
    multiplier = round_half_away(fraction * (1 << 31))
    if abs(multiplier) == 1 << 31:
        multiplier //= 2
        shift += 1
    if shift > 31:
        raise ScaleError(f"the scale {real!r} is above 2**31, more than 32 bits can hold; quantise the model again")
    return (0, 0) if shift < -31 else (multiplier, shift)


def activation_range(activation: int, scale: float, zero_point: int, dtype: str) -> tuple[int, int]:
    """Clamp range of a fused activation (0 none, 1 relu, 2 relu_n1_to_1, 3 relu6), quantised."""
    low, high = LIMITS[dtype]

    def quantised(value: float) -> int:
        return zero_point + round_half_away(float(f32(value) / f32(scale)))

    if activation == 1:
        return max(low, quantised(0.0)), high
    if activation == 2:
        return max(low, quantised(-1.0)), min(high, quantised(1.0))
    if activation == 3:
        return max(low, quantised(0.0)), min(high, quantised(6.0))
    return low, high


def input_radius(integer_bits: int, left_shift: int) -> int:
    """Largest |input| that does not leave a fixed-point format with `integer_bits` of 31."""
    return math.floor(((1 << integer_bits) - 1) * float(1 << (31 - integer_bits)) / math.ldexp(1.0, left_shift))


# Vectorised: for tables over all values of an 8-bit input.


def high_mul(a: Any, b: Any, bits: int = 31) -> IntArray:
    """Saturating rounding doubling high multiply of int32 values; of int16 ones with `bits` 15."""
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    return np.minimum((product + (1 << (bits - 1))) >> bits, (1 << bits) - 1)


def high_mul_16_truncated(a: Any, b: Any) -> IntArray:
    """The same of int16 values, truncated towards zero instead of rounded."""
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    return np.minimum(np.sign(product) * (np.abs(product) >> 15), (1 << 15) - 1)


def rounding_shift(value: Any, exponent: int) -> IntArray:
    """Divide by 2^exponent, to nearest, halves away from zero."""
    value = np.asarray(value, np.int64)
    if exponent == 0:
        return value
    return (value + (1 << (exponent - 1)) - (value < 0)) >> exponent


def multiply_by_quantised(value: Any, multiplier: int, shift: int) -> IntArray:
    """`value * multiplier * 2^(shift - 31)` with TFLite's double rounding."""
    shifted = np.asarray(value, np.int64) << max(shift, 0)
    return rounding_shift(high_mul(wrap32(shifted), multiplier), max(-shift, 0))


def joined_uint8(part: tuple[float, int], whole: tuple[float, int]) -> list[int]:
    """What each of the 256 values of an input of CONCATENATION becomes; (scale, zero point) of input and output.

    LiteRT computes in float32, rounds the product before the sum, and the sum half away from zero.
    """
    scale = f32(part[0]) * (f32(1) / f32(whole[0]))
    values = np.arange(256).astype(np.float32) * scale + f32(-part[1]) * scale
    return [min(max(round_half_away(value) + whole[1], 0), 255) for value in values.tolist()]


def wrap32(value: Any) -> IntArray:
    """The low 32 bits as a signed number."""
    return np.asarray(value, np.int64).astype(np.int32).astype(np.int64)


def saturate32(value: Any) -> IntArray:
    """Limited to the range of int32."""
    return np.clip(np.asarray(value, np.int64), INT32_MIN, INT32_MAX)
