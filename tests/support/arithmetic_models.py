"""Models of one operator that computes: convolutions, pools, element-wise operators, reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.support.random_values import RANGE, random_bias, random_scale, random_weights, random_zero
from tests.support.tflite_builder import ModelBuilder

SAME, VALID = 0, 1


def convolution(
    rng: np.random.Generator,
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: int = SAME,
    shape: tuple[int, int, int] = (9, 10, 7),
    channels: int = 11,
    dtype: str = "int8",
    activation: int = 0,
    depthwise: bool = False,
    multiplier: int = 1,
    wide_bias: bool = True,
    pruned: bool = False,
) -> ModelBuilder:
    """CONV_2D or DEPTHWISE_CONV_2D; every second weight along the input channels is 0 where it is `pruned`."""
    b = ModelBuilder()
    depth = shape[2]
    channels = depth * multiplier if depthwise else channels
    weight_type = "uint8" if dtype == "uint8" else "int8"
    weights_shape = (1, *kernel, channels) if depthwise else (channels, *kernel, depth)
    per_channel = weight_type == "int8"
    s_in = random_scale(rng, dtype)
    s_w = rng.uniform(0.001, 0.01, channels if per_channel else 1).astype(np.float32)
    taps = kernel[0] * kernel[1] * (1 if depthwise else depth)
    span = 73 * 60 * float(np.sqrt(taps)) * s_in * float(s_w.mean()) * (256 if dtype == "int16" else 1)
    s_out = span / (40 if dtype != "int16" else 10000)
    out_shape = []
    for size, k, st, d in zip(shape[:2], kernel, stride, dilation, strict=True):
        extent = (k - 1) * d + 1
        out_shape.append(-(-size // st) if padding == SAME else (size - extent) // st + 1)
    x = b.tensor((1, *shape), dtype, s_in, random_zero(rng, dtype))
    weights = random_weights(rng, weights_shape, weight_type)
    if pruned:
        weights[..., 1::2] = 0
    w = b.constant(
        weights,
        s_w,
        0 if per_channel else 119,
        axis=3 if depthwise else 0,
    )
    bias = b.constant(random_bias(rng, channels, dtype, wide_bias), s_in * s_w)
    y = b.tensor((1, *out_shape, channels), dtype, s_out, random_zero(rng, dtype))
    options: dict[str, Any] = {
        "Padding": padding,
        "StrideH": stride[0],
        "StrideW": stride[1],
        "DilationHFactor": dilation[0],
        "DilationWFactor": dilation[1],
        "FusedActivationFunction": activation,
    }
    if depthwise:
        b.operator(
            "DEPTHWISE_CONV_2D", [x, w, bias], [y], "DepthwiseConv2DOptions", 3, DepthMultiplier=multiplier, **options
        )
    else:
        b.operator("CONV_2D", [x, w, bias], [y], "Conv2DOptions", 3, **options)
    return b.made([x], [y])


def transpose_convolution(
    rng: np.random.Generator,
    kernel: int = 3,
    stride: int = 2,
    padding: int = SAME,
    dtype: str = "int8",
    depth: int = 6,
    size: int = 5,
) -> ModelBuilder:
    """TRANSPOSE_CONV."""
    b = ModelBuilder()
    channels = 9
    out = size * stride if padding == SAME else (size - 1) * stride + kernel
    s_in, s_w = random_scale(rng, dtype), rng.uniform(0.001, 0.01, channels).astype(np.float32)
    shape = b.constant(np.array([1, out, out, channels], np.int32))
    if dtype == "uint8":
        w = b.constant(random_weights(rng, (channels, kernel, kernel, depth), dtype), s_w[0], random_zero(rng, dtype))
    else:
        w = b.constant(random_weights(rng, (channels, kernel, kernel, depth)), s_w, 0, axis=0)
    x = b.tensor((1, size, size, depth), dtype, s_in, random_zero(rng, dtype))
    y = b.tensor((1, out, out, channels), dtype, s_in * 0.3, random_zero(rng, dtype))
    b.operator(
        "TRANSPOSE_CONV", [shape, w, x], [y], "TransposeConvOptions", 3, Padding=padding, StrideH=stride, StrideW=stride
    )
    return b.made([x], [y])


def fully_connected(
    rng: np.random.Generator,
    inputs: int = 40,
    outputs: int = 17,
    batch: int = 1,
    dtype: str = "int8",
    activation: int = 0,
) -> ModelBuilder:
    """FULLY_CONNECTED."""
    b = ModelBuilder()
    s_in, s_w = random_scale(rng, dtype), float(rng.uniform(0.001, 0.01))
    x = b.tensor((batch, inputs), dtype, s_in, random_zero(rng, dtype))
    unsigned = dtype == "uint8"
    weights = random_weights(rng, (outputs, inputs), "uint8" if unsigned else "int8")
    w = b.constant(weights, s_w, 119 if unsigned else 0)
    bias = b.constant(random_bias(rng, outputs, dtype, True), s_in * s_w)
    s_out = 73 * 60 * float(np.sqrt(inputs)) * s_in * s_w / 40
    y = b.tensor((batch, outputs), dtype, s_out, random_zero(rng, dtype))
    b.operator("FULLY_CONNECTED", [x, w, bias], [y], "FullyConnectedOptions", 4, FusedActivationFunction=activation)
    return b.made([x], [y])


def pool(
    rng: np.random.Generator,
    kind: str = "MAX",
    kernel: tuple[int, int] = (2, 2),
    stride: tuple[int, int] = (2, 2),
    padding: int = VALID,
    shape: tuple[int, int, int] = (9, 10, 7),
    dtype: str = "int8",
    activation: int = 0,
) -> ModelBuilder:
    """MAX_POOL_2D or AVERAGE_POOL_2D."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    out = [
        -(-n // s) if padding == SAME else (n - k) // s + 1 for n, k, s in zip(shape[:2], kernel, stride, strict=True)
    ]
    x = b.tensor((1, *shape), dtype, scale, zero)
    y = b.tensor((1, *out, shape[2]), dtype, scale, zero)
    b.operator(
        f"{kind}_POOL_2D",
        [x],
        [y],
        "Pool2DOptions",
        2,
        Padding=padding,
        StrideH=stride[0],
        StrideW=stride[1],
        FilterHeight=kernel[0],
        FilterWidth=kernel[1],
        FusedActivationFunction=activation,
    )
    return b.made([x], [y])


