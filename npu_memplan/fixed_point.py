"""The arithmetic of TFLite's quantised multipliers on numbers known when compiling, for host operators and lowering.

Invariant: pure; the NPU model keeps its own, so that the two check each other. The same arithmetic as TIR, for the host
at run time, is in `frontend.host_ops.tir`. Every step rounds and saturates as the reference's does. Functions take
int64 arrays. Samples of interpolated tables are those of the reference, in float32. Every function equals the
reference's, including which products are rounded to float32 on the way. Scales are float32 in the file; they come here
as Python floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import RefusalError

IntArray = Any  # an int64 array, or a scalar of one
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (INT32_MIN, INT32_MAX)}


def to_float32(value: float) -> Any:
    """`value` rounded to float32, to compute on in float32."""
    return np.float32(value)


def multiply_scales(first: float, second: float, *, single: bool) -> float:
    """A product of scales, in float32 where `single`, else in double precision."""
    return float(to_float32(first) * to_float32(second)) if single else first * second


def divide_scales(dividend: float, divisor: float, *, single: bool) -> float:
    """A ratio of scales: `single` as LiteRT's kernels of activations and DIV have it, in float32, which moves ties;
    else in double precision, as tflite-micro's have it.
    """
    return float(to_float32(dividend) / to_float32(divisor)) if single else dividend / divisor


def round_half_away(value: float) -> int:
    """C's round(): to nearest, halves away from zero."""
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)


class ScaleError(RefusalError):
    """A scale cannot be applied in 32-bit fixed point."""


def quantise_multiplier(real: float) -> tuple[int, int]:
    """TFLite's QuantizeMultiplier: 31 fraction bits, left shift; 0 below 2^-32, `ScaleError` from 2^31 up."""
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

    def quantise(value: float) -> int:
        return zero_point + round_half_away(float(to_float32(value) / to_float32(scale)))

    if activation == 1:
        return max(low, quantise(0.0)), high
    if activation == 2:
        return max(low, quantise(-1.0)), min(high, quantise(1.0))
    if activation == 3:
        return max(low, quantise(0.0)), min(high, quantise(6.0))
    return low, high


def input_radius(integer_bits: int, left_shift: int) -> int:
    """Largest |input| that does not leave a fixed-point format with `integer_bits` of 31."""
    return math.floor(((1 << integer_bits) - 1) * float(1 << (31 - integer_bits)) / math.ldexp(1.0, left_shift))


def largest_sums(weights: npt.NDArray[Any], bias: npt.NDArray[np.int64], largest_input: int) -> IntArray:
    """The magnitudes that sums can reach: `weights` have a row for each output, no input is above `largest_input`."""
    magnitudes = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(axis=1)
    return magnitudes * largest_input + np.abs(bias)


def largest_sum(weights: npt.NDArray[Any], bias: npt.NDArray[np.int64], largest_input: int) -> int:
    """The greatest of `largest_sums`."""
    return int(largest_sums(weights, bias, largest_input).max(initial=0))


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
    return rounding_shift(high_mul(wrap_int32(shifted), multiplier), max(-shift, 0))


BILINEAR_BITS = 10


