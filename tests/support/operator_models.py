"""Models of one operator: those that compute, those that move, repeat or cut elements, and those that keep a state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.support.random_values import RANGE, random_bias, random_scale, random_weights, random_zero
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

SAME, VALID = 0, 1
_PLANE = (1, 5, 6, 10)


def random_tensor(rng: np.random.Generator, dtype: str) -> Callable[[Sequence[int]], TensorSpec]:
    """`random_tensor(rng, dtype)(shape)`: tensors of one scale and zero point."""
    return partial(TensorSpec, dtype=dtype, scale=random_scale(rng, dtype), zero_point=random_zero(rng, dtype))


# -- computing -------------------------------------------------------------------------------------


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
    x = TensorSpec((1, *shape), dtype, s_in, random_zero(rng, dtype))
    weights = random_weights(rng, weights_shape, weight_type)
    if pruned:
        weights[..., 1::2] = 0
    w = constant(weights, weight_type, s_w, 0 if per_channel else 119, axis=3 if depthwise else 0)
    values = random_bias(rng, channels, dtype, wide_bias)
    bias = constant(values, values.dtype.name, s_in * s_w)
    y = TensorSpec((1, *out_shape, channels), dtype, s_out, random_zero(rng, dtype))
    fields: dict[str, Any] = {
        "Padding": padding,
        "StrideH": stride[0],
        "StrideW": stride[1],
        "DilationHFactor": dilation[0],
        "DilationWFactor": dilation[1],
        "FusedActivationFunction": activation,
    }
    if depthwise:
        fields["DepthMultiplier"] = multiplier
        return single_operator("DEPTHWISE_CONV_2D", [x, w, bias], [y], "DepthwiseConv2DOptions", 3, **fields)
    return single_operator("CONV_2D", [x, w, bias], [y], "Conv2DOptions", 3, **fields)


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
    channels = 9
    out = size * stride if padding == SAME else (size - 1) * stride + kernel
    s_in, s_w = random_scale(rng, dtype), rng.uniform(0.001, 0.01, channels).astype(np.float32)
    weight_type = "uint8" if dtype == "uint8" else "int8"
    weights = random_weights(rng, (channels, kernel, kernel, depth), weight_type)
    of_weights = (s_w[0], random_zero(rng, dtype)) if dtype == "uint8" else (s_w, 0)
    x = TensorSpec((1, size, size, depth), dtype, s_in, random_zero(rng, dtype))
    y = TensorSpec((1, out, out, channels), dtype, s_in * 0.3, random_zero(rng, dtype))
    inputs = [constant([1, out, out, channels]), constant(weights, weight_type, *of_weights), x]
    fields = {"Padding": padding, "StrideH": stride, "StrideW": stride}
    return single_operator("TRANSPOSE_CONV", inputs, [y], "TransposeConvOptions", 3, **fields)


def fully_connected(
    rng: np.random.Generator,
    inputs: int = 40,
    outputs: int = 17,
    batch: int = 1,
    dtype: str = "int8",
    activation: int = 0,
) -> ModelBuilder:
    """FULLY_CONNECTED."""
    s_in, s_w = random_scale(rng, dtype), float(rng.uniform(0.001, 0.01))
    x = TensorSpec((batch, inputs), dtype, s_in, random_zero(rng, dtype))
    weight_type, zero = ("uint8", 119) if dtype == "uint8" else ("int8", 0)
    w = constant(random_weights(rng, (outputs, inputs), weight_type), weight_type, s_w, zero)
    values = random_bias(rng, outputs, dtype, True)
    bias = constant(values, values.dtype.name, s_in * s_w)
    s_out = 73 * 60 * float(np.sqrt(inputs)) * s_in * s_w / 40
    y = TensorSpec((batch, outputs), dtype, s_out, random_zero(rng, dtype))
    fields = {"FusedActivationFunction": activation}
    return single_operator("FULLY_CONNECTED", [x, w, bias], [y], "FullyConnectedOptions", 4, **fields)


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
    tensor = random_tensor(rng, dtype)
    out = [
        -(-n // s) if padding == SAME else (n - k) // s + 1 for n, k, s in zip(shape[:2], kernel, stride, strict=True)
    ]
    fields = {
        "Padding": padding,
        "StrideH": stride[0],
        "StrideW": stride[1],
        "FilterHeight": kernel[0],
        "FilterWidth": kernel[1],
        "FusedActivationFunction": activation,
    }
    inputs, outputs = [tensor((1, *shape))], [tensor((1, *out, shape[2]))]
    return single_operator(f"{kind}_POOL_2D", inputs, outputs, "Pool2DOptions", 2, **fields)


def binary(
    rng: np.random.Generator,
    name: str = "ADD",
    first: tuple[int, ...] = (1, 6, 7, 9),
    second: tuple[int, ...] = (1, 6, 7, 9),
    dtype: str = "int8",
    ratio: float = 1.0,
    is_constant: bool = False,
    reverse: bool = False,
    activation: int = 0,
    same: bool = False,
) -> ModelBuilder:
    """ADD, SUB, MUL, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE: `ratio` is that of the two input scales.

    `is_constant`: the second operand.
    """
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    scale2, zero2 = (scale, zero) if same else (scale * ratio, random_zero(rng, dtype))
    x, y = TensorSpec(first, dtype, scale, zero), TensorSpec(second, dtype, scale2, zero2)
    if is_constant:
        low, high = RANGE[dtype]
        y = constant(rng.integers(low, high + 1, second), dtype, scale2, zero2)
    out_scale, out_zero = (scale, zero) if same else (max(scale, scale2) * 1.3, random_zero(rng, dtype))
    if name in ("MUL", "SQUARED_DIFFERENCE"):
        out_scale = scale * scale2 * (90 if dtype != "int16" else 9000)
    z = TensorSpec(np.broadcast_shapes(first, second), dtype, out_scale, out_zero)
    tables = {
        "ADD": "AddOptions",
        "SUB": "SubOptions",
        "MUL": "MulOptions",
        "SQUARED_DIFFERENCE": "SquaredDifferenceOptions",
    }
    fields = {"FusedActivationFunction": activation} if name in ("ADD", "SUB", "MUL") else {}
    operands = [y, x] if reverse else [x, y]
    return single_operator(name, operands, [z], tables.get(name, "MaximumMinimumOptions"), 2, **fields)


def unary(
    rng: np.random.Generator,
    name: str,
    dtype: str = "int8",
    options: str | None = None,
    shape: tuple[int, ...] = _PLANE,
    out: tuple[float, int] | None = None,
    in_scale: float | None = None,
    version: int = 2,
    **fields: Any,
) -> ModelBuilder:
    """Any operator of one tensor that keeps the shape; `out` is (scale, zero point), None: the input's."""
    quantised = in_scale or random_scale(rng, dtype), random_zero(rng, dtype)
    x, y = TensorSpec(shape, dtype, *quantised), TensorSpec(shape, dtype, *(out or quantised))
    return single_operator(name, [x], [y], options, version, **fields)