def binary(
    rng: np.random.Generator,
    name: str = "ADD",
    first: tuple[int, ...] = (1, 6, 7, 9),
    second: tuple[int, ...] = (1, 6, 7, 9),
    dtype: str = "int8",
    ratio: float = 1.0,
    constant: bool = False,
    reverse: bool = False,
    activation: int = 0,
    same: bool = False,
) -> ModelBuilder:
    """ADD, SUB, MUL, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE: `ratio` is that of the two input scales."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    scale2, zero2 = (scale, zero) if same else (scale * ratio, random_zero(rng, dtype))
    x = b.tensor(first, dtype, scale, zero)
    if constant:
        low, high = RANGE[dtype]
        y = b.constant(rng.integers(low, high + 1, second).astype(dtype), scale2, zero2)
    else:
        y = b.tensor(second, dtype, scale2, zero2)
    out_scale, out_zero = (scale, zero) if same else (max(scale, scale2) * 1.3, random_zero(rng, dtype))
    if name in ("MUL", "SQUARED_DIFFERENCE"):
        out_scale = scale * scale2 * (90 if dtype != "int16" else 9000)
    shape = tuple(np.broadcast_shapes(first, second))
    z = b.tensor(shape, dtype, out_scale, out_zero)
    tables = {
        "ADD": "AddOptions",
        "SUB": "SubOptions",
        "MUL": "MulOptions",
        "SQUARED_DIFFERENCE": "SquaredDifferenceOptions",
    }
    options = tables.get(name, "MaximumMinimumOptions")
    fields = {"FusedActivationFunction": activation} if name in ("ADD", "SUB", "MUL") else {}
    operands = [y, x] if reverse else [x, y]
    b.operator(name, operands, [z], options, 2, **fields)
    return b.made([x] if constant else [x, y], [z])


def unary(
    rng: np.random.Generator,
    name: str,
    dtype: str = "int8",
    options: str | None = None,
    shape: tuple[int, ...] = (1, 5, 6, 10),
    out: tuple[float, int] | None = None,
    in_scale: float | None = None,
    **fields: Any,
) -> ModelBuilder:
    """Any operator of one tensor that keeps the shape; `out` is (scale, zero point), None: the input's."""
    b = ModelBuilder()
    scale, zero = in_scale or random_scale(rng, dtype), random_zero(rng, dtype)
    x = b.tensor(shape, dtype, scale, zero)
    y = b.tensor(shape, dtype, *(out or (scale, zero)))
    b.operator(name, [x], [y], options, 2, **fields)
    return b.made([x], [y])


