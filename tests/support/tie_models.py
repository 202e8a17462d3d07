"""Weighted operators whose scales make ties: a product rounded to float32 changes several elements of each."""

from __future__ import annotations

import numpy as np

from tests.support.tflite_builder import ModelBuilder

SCALES = ((0.03, 0.02), (0.1, 0.07), (0.013, 0.006))  # of input and weights


def tie_model(kind: str, dtype: str, input_scale: float, weight_scale: float, single: bool) -> bytes:
    """8 channels to 50 (8 for depthwise); the output's scale is 128 times the product, `single`: in float32."""
    b = ModelBuilder()
    rng = np.random.default_rng(1)
    unsigned = dtype == "uint8"
    zero = 128 if unsigned else 0
    shapes = {
        "FULLY_CONNECTED": ((200, 8), (50, 8), (200, 50)),
        "CONV_2D": ((1, 20, 10, 8), (50, 1, 1, 8), (1, 20, 10, 50)),
        "DEPTHWISE_CONV_2D": ((1, 20, 10, 8), (1, 3, 3, 8), (1, 20, 10, 8)),
    }[kind]
    product = float(np.float32(input_scale) * np.float32(weight_scale))
    if not single:
        product = float(np.float32(input_scale)) * float(np.float32(weight_scale))
    x = b.tensor(shapes[0], dtype, input_scale, zero + 3)
    weights = rng.integers(-127, 128, shapes[1]) + zero
    w = b.constant(weights.astype(dtype), weight_scale, zero)
    channels = shapes[2][-1]
    bias = b.constant(rng.integers(-3000, 3000, channels).astype(np.int32), product)
    y = b.tensor(shapes[2], dtype, product * 128, zero - 4)
    options: dict[str, int] = {} if kind == "FULLY_CONNECTED" else {"Padding": 0, "StrideH": 1, "StrideW": 1}
    options |= {} if kind == "FULLY_CONNECTED" else {"DilationHFactor": 1, "DilationWFactor": 1}
    options |= {"DepthMultiplier": 1} if kind == "DEPTHWISE_CONV_2D" else {}
    table = {"FULLY_CONNECTED": "FullyConnectedOptions", "CONV_2D": "Conv2DOptions"}.get(kind, "DepthwiseConv2DOptions")
    b.operator(kind, [x, w, bias], [y], table, 4 if kind == "FULLY_CONNECTED" else 3, **options)
    return b.made([x], [y]).finish()
