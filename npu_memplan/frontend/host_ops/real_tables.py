"""EXP, LOG, GELU, NEG, RELU_0_TO_1 and RELU_N1_TO_1 of 8 bits: tables, filled as LiteRT fills its own.

Invariant: a function is computed of float32 numbers and rounded once; what is no number is the least stored value.
"""

from __future__ import annotations

import math

import numpy as np

from ...fixed_point.multiplier import LIMITS, IntArray, f32, round_half_away
from .activation import store_table
from .common import EIGHT_BITS, require_same_type
from .operator import Lowering, lowering


def _gelu(x: float) -> float:
    return float(f32(0.5 * x) * f32(1 + f32(math.erf(x * math.sqrt(0.5)))))


def _gelu_by_tanh(x: float) -> float:
    inner = f32(math.sqrt(2 / math.pi)) * (f32(x) + f32(0.044715) * f32(x) * f32(x) * f32(x))
    return float(f32(0.5) * f32(x) * (f32(1) + f32(math.tanh(inner))))


def _logarithm(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _exponential(x: float) -> float:
    return math.exp(x) if x < 80 else math.inf


@lowering("EXP", "LOG", "GELU")
def function_by_table(work: Lowering) -> None:
    """output = f(input)."""
    data, output = work.tensor(0), work.output()
    gelu = work.operator.name == "GELU"
    require_same_type((data, output), EIGHT_BITS if gelu else ("int8",))
    function = _exponential if work.operator.name == "EXP" else _logarithm
    if gelu:
        options = work.operator.options("GeluOptions")
        function = _gelu_by_tanh if options is not None and options.Approximate() else _gelu
    low, high = LIMITS[output.dtype]

    def reference(values: IntArray) -> IntArray:
        real = f32(data.scale) * (values - data.zero_point).astype(np.float32)
        steps = f32(1) / f32(output.scale)
        results = np.array([function(x) for x in real.tolist()], np.float32) * steps
        limited = np.clip(results.astype(float), low - output.zero_point - 1, high - output.zero_point + 1)
        return np.array([round_half_away(x) for x in limited.tolist()]) + output.zero_point

    store_table(work, reference)


@lowering("NEG")
def negate(work: Lowering) -> None:
    """The stored number with the other sign: LiteRT takes no notice of scales, and the least int8 is its own."""
    data, output = work.tensor(0), work.output()
    require_same_type((data, output), ("int8",))
    store_table(work, lambda values: np.where(values == LIMITS["int8"][0], values, -values))


@lowering("RELU_0_TO_1", "RELU_N1_TO_1")
def between(work: Lowering) -> None:
    """The stored number between those of the ends; the reference does not rescale."""
    data, output = work.tensor(0), work.output()
    require_same_type((data, output), EIGHT_BITS)
    one = round_half_away(float(f32(1) / f32(output.scale)))
    low = output.zero_point - (0 if work.operator.name == "RELU_0_TO_1" else one)
    high = output.zero_point + one
    store_table(work, lambda values: np.clip(values, low, high))
