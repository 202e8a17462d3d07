"""Functions of one 8-bit value as tables of 256 results, as TFLite's reference or real arithmetic has them.

Invariant: entry i is the stored result for the stored input `least + i`, already clamped to the type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...fixed_point import (
    LIMITS,
    divide_scales,
    high_mul,
    high_mul_16_truncated,
    input_radius,
    multiply_by_quantised,
    multiply_scales,
    round_half_away,
    rounding_shift,
)
from ...fixed_point import logistic as fixed_logistic
from ...fixed_point import tanh as fixed_tanh
from .operands import Arithmetic, LayerTensor
from .scaling import Scale, float32_value, quantise_multiplier

ROOT_BITS = 20
_INTEGER_BITS = 4  # of TFLite's logistic and tanh of int8


def _stored_values(tensor: LayerTensor) -> range:
    least, most = tensor.limits
    return range(least, most + 1)


def _values(tensor: LayerTensor) -> NDArray[np.int64]:
    """The meaning of the stored values, in steps of the scale."""
    return np.array(_stored_values(tensor), np.int64) - tensor.zero_point


def _clamp(value: int, out: LayerTensor) -> int:
    least, most = out.limits
    return min(max(value, least), most)


def _scale_values(values: NDArray[np.int64], scale: Scale) -> Any:
    return multiply_by_quantised(values, scale.multiplier, scale.exponent)


def _table(results: NDArray[np.int64], out: LayerTensor) -> tuple[int, ...]:
    return tuple(int(value) for value in np.clip(results, *out.limits))


def real_function(function: Callable[[float], float], ifm: LayerTensor, out: LayerTensor) -> tuple[int, ...]:
    """Any real function, rounded half away from zero."""
    results = []
    for stored in _stored_values(ifm):
        real = function(float32_value(ifm.scale) * (stored - ifm.zero_point)) / float32_value(out.scale)
        rounded = math.floor(abs(real) + 0.5) * (1 if real >= 0 else -1) if math.isfinite(real) else 1 << 30
        results.append(_clamp(rounded + out.zero_point, out))
    return tuple(results)


def float_function(
    function: Callable[[NDArray[Any]], NDArray[Any]], ifm: LayerTensor, out: LayerTensor
) -> tuple[int, ...]:
    """A function of float32 as frameworks compute it: halves, which straight lines have many of, to even."""
    real = function(_values(ifm).astype(np.float32) * np.float32(ifm.scale))
    return _table(np.rint(real.astype(np.float32) / np.float32(out.scale)).astype(np.int64) + out.zero_point, out)


def sigmoid(ifm: LayerTensor, out: LayerTensor, arithmetic: Arithmetic = Arithmetic.TFLITE) -> tuple[int, ...]:
    """1 / (1 + exp(-x)); TFLite of int8 in fixed point with the scale 1/256 from -128 on, whatever `out` says."""
    if arithmetic is Arithmetic.TFLITE and ifm.dtype == "int8" and out.zero_point == -128:
        return sigmoid_int8(ifm)
    if arithmetic is Arithmetic.TFLITE and ifm.dtype == "uint8":
        return float32_function(_logistic_float32, ifm, out)
    return real_function(lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0, ifm, out)


def _logistic_float32(x: float) -> float:
    exponential = np.float32(math.exp(-x) if x > -80 else math.inf)
    return float(np.float32(1) / (np.float32(1) + exponential))


def tanh(ifm: LayerTensor, out: LayerTensor, arithmetic: Arithmetic = Arithmetic.TFLITE) -> tuple[int, ...]:
    """tanh(x); TFLite of int8 in fixed point with the scale 1/128 around 0, whatever `out` says."""
    if arithmetic is Arithmetic.TFLITE and ifm.dtype == "int8":
        return tanh_int8(ifm)
    if arithmetic is Arithmetic.TFLITE and ifm.dtype == "uint8":
        return float32_function(math.tanh, ifm, out)
    return real_function(math.tanh, ifm, out)


def sigmoid_int8(ifm: LayerTensor) -> tuple[int, ...]:
    """The reference's logistic of int8."""
    return _fixed_point(ifm, lambda x: rounding_shift(fixed_logistic(x, _INTEGER_BITS), 23) - 128)


def tanh_int8(ifm: LayerTensor) -> tuple[int, ...]:
    """The reference's hyperbolic tangent of int8."""
    return _fixed_point(ifm, lambda x: rounding_shift(fixed_tanh(x, _INTEGER_BITS), 24))


def _fixed_point(ifm: LayerTensor, function: Callable[[NDArray[np.int64]], Any]) -> tuple[int, ...]:
    """`function` of int8 values as fixed point with 4 integer bits; beyond these, the least or the largest value."""
    fraction, shift = math.frexp(float32_value(ifm.scale) * (1 << (31 - _INTEGER_BITS)))
    multiplier, values = round_half_away(fraction * (1 << 31)), _values(ifm)
    radius = input_radius(_INTEGER_BITS, shift)
    least, most = LIMITS["int8"]
    inner = function(multiply_by_quantised(np.clip(values, -radius, radius), multiplier, shift))
    results = np.where(values <= -radius, least, np.where(values >= radius, most, np.clip(inner, least, most)))
    return tuple(int(value) for value in results)