def prelu(
    rng: np.random.Generator, dtype: str = "int8", per_channel: bool = True, shape: tuple[int, ...] = _PLANE
) -> ModelBuilder:
    """PRELU with constant slopes."""
    x = TensorSpec(shape, dtype, 0.05, random_zero(rng, dtype))
    kind = "uint8" if dtype == "uint8" else "int8"
    slopes = random_weights(rng, (1, 1, shape[-1] if per_channel else 1), kind)
    a = constant(slopes, kind, 0.01, 3 + (128 if dtype == "uint8" else 0))
    return single_operator("PRELU", [x, a], [TensorSpec(shape, dtype, 0.06, random_zero(rng, dtype))])


def quantize(rng: np.random.Generator, source: str, target: str, shape: tuple[int, ...] = _PLANE) -> ModelBuilder:
    """QUANTIZE: another scale, zero point or precision."""
    s_in = random_scale(rng, source)
    s_out = s_in * 1.37 * {"int16": 1 / 256}.get(target, 1) * {"int16": 256}.get(source, 1)
    x = TensorSpec(shape, source, s_in, random_zero(rng, source))
    return single_operator(
        "QUANTIZE", [x], [TensorSpec(shape, target, s_out, random_zero(rng, target))], "QuantizeOptions", 2
    )


def mean(
    rng: np.random.Generator, axes: tuple[int, ...], dtype: str = "int8", shape: tuple[int, ...] = (1, 9, 10, 7)
) -> ModelBuilder:
    """MEAN with kept dimensions."""
    scale = random_scale(rng, dtype)
    x = TensorSpec(shape, dtype, scale, random_zero(rng, dtype))
    out = tuple(1 if i in axes else n for i, n in enumerate(shape))
    y = TensorSpec(out, dtype, scale * 0.4, random_zero(rng, dtype))
    return single_operator("MEAN", [x, constant(axes)], [y], "ReducerOptions", 2, KeepDims=True)


