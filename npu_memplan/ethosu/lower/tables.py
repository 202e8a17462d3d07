"""Functions of one 8-bit value as tables of 256 results, as TFLite's reference or real arithmetic has them.

Invariant: entry i is the stored result for the stored input `least + i`, already clamped to the type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fixed import doubling_high_product, doubling_high_product_16, multiply_by_quantized, rounding_shift
from .scaling import Scale, double, quantise_multiplier
from .tensors import Arithmetic, LayerTensor

_ROOT_BITS = 20
_INT16 = (-(1 << 15), (1 << 15) - 1)


def _stored(tensor: LayerTensor) -> range:
    least, most = tensor.limits
    return range(least, most + 1)


def _clamped(value: int, out: LayerTensor) -> int:
    least, most = out.limits
    return min(max(value, least), most)


def real_function(function: Callable[[float], float], ifm: LayerTensor, out: LayerTensor) -> tuple[int, ...]:
    """Any real function, rounded half away from zero."""
    results = []
    for stored in _stored(ifm):
        real = function(double(ifm.scale) * (stored - ifm.zero_point)) / double(out.scale)
        rounded = math.floor(abs(real) + 0.5) * (1 if real >= 0 else -1) if math.isfinite(real) else 1 << 30
        results.append(_clamped(rounded + out.zero_point, out))
    return tuple(results)


def float_function(
    function: Callable[[NDArray[Any]], NDArray[Any]], ifm: LayerTensor, out: LayerTensor
) -> tuple[int, ...]:
    """A function of float32 as frameworks compute it: halves, which straight lines have many of, to even."""
    stored = np.array(_stored(ifm)) - ifm.zero_point
    real = function(stored.astype(np.float32) * np.float32(ifm.scale))
    rounded = np.rint(real.astype(np.float32) / np.float32(out.scale)).astype(np.int64)
    return tuple(_clamped(int(value) + out.zero_point, out) for value in rounded)


def sigmoid(ifm: LayerTensor, out: LayerTensor) -> tuple[int, ...]:
    """1 / (1 + exp(-x))."""
    return real_function(lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0, ifm, out)


def tanh(ifm: LayerTensor, out: LayerTensor) -> tuple[int, ...]:
    """Hyperbolic tangent."""
    return real_function(math.tanh, ifm, out)


def exponential(ifm: LayerTensor, out: LayerTensor) -> tuple[int, ...]:
    """exp(x), in float32 as the reference."""
    return real_function(lambda x: float(np.exp(np.float32(min(x, 80.0)))), ifm, out)


def rsqrt(ifm: LayerTensor, out: LayerTensor, arithmetic: Arithmetic = Arithmetic.TFLITE) -> tuple[int, ...]:
    """1 / sqrt(x); TFLite: the root with 20 fraction bits, then rescaled. Where there is none, the largest value."""
    if arithmetic is Arithmetic.REAL:
        return real_function(lambda x: 1 / math.sqrt(x) if x > 0 else math.inf, ifm, out)
    scale = quantise_multiplier(1 / double(np.sqrt(np.float32(ifm.scale)) * np.float32(out.scale)))
    scale = Scale(scale.multiplier, scale.shift + _ROOT_BITS)
    results = []
    for stored in _stored(ifm):
        value = stored - ifm.zero_point
        if value <= 0:
            results.append(out.limits[1])
            continue
        root = math.floor((1 << _ROOT_BITS) / math.sqrt(value) + 0.5)
        results.append(_clamped(multiply_by_quantized(root, scale) + out.zero_point, out))
    return tuple(results)


def leaky_relu(
    ifm: LayerTensor, out: LayerTensor, alpha: float, arithmetic: Arithmetic = Arithmetic.TFLITE
) -> tuple[int, ...]:
    """x, or alpha * x below zero; TFLite: by two fixed-point multipliers."""
    if arithmetic is Arithmetic.REAL:
        return float_function(lambda x: np.where(x >= 0, x, np.float32(alpha) * x), ifm, out)
    identity = quantise_multiplier(double(ifm.scale) / double(out.scale))
    slope = quantise_multiplier(double(ifm.scale) * double(alpha) / double(out.scale))
    results = []
    for stored in _stored(ifm):
        value = stored - ifm.zero_point
        scaled = multiply_by_quantized(value, identity if value >= 0 else slope)
        results.append(_clamped(scaled + out.zero_point, out))
    return tuple(results)


def hard_swish(ifm: LayerTensor, out: LayerTensor, arithmetic: Arithmetic = Arithmetic.TFLITE) -> tuple[int, ...]:
    """x * relu6(x + 3) / 6; TFLite: in 16-bit fixed point."""
    if arithmetic is Arithmetic.REAL:
        return float_function(lambda x: x * np.clip(x + 3, 0, 6) / np.float32(6), ifm, out)
    high_resolution = double(np.float32(np.float32(1.0 / 128.0) * np.float32(ifm.scale)))
    output = quantise_multiplier(high_resolution / double(out.scale))
    reluish = quantise_multiplier(high_resolution / double(np.float32(3.0 / 32768.0)))
    output_16, output_exponent = _to_16_bits(output.multiplier), 31 - output.shift
    reluish_16, reluish_exponent = _to_16_bits(reluish.multiplier), 31 - reluish.shift
    results = []
    for stored in _stored(ifm):
        value = (stored - ifm.zero_point) * 128
        before_shift = doubling_high_product(value, output_16, 15)
        gate = value
        if reluish_exponent > 0:
            gate = _saturated(gate << (reluish_exponent - 1))
        gate = doubling_high_product(gate, reluish_16, 15)
        if reluish_exponent > 0:
            gate = _saturated(gate << 1)
        elif reluish_exponent < 0:
            gate = rounding_shift(gate, -reluish_exponent)
        gate = (gate + (1 << 15)) >> 1
        product = doubling_high_product_16(gate, before_shift)
        results.append(_clamped(rounding_shift(product, -output_exponent) + out.zero_point, out))
    return tuple(results)


def _to_16_bits(multiplier: int) -> int:
    """A 32-bit multiplier rounded to 16 bits."""
    return 32767 if multiplier >= (1 << 31) - 1 - (1 << 15) else (multiplier + (1 << 15)) >> 16


def _saturated(value: int) -> int:
    return min(max(value, _INT16[0]), _INT16[1])