def bilinear_place(index: int, size: int, out_size: int, *, align: bool, centers: bool) -> int:
    """The place of an output element along an axis of RESIZE_BILINEAR, in the input, with ten fraction bits.

    The step is rounded: the last places may lie beyond the input, where tflite-micro reads all the same.
    """
    first, last = (size - 1, out_size - 1) if align and out_size > 1 else (size, out_size)
    step = ((first << BILINEAR_BITS) + last // 2) // max(last, 1)
    return index * step + (step // 2 - (1 << (BILINEAR_BITS - 1)) if centers else 0)


def joined_uint8(part: tuple[float, int], whole: tuple[float, int]) -> list[int]:
    """The result of each of 256 values of an input of CONCATENATION as LiteRT computes it, in float32."""
    scale = to_float32(part[0]) * (to_float32(1) / to_float32(whole[0]))
    values = np.arange(256).astype(np.float32) * scale + to_float32(-part[1]) * scale
    return [min(max(round_half_away(value) + whole[1], 0), 255) for value in values.tolist()]


def wrap_int32(value: Any) -> IntArray:
    """The low 32 bits as a signed number."""
    return np.asarray(value, np.int64).astype(np.int32).astype(np.int64)


def saturate_int32(value: Any) -> IntArray:
    """Limited to the range of int32."""
    return np.clip(np.asarray(value, np.int64), INT32_MIN, INT32_MAX)


ROOT_HALF = 1518500250  # the square root of 1/2 with 31 fraction bits
_EXP_STEPS = (  # (exponent e, exp(-2^e) with 31 fraction bits)
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242),
)  # fmt: skip
EXP_MINUS_EIGHTH = 1895147668  # exp(-1/8)
ONE_THIRD = 715827883


def exp_steps(integer_bits: int, bits: int = 31) -> list[tuple[int, int]]:
    """(bit of the remainder, multiplier) of the barrel shifter of `exp_on_negative`; `bits` is 15 for int16 numbers."""
    steps = [(bits - integer_bits + e, m) for e, m in _EXP_STEPS if integer_bits > e]
    return steps if bits == 31 else [(bit, rounded_to_16_bits(m)) for bit, m in steps]


def rounded_to_16_bits(constant: int) -> int:
    """A constant of 32 bits as one of 16, halves away from zero."""
    return int(rounding_shift(constant, 16))


def exp_on_negative(raw: Any, integer_bits: int) -> IntArray:
    """exp(a) with 31 fraction bits, for a <= 0 given with `31 - integer_bits` fraction bits."""
    a = np.asarray(raw, np.int64)
    quarter = 1 << (31 - integer_bits - 2)
    within = (a & (quarter - 1)) - quarter
    result = _exp_quarter(saturate_int32(within << integer_bits))
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


def reciprocal_one_plus(a: IntArray, subtract_one: bool) -> IntArray:
    """1/(1+a), or (1-a)/(1+a), for a in [0, 1), all with 31 fraction bits (three Newton steps)."""
    half_denominator = (a + INT32_MAX + 1) >> 1
    x = 1515870810 + high_mul(half_denominator, -1010580540)  # 48/17, -32/17 with 29 fraction bits
    for _ in range(3):
        product = high_mul(half_denominator, x)
        x = x + saturate_int32(high_mul(x, (1 << 29) - product) << 2)
    if subtract_one:
        return saturate_int32((x - (1 << 29)) << 2)
    return saturate_int32(x << 1)


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


_STEPS = 512
_RANGE = 65535
SOFTMAX_UNIT = 10.0 / 65535.0  # differences in [-65535, 0] stand for exponents in [-10, 0]


def softmax_tables() -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """exp(x) for x from -10 to 0, and 1 / (1 + x) for x from 0 to 1, with 15 fraction bits."""
    unit = 2.0 / to_float32(_RANGE)
    exponential = interpolation_table(math.exp, 10.0 / to_float32(_RANGE), 32767, unit)
    return exponential, interpolation_table(lambda x: 1.0 / (1.0 + x), 1.0 / to_float32(_RANGE), -32768, unit)


def interpolation_table(
    curve: Callable[[float], float], scale: np.float32, zero_point: int, out_scale: np.float32
) -> npt.NDArray[np.int16]:
    """513 samples of `curve`, each lowered by half the interpolation error of its step (LiteRT's `LUTPopulate`)."""
    f = np.float32

    def sample_function(x: Any) -> Any:
        return f(curve(float(x)))

    first, last = scale * f(-32768 - zero_point), scale * f(32767 - zero_point)
    step = (last - first) / f(_STEPS)
    half_step = step / f(2)
    inverse = f(65536) / (out_scale * f(32767) - out_scale * f(-32768))
    values = []
    for i in range(_STEPS):
        here, middle, following = (
            sample_function(x) for x in (first + f(i) * step, first + f(i) * step + half_step, first + f(i + 1) * step)
        )
        rounded = _round(here * inverse)
        between = _round((following * inverse + rounded) / f(2))
        bias = _round((between - _round(middle * inverse)) / f(2))
        values.append(min(max(rounded - bias, -32768.0), 32767.0))
    values.append(min(max(_round(sample_function(last) * inverse), -32768.0), 32767.0))
    return np.array(values, np.float64).astype(np.int16)


def _round(value: Any) -> Any:
    """C's roundf()."""
    return np.float32(np.floor(value + np.float32(0.5)) if value >= 0 else np.ceil(value - np.float32(0.5)))