def prelu(
    rng: np.random.Generator, dtype: str = "int8", per_channel: bool = True, shape: tuple[int, ...] = (1, 5, 6, 10)
) -> ModelBuilder:
    """PRELU with constant slopes."""
    b = ModelBuilder()
    x = b.tensor(shape, dtype, 0.05, random_zero(rng, dtype))
    slopes = random_weights(rng, (1, 1, shape[-1] if per_channel else 1), "uint8" if dtype == "uint8" else "int8")
    a = b.constant(slopes, 0.01, 3 + (128 if dtype == "uint8" else 0))
    y = b.tensor(shape, dtype, 0.06, random_zero(rng, dtype))
    b.operator("PRELU", [x, a], [y])
    return b.made([x], [y])


def quantize(
    rng: np.random.Generator, source: str, target: str, shape: tuple[int, ...] = (1, 5, 6, 10)
) -> ModelBuilder:
    """QUANTIZE: another scale, zero point or precision."""
    b = ModelBuilder()
    s_in = random_scale(rng, source)
    s_out = s_in * 1.37 * {"int16": 1 / 256}.get(target, 1) * {"int16": 256}.get(source, 1)
    x = b.tensor(shape, source, s_in, random_zero(rng, source))
    y = b.tensor(shape, target, s_out, random_zero(rng, target))
    b.operator("QUANTIZE", [x], [y], "QuantizeOptions", 2)
    return b.made([x], [y])


def mean(
    rng: np.random.Generator, axes: tuple[int, ...], dtype: str = "int8", shape: tuple[int, ...] = (1, 9, 10, 7)
) -> ModelBuilder:
    """MEAN with kept dimensions."""
    b = ModelBuilder()
    scale = random_scale(rng, dtype)
    x = b.tensor(shape, dtype, scale, random_zero(rng, dtype))
    a = b.constant(np.array(axes, np.int32))
    out = tuple(1 if i in axes else n for i, n in enumerate(shape))
    y = b.tensor(out, dtype, scale * 0.4, random_zero(rng, dtype))
    b.operator("MEAN", [x, a], [y], "ReducerOptions", 2, KeepDims=True)
    return b.made([x], [y])


def batch_matmul(
    rng: np.random.Generator,
    dtype: str = "int8",
    first: tuple[int, ...] = (1, 2),
    second: tuple[int, ...] = (1, 2),
    extents: tuple[int, int, int] = (6, 8, 5),
    adjoint: tuple[bool, bool] = (False, False),
    constant: bool = False,
) -> ModelBuilder:
    """BATCH_MATMUL of matrices of rows x depth and depth x columns (`extents`), `adjoint`: stored transposed.

    `first` and `second` are the leading extents; the second tensor may be a `constant`.
    """
    b = ModelBuilder()
    rows, depth, columns = extents
    scale = random_scale(rng, dtype)
    shape = (*second, *((columns, depth) if adjoint[1] else (depth, columns)))
    x = b.tensor((*first, *((depth, rows) if adjoint[0] else (rows, depth))), dtype, scale, random_zero(rng, dtype))
    zero = random_zero(rng, dtype)
    y = b.constant(random_weights(rng, shape, dtype), scale, zero) if constant else b.tensor(shape, dtype, scale, zero)
    leading = np.broadcast_shapes(first, second)
    z = b.tensor((*leading, rows, columns), dtype, scale * 4, random_zero(rng, dtype))
    b.operator("BATCH_MATMUL", [x, y], [z], "BatchMatMulOptions", 4, AdjX=adjoint[0], AdjY=adjoint[1])
    return b.made([x] if constant else [x, y], [z])


def argmax(rng: np.random.Generator, dtype: str = "int8") -> ModelBuilder:
    """ARG_MAX over the depth."""
    b = ModelBuilder()
    x = b.tensor((1, 5, 6, 10), dtype, random_scale(rng, dtype), random_zero(rng, dtype))
    a = b.constant(np.array([3], np.int32))
    y = b.tensor((1, 5, 6), "int32")
    b.operator("ARG_MAX", [x, a], [y], "ArgMaxOptions", 2, OutputType=2)
    return b.made([x], [y])


def rsqrt(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """RSQRT, whose input must not be negative; int16 has no zero points."""
    b = ModelBuilder()
    if dtype == "int16":
        scale = random_scale(rng, dtype)
        quantised = (scale, 0), (1 / math.sqrt(scale) / rng.uniform(2e3, 2e5), 0)
    else:
        quantised = (0.05, -128), (0.02, -128)
    x, y = (b.tensor((1, 5, 6, 10), dtype, *one) for one in quantised)
    b.operator("RSQRT", [x], [y], None, 2)
    return b.made([x], [y])