def batch_matmul(
    rng: np.random.Generator,
    dtype: str = "int8",
    first: tuple[int, ...] = (1, 2),
    second: tuple[int, ...] = (1, 2),
    extents: tuple[int, int, int] = (6, 8, 5),
    adjoint: tuple[bool, bool] = (False, False),
    is_constant: bool = False,
) -> ModelBuilder:
    """BATCH_MATMUL of matrices of rows x depth and depth x columns (`extents`), `adjoint`: stored transposed.

    `first` and `second` are the leading extents; the second tensor may be a constant.
    """
    rows, depth, columns = extents
    scale = random_scale(rng, dtype)
    shape = (*second, *((columns, depth) if adjoint[1] else (depth, columns)))
    x = TensorSpec((*first, *((depth, rows) if adjoint[0] else (rows, depth))), dtype, scale, random_zero(rng, dtype))
    y = TensorSpec(shape, dtype, scale, random_zero(rng, dtype))
    if is_constant:
        y = constant(random_weights(rng, shape, dtype), dtype, scale, y.zero_point)
    z = TensorSpec((*np.broadcast_shapes(first, second), rows, columns), dtype, scale * 4, random_zero(rng, dtype))
    return single_operator("BATCH_MATMUL", [x, y], [z], "BatchMatMulOptions", 4, AdjX=adjoint[0], AdjY=adjoint[1])


def argmax(rng: np.random.Generator, dtype: str = "int8", name: str = "ARG_MAX") -> ModelBuilder:
    """ARG_MAX or ARG_MIN over the depth."""
    inputs, options = [random_tensor(rng, dtype)(_PLANE), constant([3])], f"Arg{name[4:].capitalize()}Options"
    return single_operator(name, inputs, [TensorSpec(_PLANE[:3], "int32")], options, 2, OutputType=2)


