"""TFLite's fixed-point arithmetic on numbers known when compiling.

Invariant: every function equals the reference's, including which products are rounded to
float32 on the way. Scales are float32 in the file; they come here as Python floats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

IntArray = Any  # an int64 array, or a scalar of one
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
ROOT_HALF = 1518500250  # the square root of 1/2 with 31 fraction bits
LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (INT32_MIN, INT32_MAX)}


def f32(value: float) -> Any:
    """`value` rounded to float32, to compute on in float32."""
    return np.float32(value)


def round_half_away(value: float) -> int:
    """C's round(): to nearest, halves away from zero."""
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """`real` as (multiplier with 31 fraction bits in [2^30, 2^31), shift); positive shifts left."""
    if real == 0.0:
        return 0, 0
    fraction, shift = math.frexp(real)
    multiplier = round_half_away(fraction * (1 << 31))
    if abs(multiplier) == 1 << 31:
        multiplier //= 2
        shift += 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def activation_range(activation: int, scale: float, zero_point: int, dtype: str) -> tuple[int, int]:
    """Clamp range of a fused activation (0 none, 1 relu, 2 relu_n1_to_1, 3 relu6), quantised."""
    low, high = LIMITS[dtype]

    def quantized(value: float) -> int:
        return zero_point + round_half_away(float(f32(value) / f32(scale)))

    if activation == 1:
        return max(low, quantized(0.0)), high
    if activation == 2:
        return max(low, quantized(-1.0)), min(high, quantized(1.0))
    if activation == 3:
        return max(low, quantized(0.0)), min(high, quantized(6.0))
    return low, high


def input_radius(integer_bits: int, left_shift: int) -> int:
    """Largest |input| that does not leave a fixed-point format with `integer_bits` of 31."""
    return math.floor(((1 << integer_bits) - 1) * float(1 << (31 - integer_bits)) / math.ldexp(1.0, left_shift))


# Vectorised: for tables over all values of an 8-bit input.


def high_mul(a: Any, b: Any) -> IntArray:
    """Saturating rounding doubling high multiply of int32 values."""
    return np.minimum((np.asarray(a, np.int64) * np.asarray(b, np.int64) + (1 << 30)) >> 31, INT32_MAX)


def rounding_shift(value: Any, exponent: int) -> IntArray:
    """Divide by 2^exponent, to nearest, halves away from zero."""
    value = np.asarray(value, np.int64)
    if exponent == 0:
        return value
    return (value + (1 << (exponent - 1)) - (value < 0)) >> exponent


def multiply_by_quantized(value: Any, multiplier: int, shift: int) -> IntArray:
    """`value * multiplier * 2^(shift - 31)` with TFLite's double rounding."""
    shifted = np.asarray(value, np.int64) << max(shift, 0)
    return rounding_shift(high_mul(wrap32(shifted), multiplier), max(-shift, 0))


def wrap32(value: Any) -> IntArray:
    """The low 32 bits as a signed number."""
    return np.asarray(value, np.int64).astype(np.int32).astype(np.int64)


def saturate32(value: Any) -> IntArray:
    """Limited to the range of int32."""
    return np.clip(np.asarray(value, np.int64), INT32_MIN, INT32_MAX)


_EXP_STEPS = (  # (exponent e, exp(-2^e) with 31 fraction bits)
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242),
)  # fmt: skip
EXP_MINUS_EIGHTH = 1895147668  # exp(-1/8)
ONE_THIRD = 715827883


def exp_steps(integer_bits: int) -> list[tuple[int, int]]:
    """(bit of the remainder, multiplier) of the barrel shifter of `exp_on_negative`."""
    fraction_bits = 31 - integer_bits
    return [(fraction_bits + e, m) for e, m in _EXP_STEPS if integer_bits > e]


def exp_on_negative(raw: Any, integer_bits: int) -> IntArray:
    """exp(a) with 31 fraction bits, for a <= 0 given with `31 - integer_bits` fraction bits."""
    a = np.asarray(raw, np.int64)
    quarter = 1 << (31 - integer_bits - 2)
    within = (a & (quarter - 1)) - quarter
    result = _exp_quarter(saturate32(within << integer_bits))
    remainder = within - a
    for bit, multiplier in exp_steps(integer_bits):
        result = np.where(remainder & (1 << bit), high_mul(result, multiplier), result)
    return np.where(a == 0, INT32_MAX, result)


def _exp_quarter(a: IntArray) -> IntArray:
    """exp on [-1/4, 0): four Taylor terms around -1/8."""
    x = a + (1 << 28)
    x2 = high_mul(x, x)
    x3 = high_mul(x2, x)
    x4 = high_mul(x2, x2)
    inner = high_mul(rounding_shift(x4, 2) + x3, ONE_THIRD) + x2
    return EXP_MINUS_EIGHTH + high_mul(EXP_MINUS_EIGHTH, x + rounding_shift(inner, 1))


def _rounding_half_sum(a: IntArray, b: int) -> IntArray:
    total = a + b
    # Truncating division, as in C: halves go away from zero.
    return np.sign(total) * ((np.abs(total) + 1) >> 1)


def reciprocal_one_plus(a: IntArray, subtract_one: bool) -> IntArray:
    """1/(1+a), or (1-a)/(1+a), for a in [0, 1), all with 31 fraction bits (three Newton steps)."""
    half_denominator = _rounding_half_sum(a, INT32_MAX)
    x = 1515870810 + high_mul(half_denominator, -1010580540)  # 48/17, -32/17 with 29 fraction bits
    for _ in range(3):
        product = high_mul(half_denominator, x)
        x = x + saturate32(high_mul(x, (1 << 29) - product) << 2)
    if subtract_one:
        return saturate32((x - (1 << 29)) << 2)
    return saturate32(x << 1)


def logistic(raw: Any, integer_bits: int) -> IntArray:
    """1/(1+exp(-a)) with 31 fraction bits."""
    a = np.asarray(raw, np.int64)
    positive = reciprocal_one_plus(exp_on_negative(-np.abs(a), integer_bits), subtract_one=False)
    result = np.where(a < 0, INT32_MAX - positive, positive)
    return np.where(a == 0, 1 << 30, result)


def tanh(raw: Any, integer_bits: int) -> IntArray:
    """tanh(a) with 31 fraction bits."""
    a = np.asarray(raw, np.int64)
    # exp(-2|a|): the same bits read with one integer bit more.
    magnitude = reciprocal_one_plus(exp_on_negative(-np.abs(a), integer_bits + 1), subtract_one=True)
    return np.where(a == 0, 0, np.where(a < 0, -magnitude, magnitude))
