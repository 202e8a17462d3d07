"""Models of one operator whose sums leave int32: biases at its ends, wide states, scales far from each other.

Invariant: a seed is a model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.tflite_builder import ModelBuilder

KINDS = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "SVDF")


def overflowing_model(seed: int) -> bytes:
    """The file; the kinds of operators take turns."""
    rng, b, kind = np.random.default_rng(seed), ModelBuilder(), KINDS[seed % len(KINDS)]
    scale, weight_scale = float(rng.uniform(0.005, 0.1)), float(rng.uniform(0.001, 0.2))
    zero, made_zero = (int(z) for z in rng.integers(-128, 128, 2))
    made_scale = float(scale * weight_scale * 2.0 ** rng.uniform(-14, 12))
    depth, units = (int(n) for n in rng.integers(1, 40, 2))

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape).astype(np.int8)

    def bias(count: int, of: Any) -> int:
        ends = np.array([-(1 << 31), 0, (1 << 31) - 100_000])[rng.integers(0, 3, count)]
        return b.constant((ends + rng.integers(0, 100_000, count)).astype(np.int32), of)

    def finished(x: int, y: int) -> bytes:
        return b.made([x], [y]).finish()

    if kind == "FULLY_CONNECTED":
        x, y = b.tensor((2, depth), "int8", scale, zero), b.tensor((2, units), "int8", made_scale, made_zero)
        matrix = b.constant(weights(units, depth), weight_scale)
        b.operator(kind, [x, matrix, bias(units, scale * weight_scale)], [y], "FullyConnectedOptions", 4)
        return finished(x, y)
    if kind == "SVDF":
        rank, memory, state_scale = int(rng.integers(1, 4)), int(rng.integers(1, 9)), float(2.0 ** rng.uniform(-14, -6))
        x, y = b.tensor((1, depth), "int8", scale, zero), b.tensor((1, units), "int8", made_scale, made_zero)
        features = b.constant(weights(units * rank, depth), weight_scale)
        times = b.constant(rng.integers(-32767, 32768, (units * rank, memory)).astype(np.int16), 1e-4)
        state = b.tensor((1, units * rank * memory), "int16", state_scale, is_variable=True)
        b.operator(kind, [x, features, times, bias(units, state_scale * 1e-4), state], [y], "SVDFOptions", 3, Rank=rank)
        return finished(x, y)
    units = depth if kind == "DEPTHWISE_CONV_2D" else units
    scales, products = [weight_scale] * units, [scale * weight_scale] * units
    x = b.tensor((1, 5, 6, depth), "int8", scale, zero)
    steps = {"Padding": 0, "StrideW": 1, "StrideH": 1}
    if kind == "TRANSPOSE_CONV":
        y = b.tensor((1, 10, 12, units), "int8", made_scale, made_zero)
        inputs = [b.constant(np.array([1, 10, 12, units], np.int32)), b.constant(weights(units, 3, 3, depth), scales)]
        steps |= {"StrideW": 2, "StrideH": 2}
        b.operator(kind, [*inputs, x, bias(units, products)], [y], "TransposeConvOptions", 3, **steps)
        return finished(x, y)
    y = b.tensor((1, 5, 6, units), "int8", made_scale, made_zero)
    steps |= {"DilationWFactor": 1, "DilationHFactor": 1}
    if kind == "CONV_2D":
        matrix = b.constant(weights(units, 3, 3, depth), scales)
        b.operator(kind, [x, matrix, bias(units, products)], [y], "Conv2DOptions", 3, **steps)
        return finished(x, y)
    matrix = b.constant(weights(1, 3, 3, depth), scales, axis=3)
    inputs = [x, matrix, bias(units, products)]
    b.operator(kind, inputs, [y], "DepthwiseConv2DOptions", 3, DepthMultiplier=1, **steps)
    return finished(x, y)