def rsqrt(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """RSQRT, whose input must not be negative; int16 has no zero points."""
    quantised: Any = (0.05, -128), (0.02, -128)
    if dtype == "int16":
        scale = random_scale(rng, dtype)
        quantised = (scale, 0), (1 / math.sqrt(scale) / rng.uniform(2e3, 2e5), 0)
    x, y = (TensorSpec(_PLANE, dtype, *one) for one in quantised)
    return single_operator("RSQRT", [x], [y], None, 2)


# -- moving ----------------------------------------------------------------------------------------


def move(
    rng: np.random.Generator,
    name: str,
    shape: Sequence[int],
    out: Sequence[int],
    options: str | None = None,
    *constants: object,
    dtype: str = "int8",
    version: int = 2,
    **fields: Any,
) -> ModelBuilder:
    """An operator of one tensor and int32 constants that gives another shape with the same quantisation."""
    tensor = random_tensor(rng, dtype)
    inputs = [tensor(shape), *map(constant, constants)]
    return single_operator(name, inputs, [tensor(out)], options, version, **fields)


def resize(
    rng: np.random.Generator,
    kind: str,
    factor: int = 2,
    dtype: str = "int8",
    align: bool = False,
    half: bool = False,
    size: tuple[int, int] = (5, 6),
    out: tuple[int, int] | None = None,
    depth: int = 7,
) -> ModelBuilder:
    """RESIZE_NEAREST_NEIGHBOR or RESIZE_BILINEAR."""
    extents = out or tuple((n - 1) * factor + 1 if align else n * factor for n in size)
    table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    more: dict[str, Any] = {"dtype": dtype, "version": 3, "AlignCorners": align, "HalfPixelCenters": half}
    return move(rng, kind, (1, *size, depth), (1, *extents, depth), table, extents, **more)


def pad(rng: np.random.Generator, amounts: tuple[tuple[int, int], ...], dtype: str = "int8") -> ModelBuilder:
    """PAD."""
    out = [n + lo + hi for n, (lo, hi) in zip(_PLANE, amounts, strict=True)]
    return move(rng, "PAD", _PLANE, out, "PadOptions", amounts, dtype=dtype)


def strided_slice(
    rng: np.random.Generator, begin: list[int], end: list[int], strides: list[int], dtype: str = "int8"
) -> ModelBuilder:
    """STRIDED_SLICE of a [1, 8, 9, 10] tensor."""
    out = [-(-(e - s) // st) for s, e, st in zip(begin, end, strides, strict=True)]
    return move(rng, "STRIDED_SLICE", (1, 8, 9, 10), out, "StridedSliceOptions", begin, end, strides, dtype=dtype)


def concatenation(
    rng: np.random.Generator, axis: int, dtype: str = "int8", depths: tuple[int, int] = (7, 9)
) -> ModelBuilder:
    """CONCATENATION of two tensors with one quantisation."""
    tensor = random_tensor(rng, dtype)
    x, y, z = (tensor((*_PLANE[:axis], size, *_PLANE[axis + 1 :])) for size in (*depths, sum(depths)))
    return single_operator("CONCATENATION", [x, y], [z], "ConcatenationOptions", 2, Axis=axis)


def tile(rng: np.random.Generator, shape: tuple[int, ...], times: tuple[int, ...], dtype: str = "int8") -> ModelBuilder:
    """TILE."""
    return move(rng, "TILE", shape, [n * k for n, k in zip(shape, times, strict=True)], None, times, dtype=dtype)


def split(rng: np.random.Generator, axis: int, count: int, dtype: str = "int8") -> ModelBuilder:
    """SPLIT into equal parts."""
    tensor, shape = random_tensor(rng, dtype), [1, 6, 8, 12]
    x = tensor(tuple(shape))
    shape[axis] //= count
    return single_operator("SPLIT", [constant(axis), x], [tensor(shape)] * count, "SplitOptions", 2, NumSplits=count)


def transpose(
    rng: np.random.Generator, order: tuple[int, ...], dtype: str = "int8", shape: tuple[int, ...] = _PLANE
) -> ModelBuilder:
    """TRANSPOSE of the last dimensions of `shape`."""
    shape = shape[-len(order) :]
    return move(rng, "TRANSPOSE", shape, [shape[i] for i in order], "TransposeOptions", order, dtype=dtype)


def reshape(rng: np.random.Generator, dtype: str = "int8") -> ModelBuilder:
    """RESHAPE followed by nothing: a copy."""
    out = [1, 30, 10]
    return move(rng, "RESHAPE", _PLANE, out, "ReshapeOptions", out, dtype=dtype, version=1, NewShape=out)


def pack(rng: np.random.Generator, axis: int, dtype: str = "int8") -> ModelBuilder:
    """PACK of two tensors."""
    tensor, out = random_tensor(rng, dtype), [5, 6, 10]
    x = tensor(tuple(out))
    out.insert(axis, 2)
    return single_operator("PACK", [x, x], [tensor(out)], "PackOptions", 2, ValuesCount=2, Axis=axis)


# -- with a state ----------------------------------------------------------------------------------


def lstm_layer(
    b: ModelBuilder,
    x: int,
    time_major: bool = False,
    batches: int = 1,
    units: int = 5,
    clip: float = 0.0,
    cell_scale: float = 2.0**-12,
    hidden_scale: float = 0.008,
    dtype: str = "int8",
    elements: int | None = None,
) -> int:
    """Add an LSTM that reads `x`; its gates reach far beyond +-8, where their functions are flat.

    With `elements` it has intermediate tensors of so many; tflite-micro refuses what has more than none.
    """
    rng = np.random.default_rng(units)
    shape, depth = b.tensors[x].shape[:2], b.tensors[x].shape[2]

    def weights(columns: int) -> int:
        return b.constant(rng.integers(-127, 128, (units, columns)).astype(np.int8), float(rng.uniform(0.01, 0.05)))

    matrices = [weights(depth) for _ in range(4)] + [weights(units) for _ in range(4)]
    wide = dtype == "int16"
    most, kind, scale = (200_000, np.int64, 1e-6) if wide else (2000, np.int32, 1e-4)
    biases = [b.constant(rng.integers(-most, most, units).astype(kind), scale) for _ in range(4)]
    zero, hidden_scale = (0, 1 / 32768) if wide else (-6, hidden_scale)
    states = [
        b.tensor((batches, units), dtype, hidden_scale, zero, is_variable=True),
        b.tensor((batches, units), "int16", cell_scale, is_variable=True),
    ]
    y = b.tensor((*shape, units), dtype, hidden_scale if wide else 0.008, zero)
    if elements is not None:
        kept = [b.tensor((elements,), "int16", 2.0**-12) for _ in range(4)]
        b.intermediates[len(b.operators)] = [*kept, b.tensor((elements,), "int8", hidden_scale, zero)]
    inputs = [x, *matrices, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
    options = {"FusedActivationFunction": 4, "CellClip": clip, "TimeMajor": time_major}
    b.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], "UnidirectionalSequenceLSTMOptions", **options)
    return y


def svdf(rng: np.random.Generator) -> ModelBuilder:
    """SVDF of int8 with a state of int16."""
    depth, units, rank, memory = 9, 6, 2, 5
    inputs = [
        TensorSpec((1, depth), "int8", 0.03, 4),
        constant(rng.integers(-127, 128, (units * rank, depth)), "int8", 0.02),
        constant(rng.integers(-3000, 3000, (units * rank, memory)), "int16", 0.001),
        constant(rng.integers(-200, 200, units), "int32", 0.0002 * 0.001),
        TensorSpec((1, units * rank * memory), "int16", 0.0002, is_variable=True),
    ]
    return single_operator("SVDF", inputs, [TensorSpec((1, units), "int8", 0.02, -5)], "SVDFOptions", 3, Rank=rank)


# -- whose sums leave int32 ------------------------------------------------------------------------

OVERFLOWING = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "SVDF")


def overflowing_model(seed: int) -> bytes:
    """The file of an operator, in turns, with biases at the ends of int32, wide states, scales far from each other."""
    rng, kind = np.random.default_rng(seed), OVERFLOWING[seed % len(OVERFLOWING)]
    scale, weight_scale = float(rng.uniform(0.005, 0.1)), float(rng.uniform(0.001, 0.2))
    zero, made_zero = (int(z) for z in rng.integers(-128, 128, 2))
    made_scale = float(scale * weight_scale * 2.0 ** rng.uniform(-14, 12))
    depth, units = (int(n) for n in rng.integers(1, 40, 2))

    def weights(*shape: int, scale: Any = weight_scale, axis: int = 0) -> TensorSpec:
        return constant(rng.integers(-127, 128, shape), "int8", scale, axis=axis)

    def bias(count: int, of: Any) -> TensorSpec:
        ends = np.array([-(1 << 31), 0, (1 << 31) - 100_000])[rng.integers(0, 3, count)]
        return constant(ends + rng.integers(0, 100_000, count), "int32", of)

    def finished(inputs: Sequence[TensorSpec], out: Sequence[int], options: str, **fields: Any) -> bytes:
        y = TensorSpec((*out, units), "int8", made_scale, made_zero)
        return single_operator(kind, inputs, [y], options, 4 if kind == "FULLY_CONNECTED" else 3, **fields).finish()

    if kind == "FULLY_CONNECTED":
        x = TensorSpec((2, depth), "int8", scale, zero)
        return finished([x, weights(units, depth), bias(units, scale * weight_scale)], (2,), "FullyConnectedOptions")
    if kind == "SVDF":
        rank, memory, state_scale = int(rng.integers(1, 4)), int(rng.integers(1, 9)), float(2.0 ** rng.uniform(-14, -6))
        features = weights(units * rank, depth)
        times = constant(rng.integers(-32767, 32768, (units * rank, memory)), "int16", 1e-4)
        state = TensorSpec((1, units * rank * memory), "int16", state_scale, is_variable=True)
        x = TensorSpec((1, depth), "int8", scale, zero)
        return finished([x, features, times, bias(units, state_scale * 1e-4), state], (1,), "SVDFOptions", Rank=rank)
    units = depth if kind == "DEPTHWISE_CONV_2D" else units
    scales, products = [weight_scale] * units, [scale * weight_scale] * units
    x, steps = TensorSpec((1, 5, 6, depth), "int8", scale, zero), {"Padding": 0, "StrideW": 1, "StrideH": 1}
    if kind == "TRANSPOSE_CONV":
        inputs = [constant([1, 10, 12, units]), weights(units, 3, 3, depth, scale=scales), x, bias(units, products)]
        return finished(inputs, (1, 10, 12), "TransposeConvOptions", **steps | {"StrideW": 2, "StrideH": 2})
    steps |= {"DilationWFactor": 1, "DilationHFactor": 1}
    if kind == "CONV_2D":
        inputs = [x, weights(units, 3, 3, depth, scale=scales), bias(units, products)]
        return finished(inputs, (1, 5, 6), "Conv2DOptions", **steps)
    inputs = [x, weights(1, 3, 3, depth, scale=scales, axis=3), bias(units, products)]
    return finished(inputs, (1, 5, 6), "DepthwiseConv2DOptions", DepthMultiplier=1, **steps)