def exponential_table(
    ifm: LayerTensor, out: LayerTensor, arithmetic: Arithmetic = Arithmetic.TFLITE
) -> tuple[int, ...]:
    """exp(x); TFLite in float32."""
    made = real_function if arithmetic is Arithmetic.REAL else float32_function
    return made(lambda x: math.exp(x) if x < 80 else math.inf, ifm, out)


def float32_function(function: Callable[[float], float], ifm: LayerTensor, out: LayerTensor) -> tuple[int, ...]:
    """A function of float32 as LiteRT fills its tables: times 1/scale in float32, halves away from zero."""
    real = np.float32(ifm.scale) * _values(ifm).astype(np.float32)
    results = np.array([function(x) for x in real.tolist()], np.float32) * (np.float32(1) / np.float32(out.scale))
    least, most = out.limits
    limited = np.clip(results.astype(float), least - out.zero_point - 1, most - out.zero_point + 1)
    return _table(np.array([round_half_away(x) for x in limited.tolist()]) + out.zero_point, out)


def rsqrt_table(ifm: LayerTensor, out: LayerTensor, arithmetic: Arithmetic = Arithmetic.TFLITE) -> tuple[int, ...]:
    """1 / sqrt(x); TFLite: the root with 20 fraction bits, then rescaled. Where there is none, the largest value."""
    if arithmetic is Arithmetic.REAL:
        return real_function(lambda x: 1 / math.sqrt(x) if x > 0 else math.inf, ifm, out)
    scale = quantise_multiplier(1 / float32_value(np.sqrt(np.float32(ifm.scale)) * np.float32(out.scale)))
    values = _values(ifm)
    roots = np.floor((1 << ROOT_BITS) / np.sqrt(np.maximum(values, 1)) + 0.5).astype(np.int64)
    results = multiply_by_quantised(roots, scale.multiplier, scale.exponent - ROOT_BITS) + out.zero_point
    return _table(np.where(values > 0, results, out.limits[1]), out)


def leaky_relu(
    ifm: LayerTensor, out: LayerTensor, alpha: float, arithmetic: Arithmetic = Arithmetic.TFLITE
) -> tuple[int, ...]:
    """x, or alpha * x below zero; TFLite: by two fixed-point multipliers."""
    if arithmetic is Arithmetic.REAL:
        return float_function(lambda x: np.where(x >= 0, x, np.float32(alpha) * x), ifm, out)
    single = ifm.dtype == "uint8"  # LiteRT's
    below = multiply_scales(float32_value(ifm.scale), float32_value(alpha), single=single)
    identity = quantise_multiplier(divide_scales(float32_value(ifm.scale), float32_value(out.scale), single=single))
    slope = quantise_multiplier(abs(divide_scales(below, float32_value(out.scale), single=single)))
    values, sign = _values(ifm), -1 if alpha < 0 else 1  # of a negative slope the reference rounds the size
    scaled = np.where(values >= 0, _scale_values(values, identity), sign * _scale_values(values, slope))
    return _table(scaled + out.zero_point, out)


def hard_swish(ifm: LayerTensor, out: LayerTensor, arithmetic: Arithmetic = Arithmetic.TFLITE) -> tuple[int, ...]:
    """x * relu6(x + 3) / 6; TFLite: in 16-bit fixed point."""
    if arithmetic is Arithmetic.REAL:
        return float_function(lambda x: x * np.clip(x + 3, 0, 6) / np.float32(6), ifm, out)
    high_resolution = float32_value(np.float32(np.float32(1.0 / 128.0) * np.float32(ifm.scale)))
    output = quantise_multiplier(high_resolution / float32_value(out.scale))
    reluish = quantise_multiplier(high_resolution / float32_value(np.float32(3.0 / 32768.0)))
    values = _values(ifm) * 128
    before_shift = high_mul(values, _to_16_bits(output.multiplier), 15)
    gate = values
    if reluish.exponent > 0:
        gate = np.clip(gate << (reluish.exponent - 1), *LIMITS["int16"])
    gate = high_mul(gate, _to_16_bits(reluish.multiplier), 15)
    if reluish.exponent > 0:
        gate = np.clip(gate << 1, *LIMITS["int16"])
    gate = (_shift_word(gate, max(-reluish.exponent, 0)) + (1 << 15)) >> 1
    product = high_mul_16_truncated(gate, before_shift)
    return _table(_shift_word(product << max(output.exponent, 0), max(-output.exponent, 0)) + out.zero_point, out)


def _shift_word(value: NDArray[np.int64], exponent: int) -> NDArray[np.int64]:
    """TFLite's rounding shift of 16 bits: its mask of more bits than these has all of them, and rounds away from 0."""
    return rounding_shift(value, exponent) if exponent < 16 else np.where(value < 0, -1, 1)


def _to_16_bits(multiplier: int) -> int:
    """A 32-bit multiplier rounded to 16 bits."""
    return 32767 if multiplier >= (1 << 31) - 1 - (1 << 15) else (multiplier + (1 << 15)) >> 16
