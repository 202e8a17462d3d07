"""Models of a single operator, over shapes, strides, paddings, dilations, precisions and broadcasts.

Invariant: a case is determined by its name: weights, scales and zero points come from a generator seeded with
it. To cover another operator, add a function that builds it and a line in `all_cases`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tflite_builder import ModelBuilder

SAME, VALID = 0, 1
_RANGE = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


@dataclass(frozen=True)
class Case:
    """One model: `build()` makes the TFLite file."""

    name: str
    group: str
    make: Callable[[np.random.Generator], ModelBuilder]

    def _builder(self) -> ModelBuilder:
        return self.make(np.random.default_rng(zlib.crc32(self.name.encode())))

    def build(self) -> bytes:
        """The file; the same bytes each time."""
        return self._builder().finish()

    def reference(self) -> bytes:
        """The same model for tflite-micro, which has no uint8: with int8 tensors, 128 lower."""
        return self._builder().as_int8().finish()


def _zero(rng: np.random.Generator, dtype: str) -> int:
    return 0 if dtype == "int16" else int(rng.integers(-20, 20)) + (128 if dtype == "uint8" else 0)


def _scale(rng: np.random.Generator, dtype: str, low: float = 0.01, high: float = 0.1) -> float:
    value = float(rng.uniform(low, high))
    return value / 256 if dtype == "int16" else value


def _weights(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "int8") -> np.ndarray:
    """Values over the whole range, a third of them zero, so that zero runs and palettes occur."""
    low, high = (-127, 127) if dtype == "int8" else _RANGE[dtype]
    values = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 0.3, 0 if dtype == "int8" else 128, values).astype(dtype)


def _bias(rng: np.random.Generator, channels: int, dtype: str, wide: bool) -> np.ndarray:
    if dtype == "int16":
        return rng.integers(-(1 << 20), 1 << 20, channels).astype("int64" if wide else "int32")
    return rng.integers(-3000, 3000, channels).astype("int32")


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
) -> ModelBuilder:
    """CONV_2D or DEPTHWISE_CONV_2D."""
    b = ModelBuilder()
    depth = shape[2]
    channels = depth * multiplier if depthwise else channels
    weight_type = "uint8" if dtype == "uint8" else "int8"
    weights_shape = (1, *kernel, channels) if depthwise else (channels, *kernel, depth)
    per_channel = weight_type == "int8"
    s_in = _scale(rng, dtype)
    s_w = rng.uniform(0.001, 0.01, channels if per_channel else 1).astype(np.float32)
    taps = kernel[0] * kernel[1] * (1 if depthwise else depth)
    span = 73 * 60 * float(np.sqrt(taps)) * s_in * float(s_w.mean()) * (256 if dtype == "int16" else 1)
    s_out = span / (40 if dtype != "int16" else 10000)
    out_shape = []
    for size, k, st, d in zip(shape[:2], kernel, stride, dilation, strict=True):
        extent = (k - 1) * d + 1
        out_shape.append(-(-size // st) if padding == SAME else (size - extent) // st + 1)
    x = b.tensor((1, *shape), dtype, s_in, _zero(rng, dtype))
    w = b.constant(
        _weights(rng, weights_shape, weight_type),
        s_w,
        0 if per_channel else 128,  # the int8 twin has no weight zero point
        axis=3 if depthwise else 0,
    )
    bias = b.constant(_bias(rng, channels, dtype, wide_bias), s_in * s_w)
    y = b.tensor((1, *out_shape, channels), dtype, s_out, _zero(rng, dtype))
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
    rng: np.random.Generator, kernel: int = 3, stride: int = 2, padding: int = SAME, dtype: str = "int8", depth: int = 6
) -> ModelBuilder:
    """TRANSPOSE_CONV."""
    b = ModelBuilder()
    size, channels = 5, 9
    out = size * stride if padding == SAME else (size - 1) * stride + kernel
    s_in, s_w = _scale(rng, dtype), rng.uniform(0.001, 0.01, channels).astype(np.float32)
    shape = b.constant(np.array([1, out, out, channels], np.int32))
    w = b.constant(_weights(rng, (channels, kernel, kernel, depth)), s_w, 0, axis=0)
    x = b.tensor((1, size, size, depth), dtype, s_in, _zero(rng, dtype))
    y = b.tensor((1, out, out, channels), dtype, s_in * 0.3, _zero(rng, dtype))
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
    s_in, s_w = _scale(rng, dtype), float(rng.uniform(0.001, 0.01))
    x = b.tensor((batch, inputs), dtype, s_in, _zero(rng, dtype))
    w = b.constant(_weights(rng, (outputs, inputs)), s_w)
    bias = b.constant(_bias(rng, outputs, dtype, True), s_in * s_w)
    s_out = 73 * 60 * float(np.sqrt(inputs)) * s_in * s_w / 40
    y = b.tensor((batch, outputs), dtype, s_out, _zero(rng, dtype))
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
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
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
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    scale2, zero2 = (scale, zero) if same else (scale * ratio, _zero(rng, dtype))
    x = b.tensor(first, dtype, scale, zero)
    if constant:
        low, high = _RANGE[dtype]
        y = b.constant(rng.integers(low, high + 1, second).astype(dtype), scale2, zero2)
    else:
        y = b.tensor(second, dtype, scale2, zero2)
    out_scale, out_zero = (scale, zero) if same else (max(scale, scale2) * 1.3, _zero(rng, dtype))
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
    scale, zero = in_scale or _scale(rng, dtype), _zero(rng, dtype)
    x = b.tensor(shape, dtype, scale, zero)
    y = b.tensor(shape, dtype, *(out or (scale, zero)))
    b.operator(name, [x], [y], options, 2, **fields)
    return b.made([x], [y])


def prelu(rng: np.random.Generator, dtype: str = "int8", per_channel: bool = True) -> ModelBuilder:
    """PRELU with constant slopes."""
    b = ModelBuilder()
    shape = (1, 5, 6, 10)
    x = b.tensor(shape, dtype, 0.05, _zero(rng, dtype))
    a = b.constant(_weights(rng, (1, 1, 10) if per_channel else (1, 1, 1)), 0.01, 3)
    y = b.tensor(shape, dtype, 0.06, _zero(rng, dtype))
    b.operator("PRELU", [x, a], [y])
    return b.made([x], [y])


def quantize(rng: np.random.Generator, source: str, target: str) -> ModelBuilder:
    """QUANTIZE: another scale, zero point or precision."""
    b = ModelBuilder()
    shape = (1, 5, 6, 10)
    s_in = _scale(rng, source)
    s_out = s_in * 1.37 * {"int16": 1 / 256}.get(target, 1) * {"int16": 256}.get(source, 1)
    x = b.tensor(shape, source, s_in, _zero(rng, source))
    y = b.tensor(shape, target, s_out, _zero(rng, target))
    b.operator("QUANTIZE", [x], [y], "QuantizeOptions", 2)
    return b.made([x], [y])


def mean(
    rng: np.random.Generator, axes: tuple[int, ...], dtype: str = "int8", shape: tuple[int, ...] = (1, 9, 10, 7)
) -> ModelBuilder:
    """MEAN with kept dimensions."""
    b = ModelBuilder()
    scale = _scale(rng, dtype)
    x = b.tensor(shape, dtype, scale, _zero(rng, dtype))
    a = b.constant(np.array(axes, np.int32))
    out = tuple(1 if i in axes else n for i, n in enumerate(shape))
    y = b.tensor(out, dtype, scale * 0.4, _zero(rng, dtype))
    b.operator("MEAN", [x, a], [y], "ReducerOptions", 2, KeepDims=True)
    return b.made([x], [y])


def resize(
    rng: np.random.Generator, kind: str, factor: int = 2, dtype: str = "int8", align: bool = False, half: bool = False
) -> ModelBuilder:
    """RESIZE_NEAREST_NEIGHBOR or RESIZE_BILINEAR."""
    b = ModelBuilder()
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    size = (5, 6)
    out = tuple((n - 1) * factor + 1 if align else n * factor for n in size)
    x = b.tensor((1, *size, 7), dtype, scale, zero)
    s = b.constant(np.array(out, np.int32))
    y = b.tensor((1, *out, 7), dtype, scale, zero)
    table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    b.operator(kind, [x, s], [y], table, 3, AlignCorners=align, HalfPixelCenters=half)
    return b.made([x], [y])


def pad(rng: np.random.Generator, amounts: tuple[tuple[int, int], ...], dtype: str = "int8") -> ModelBuilder:
    """PAD."""
    b = ModelBuilder()
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    shape = (1, 5, 6, 10)
    x = b.tensor(shape, dtype, scale, zero)
    p = b.constant(np.array(amounts, np.int32))
    out = tuple(n + lo + hi for n, (lo, hi) in zip(shape, amounts, strict=True))
    y = b.tensor(out, dtype, scale, zero)
    b.operator("PAD", [x, p], [y], "PadOptions", 2)
    return b.made([x], [y])


def strided_slice(
    rng: np.random.Generator, begin: list[int], end: list[int], strides: list[int], dtype: str = "int8"
) -> ModelBuilder:
    """STRIDED_SLICE of a [1, 8, 9, 10] tensor."""
    b = ModelBuilder()
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    x = b.tensor((1, 8, 9, 10), dtype, scale, zero)
    parts = [b.constant(np.array(v, np.int32)) for v in (begin, end, strides)]
    out = tuple(-(-(e - s) // st) for s, e, st in zip(begin, end, strides, strict=True))
    y = b.tensor(out, dtype, scale, zero)
    b.operator("STRIDED_SLICE", [x, *parts], [y], "StridedSliceOptions", 2)
    return b.made([x], [y])


def concatenation(
    rng: np.random.Generator, axis: int, dtype: str = "int8", depths: tuple[int, int] = (7, 9)
) -> ModelBuilder:
    """CONCATENATION of two tensors with one quantisation."""
    b = ModelBuilder()
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    shapes = []
    for size in depths:
        shape = [1, 5, 6, 10]
        shape[axis] = size
        shapes.append(tuple(shape))
    out = list(shapes[0])
    out[axis] = sum(depths)
    x, y = (b.tensor(s, dtype, scale, zero) for s in shapes)
    z = b.tensor(out, dtype, scale, zero)
    b.operator("CONCATENATION", [x, y], [z], "ConcatenationOptions", 2, Axis=axis)
    return b.made([x, y], [z])


def split(rng: np.random.Generator, axis: int, count: int, dtype: str = "int8") -> ModelBuilder:
    """SPLIT into equal parts."""
    b = ModelBuilder()
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    shape = [1, 6, 8, 12]
    a = b.constant(np.array(axis, np.int32))
    x = b.tensor(shape, dtype, scale, zero)
    shape[axis] //= count
    parts = [b.tensor(shape, dtype, scale, zero) for _ in range(count)]
    b.operator("SPLIT", [a, x], parts, "SplitOptions", 2, NumSplits=count)
    return b.made([x], parts)


def transpose(rng: np.random.Generator, order: tuple[int, ...], dtype: str = "int8") -> ModelBuilder:
    """TRANSPOSE."""
    b = ModelBuilder()
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    shape = (1, 5, 6, 10)[-len(order) :]
    x = b.tensor(shape, dtype, scale, zero)
    p = b.constant(np.array(order, np.int32))
    y = b.tensor(tuple(shape[i] for i in order), dtype, scale, zero)
    b.operator("TRANSPOSE", [x, p], [y], "TransposeOptions", 2)
    return b.made([x], [y])


def batch_matmul(rng: np.random.Generator, dtype: str = "int8") -> ModelBuilder:
    """BATCH_MATMUL of two variable tensors."""
    b = ModelBuilder()
    scale = _scale(rng, dtype)
    x = b.tensor((1, 2, 6, 8), dtype, scale, _zero(rng, dtype))
    y = b.tensor((1, 2, 8, 5), dtype, scale, _zero(rng, dtype))
    z = b.tensor((1, 2, 6, 5), dtype, scale * 4, _zero(rng, dtype))
    b.operator("BATCH_MATMUL", [x, y], [z], "BatchMatMulOptions", 4)
    return b.made([x, y], [z])


def argmax(rng: np.random.Generator, dtype: str = "int8") -> ModelBuilder:
    """ARG_MAX over the depth."""
    b = ModelBuilder()
    x = b.tensor((1, 5, 6, 10), dtype, _scale(rng, dtype), _zero(rng, dtype))
    a = b.constant(np.array([3], np.int32))
    y = b.tensor((1, 5, 6), "int32")
    b.operator("ARG_MAX", [x, a], [y], "ArgMaxOptions", 2, OutputType=2)
    return b.made([x], [y])


def reshape(rng: np.random.Generator, dtype: str = "int8") -> ModelBuilder:
    """RESHAPE followed by nothing: a copy."""
    b = ModelBuilder()
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    x = b.tensor((1, 5, 6, 10), dtype, scale, zero)
    s = b.constant(np.array([1, 30, 10], np.int32))
    y = b.tensor((1, 30, 10), dtype, scale, zero)
    b.operator("RESHAPE", [x, s], [y], "ReshapeOptions", 1, NewShape=[1, 30, 10])
    return b.made([x], [y])


def pack(rng: np.random.Generator, axis: int, dtype: str = "int8") -> ModelBuilder:
    """PACK of two tensors."""
    b = ModelBuilder()
    scale, zero = _scale(rng, dtype), _zero(rng, dtype)
    x, y = (b.tensor((5, 6, 10), dtype, scale, zero) for _ in range(2))
    out = [5, 6, 10]
    out.insert(axis, 2)
    z = b.tensor(out, dtype, scale, zero)
    b.operator("PACK", [x, y], [z], "PackOptions", 2, ValuesCount=2, Axis=axis)
    return b.made([x, y], [z])


def _case(group: str, label: str, function: Callable[..., ModelBuilder], /, **options: Any) -> Case:
    return Case(f"{group}_{label}", group, lambda rng: function(rng, **options))


def all_cases() -> Iterator[Case]:
    """Every case, in a fixed order."""
    yield from _convolutions()
    yield from _pools_and_dense()
    yield from _elementwise()
    yield from _data_movement()


def _convolutions() -> Iterator[Case]:
    for k in ((1, 1), (2, 2), (3, 3), (5, 5), (1, 7), (7, 1), (9, 9), (13, 3)):
        yield _case("conv", f"k{k[0]}x{k[1]}", convolution, kernel=k, shape=(14, 13, 5))
    for s in ((2, 2), (3, 3), (1, 2), (2, 1)):
        for padding in (SAME, VALID):
            yield _case("conv", f"s{s[0]}x{s[1]}_{padding}", convolution, stride=s, padding=padding)
    for d in ((2, 2), (1, 2), (2, 1), (4, 4)):
        yield _case("conv", f"d{d[0]}x{d[1]}", convolution, dilation=d, shape=(13, 14, 6))
    yield _case("conv", "d2_k5_valid", convolution, dilation=(2, 2), kernel=(5, 5), padding=VALID, shape=(13, 14, 6))
    for depth, channels in ((1, 8), (3, 16), (16, 16), (17, 33), (32, 64), (40, 20), (64, 130)):
        yield _case("conv", f"i{depth}_o{channels}", convolution, shape=(6, 5, depth), channels=channels)
        yield _case(
            "conv", f"1x1_i{depth}_o{channels}", convolution, shape=(6, 5, depth), channels=channels, kernel=(1, 1)
        )
    yield _case("conv", "k5s2", convolution, kernel=(5, 5), stride=(2, 2), shape=(15, 15, 4))
    yield _case("conv", "k7s2", convolution, kernel=(7, 7), stride=(2, 2), shape=(20, 20, 3), channels=16)
    yield _case("conv", "k10x4s2", convolution, kernel=(10, 4), stride=(2, 2), shape=(49, 10, 1), channels=64)
    yield _case("conv", "relu", convolution, activation=1)
    yield _case("conv", "relu6", convolution, activation=3)
    yield _case("conv", "row", convolution, kernel=(1, 3), shape=(1, 40, 12))
    yield _case("conv", "column", convolution, kernel=(3, 1), shape=(40, 1, 12))
    for dtype in ("uint8", "int16"):
        for k in ((1, 1), (3, 3), (5, 5)):
            yield _case("conv", f"{dtype}_k{k[0]}", convolution, kernel=k, dtype=dtype)
        yield _case(
            "conv", f"{dtype}_s2_i20_o24", convolution, stride=(2, 2), shape=(9, 8, 20), channels=24, dtype=dtype
        )
    yield _case("conv", "int16_narrow_bias", convolution, dtype="int16", wide_bias=False)
    for k in ((1, 1), (3, 3), (5, 5), (3, 7), (9, 9)):
        for padding in (SAME, VALID):
            yield _case(
                "depthwise",
                f"k{k[0]}x{k[1]}_{padding}",
                convolution,
                kernel=k,
                depthwise=True,
                padding=padding,
                shape=(12, 13, 10),
            )
    for s in ((2, 2), (3, 3), (1, 2)):
        yield _case("depthwise", f"s{s[0]}x{s[1]}", convolution, stride=s, depthwise=True, shape=(12, 13, 24))
    for d in ((2, 2), (1, 2), (2, 1)):
        yield _case("depthwise", f"d{d[0]}x{d[1]}", convolution, dilation=d, depthwise=True, shape=(12, 13, 9))
    for m in (2, 8):
        yield _case("depthwise", f"multiplier{m}", convolution, depthwise=True, multiplier=m, shape=(9, 8, 1))
    for c in (1, 3, 8, 16, 17, 64, 100):
        yield _case("depthwise", f"c{c}", convolution, depthwise=True, shape=(7, 8, c))
    yield _case("depthwise", "relu6", convolution, depthwise=True, activation=3)
    for dtype in ("uint8", "int16"):
        yield _case("depthwise", dtype, convolution, depthwise=True, dtype=dtype)
        yield _case("depthwise", f"{dtype}_s2", convolution, depthwise=True, dtype=dtype, stride=(2, 2), kernel=(5, 5))
    for k, s in ((2, 2), (3, 2), (4, 2), (3, 1)):
        yield _case("transpose_conv", f"k{k}_s{s}", transpose_convolution, kernel=k, stride=s)
    yield _case("transpose_conv", "valid", transpose_convolution, padding=VALID)


def _pools_and_dense() -> Iterator[Case]:
    for inputs, outputs in ((1, 1), (8, 8), (40, 17), (256, 10), (1000, 40), (33, 200)):
        yield _case("dense", f"{inputs}_{outputs}", fully_connected, inputs=inputs, outputs=outputs)
    yield _case("dense", "batch4", fully_connected, batch=4)
    yield _case("dense", "relu", fully_connected, activation=1)
    yield _case("dense", "int16", fully_connected, dtype="int16")
    for kind in ("MAX", "AVERAGE"):
        for k, s in (((2, 2), (2, 2)), ((3, 3), (1, 1)), ((3, 3), (2, 2)), ((2, 5), (1, 3))):
            for padding in (SAME, VALID):
                name = f"{kind.lower()}_k{k[0]}x{k[1]}_s{s[0]}x{s[1]}_{padding}"
                yield _case("pool", name, pool, kind=kind, kernel=k, stride=s, padding=padding)
        for dtype in ("uint8", "int16"):
            if (kind, dtype) == ("AVERAGE", "uint8"):
                continue  # averages round away from zero, so the int8 twin is not the same
            yield _case("pool", f"{kind.lower()}_{dtype}", pool, kind=kind, dtype=dtype)
        yield _case("pool", f"{kind.lower()}_relu", pool, kind=kind, activation=1)
        yield _case("pool", f"{kind.lower()}_c33", pool, kind=kind, shape=(8, 8, 33))
    yield _case("pool", "average_int16_same", pool, kind="AVERAGE", dtype="int16", kernel=(3, 3), padding=SAME)
    yield _case("pool", "average_global", pool, kind="AVERAGE", kernel=(9, 10), stride=(1, 1))
    yield _case("pool", "average_40x40", pool, kind="AVERAGE", kernel=(40, 40), stride=(1, 1), shape=(40, 40, 5))
    for axes in ((1, 2), (1,), (2,), (3,)):
        for dtype in ("int8", "int16"):
            yield _case("mean", f"{'_'.join(map(str, axes))}_{dtype}", mean, axes=axes, dtype=dtype)
    yield _case("mean", "large", mean, axes=(1, 2), shape=(1, 70, 80, 5))


def _elementwise() -> Iterator[Case]:
    base = (1, 6, 7, 9)
    others = {
        "same": base,
        "scalar": (1, 1, 1, 1),
        "channel": (1, 1, 1, 9),
        "row": (1, 1, 7, 9),
        "column": (1, 6, 1, 9),
        "plane": (1, 6, 7, 1),
    }
    for name in ("ADD", "SUB", "MUL"):
        for label, second in others.items():
            yield _case(name.lower(), label, binary, name=name, second=second, ratio=0.7)
        for dtype in ("uint8", "int16"):
            yield _case(name.lower(), dtype, binary, name=name, dtype=dtype, ratio=1.6)
        yield _case(name.lower(), "constant", binary, name=name, constant=True)
        yield _case(name.lower(), "constant_channel", binary, name=name, constant=True, second=(1, 1, 1, 9))
        yield _case(name.lower(), "wide_ratio", binary, name=name, ratio=17.3)
        yield _case(name.lower(), "relu", binary, name=name, activation=1)
        yield _case(name.lower(), "c40", binary, name=name, first=(1, 4, 5, 40), second=(1, 4, 5, 40), ratio=0.3)
    yield _case("sub", "reverse_scalar", binary, name="SUB", second=(1, 1, 1, 1), reverse=True)
    yield _case("sub", "reverse_channel", binary, name="SUB", second=(1, 1, 1, 9), reverse=True)
    yield _case("add", "both_broadcast", binary, first=(1, 6, 1, 9), second=(1, 1, 7, 1))
    yield _case("add", "int16_channel", binary, dtype="int16", second=(1, 1, 1, 9))
    yield _case("add", "same_scale_int16", binary, dtype="int16", same=True)
    for name in ("MAXIMUM", "MINIMUM"):
        for dtype in ("int8", "uint8", "int16"):
            yield _case(name.lower(), dtype, binary, name=name, dtype=dtype, same=True)
        yield _case(name.lower(), "channel", binary, name=name, second=(1, 1, 1, 9), same=True)
    yield _case("squared_difference", "int8", binary, name="SQUARED_DIFFERENCE", ratio=0.8)
    for dtype in ("int8", "int16"):
        yield _case("leaky_relu", dtype, unary, name="LEAKY_RELU", dtype=dtype, options="LeakyReluOptions", Alpha=0.1)
        yield _case("abs", dtype, unary, name="ABS", dtype=dtype, options="AbsOptions")
        yield _case("relu", dtype, unary, name="RELU", dtype=dtype)
        unit = (1 / 32768, 0) if dtype == "int16" else (1 / 256, -128)
        both = (1 / 32768, 0) if dtype == "int16" else (1 / 128, 0)
        scale = 8 / 32768 if dtype == "int16" else 0.05
        yield _case("logistic", dtype, unary, name="LOGISTIC", dtype=dtype, out=unit, in_scale=scale)
        yield _case("tanh", dtype, unary, name="TANH", dtype=dtype, out=both, in_scale=scale)
        yield _case(
            "softmax",
            dtype,
            unary,
            name="SOFTMAX",
            dtype=dtype,
            out=unit if dtype == "int8" else both,
            options="SoftmaxOptions",
            shape=(1, 10),
            in_scale=0.08 if dtype == "int8" else 0.001,
            Beta=1.0,
        )
    yield _case(
        "logistic", "int16_odd_scale", unary, name="LOGISTIC", dtype="int16", out=(1 / 32768, 0), in_scale=0.00031
    )
    yield _case("tanh", "int16_odd_scale", unary, name="TANH", dtype="int16", out=(1 / 32768, 0), in_scale=0.00037)
    yield _case(
        "softmax",
        "rows",
        unary,
        name="SOFTMAX",
        out=(1 / 256, -128),
        options="SoftmaxOptions",
        shape=(1, 5, 6, 17),
        Beta=1.0,
    )
    yield _case(
        "softmax",
        "wide",
        unary,
        name="SOFTMAX",
        out=(1 / 256, -128),
        options="SoftmaxOptions",
        shape=(1, 1000),
        Beta=1.0,
    )
    yield _case("hard_swish", "int8", unary, name="HARD_SWISH", options="HardSwishOptions")
    yield _case("rsqrt", "int8", rsqrt_int8)
    yield _case("logistic", "int16_wide", unary, name="LOGISTIC", dtype="int16", out=(1 / 32768, 0), in_scale=0.0008)
    yield _case("tanh", "int16_wide", unary, name="TANH", dtype="int16", out=(1 / 32768, 0), in_scale=0.0004)
    yield _case("prelu", "channel", prelu)
    yield _case("prelu", "scalar", prelu, per_channel=False)
    for source, target in (
        ("int8", "int8"),
        ("int16", "int16"),
        ("int8", "int16"),
        ("int16", "int8"),
        ("uint8", "int8"),
        ("int8", "uint8"),
    ):
        yield _case("quantize", f"{source}_{target}", quantize, source=source, target=target)
    yield _case("matmul", "int8", batch_matmul)
    yield _case("matmul", "int16", batch_matmul, dtype="int16")


def rsqrt_int8(rng: np.random.Generator) -> ModelBuilder:
    """RSQRT, whose input must not be negative."""
    b = ModelBuilder()
    x = b.tensor((1, 5, 6, 10), "int8", 0.05, -128)
    y = b.tensor((1, 5, 6, 10), "int8", 0.02, -128)
    b.operator("RSQRT", [x], [y], None, 1)
    return b.made([x], [y])


def _data_movement() -> Iterator[Case]:
    for factor in (2, 4):
        yield _case("nearest", f"x{factor}", resize, kind="RESIZE_NEAREST_NEIGHBOR", factor=factor)
        yield _case("bilinear", f"x{factor}", resize, kind="RESIZE_BILINEAR", factor=factor)
    yield _case("bilinear", "x8", resize, kind="RESIZE_BILINEAR", factor=8)
    yield _case("bilinear", "align", resize, kind="RESIZE_BILINEAR", align=True)
    yield _case("bilinear", "half", resize, kind="RESIZE_BILINEAR", half=True)
    yield _case("nearest", "int16", resize, kind="RESIZE_NEAREST_NEIGHBOR", dtype="int16")
    yield _case("pad", "rows", pad, amounts=((0, 0), (1, 2), (0, 0), (0, 0)))
    yield _case("pad", "plane", pad, amounts=((0, 0), (1, 2), (3, 1), (0, 0)))
    yield _case("pad", "depth", pad, amounts=((0, 0), (0, 0), (0, 0), (2, 5)))
    yield _case("pad", "int16", pad, amounts=((0, 0), (1, 1), (1, 1), (0, 0)), dtype="int16")
    yield _case("slice", "box", strided_slice, begin=[0, 1, 2, 3], end=[1, 7, 8, 9], strides=[1, 1, 1, 1])
    yield _case("slice", "stride2", strided_slice, begin=[0, 0, 1, 0], end=[1, 8, 9, 10], strides=[1, 2, 2, 1])
    yield _case(
        "slice", "int16", strided_slice, begin=[0, 2, 0, 4], end=[1, 8, 9, 10], strides=[1, 1, 1, 1], dtype="int16"
    )
    for axis in (1, 2, 3):
        yield _case("concat", f"axis{axis}", concatenation, axis=axis)
    yield _case("concat", "depth16", concatenation, axis=3, depths=(16, 32))
    yield _case("concat", "int16", concatenation, axis=3, dtype="int16")
    for axis, count in ((1, 2), (2, 4), (3, 3)):
        yield _case("split", f"axis{axis}_{count}", split, axis=axis, count=count)
    yield _case("transpose", "hw", transpose, order=(0, 2, 1, 3))
    yield _case("transpose", "wc", transpose, order=(0, 1, 3, 2))
    yield _case("transpose", "matrix", transpose, order=(1, 0))
    yield _case("argmax", "depth", argmax)
    yield _case("reshape", "int8", reshape)
    yield _case("pack", "axis0", pack, axis=0)
    yield _case("pack", "axis3", pack, axis=3)
