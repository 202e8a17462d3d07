"""Models of one operator on plain numbers: float32, int32, int64 and bool.

Invariant: a row is an operator -> (generator, type) -> a model of that operator alone; shapes, axes and options are
drawn from the generator, so another seed is another model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.support.tflite_builder import ModelBuilder

Make = Callable[[np.random.Generator, str], ModelBuilder]


def drawn(rng: np.random.Generator, *choices: object) -> object:
    return choices[int(rng.integers(len(choices)))]


def extents(rng: np.random.Generator, rank: int, most: int = 7) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, most, rank))


def plain_values(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers that neither overflow nor are all alike."""
    if dtype == "bool":
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    if dtype == "float32":
        return (rng.standard_normal(tuple(shape)) * 3).astype(np.float32)
    return rng.integers(-40, 41, tuple(shape)).astype(dtype)


def _unary(name: str, options: str | None = None, rank: int | None = None, **fields: object) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        shape = extents(rng, rank or int(rng.integers(1, 5)), 9)
        x, y = b.tensor(shape, dtype), b.tensor(shape, dtype)
        b.operator(name, [x], [y], options, 1, **{k: v(rng) if callable(v) else v for k, v in fields.items()})
        return b.made([x], [y])

    return make


def _binary(name: str, options: str | None = None, out: str | None = None, whole: bool = False) -> Make:
    """Two inputs, one of which may be broadcast, or a constant without zeros where `whole`."""

    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        shape = extents(rng, int(rng.integers(1, 5)))
        other = tuple(1 if rng.random() < 0.3 else n for n in shape)
        if rng.random() < 0.3:
            other = other[1:] or (1,)
        x = b.tensor(shape, dtype)
        if whole:
            values = plain_values(rng, other, dtype)
            y = b.constant(np.where(values == 0, 3, values).astype(dtype))
        else:
            y = b.tensor(other, dtype)
        z = b.tensor(shape, out or dtype)
        activations = (0, 1, 3) if dtype == "float32" and options else (0,)
        fused = {"FusedActivationFunction": drawn(rng, *activations)} if options else {}
        b.operator(name, [x, y], [z], options, 1, **fused)
        return b.made([x] if whole else [x, y], [z])

    return make


def _add_n(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    shape, count = extents(rng, 3), int(rng.integers(2, 5))
    parts = [b.tensor(shape, dtype) for _ in range(count)]
    y = b.tensor(shape, dtype)
    b.operator("ADD_N", parts, [y], "AddNOptions")
    return b.made(parts, [y])


def _reduced(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        rank = int(rng.integers(2, 5))
        shape = extents(rng, rank)
        axes = sorted(rng.permutation(rank)[: int(rng.integers(1, rank))].tolist())
        keep = bool(rng.random() < 0.5)
        out = tuple(1 if a in axes else n for a, n in enumerate(shape) if keep or a not in axes)
        x, a = b.tensor(shape, dtype), b.constant(np.array(axes, np.int32))
        y = b.tensor(out, dtype)
        b.operator(name, [x, a], [y], "ReducerOptions", 1 if name == "REDUCE_ANY" else 2, KeepDims=keep)
        return b.made([x], [y])

    return make


def _arg(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        rank = int(rng.integers(1, 5))
        shape, axis = extents(rng, rank), int(rng.integers(rank))
        x, a = b.tensor(shape, dtype), b.constant(np.array([axis - rank * int(rng.integers(2))], np.int32))
        y = b.tensor(tuple(n for i, n in enumerate(shape) if i != axis), "int32")
        b.operator(name, [x, a], [y], "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions", 2, OutputType=2)
        return b.made([x], [y])

    return make


def _cumsum(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    rank = int(rng.integers(1, 4))
    shape = extents(rng, rank)
    x, a = b.tensor(shape, dtype), b.constant(np.array(int(rng.integers(rank)), np.int32))
    y = b.tensor(shape, dtype)
    b.operator(
        "CUMSUM", [x, a], [y], "CumsumOptions", 1, Exclusive=bool(rng.integers(2)), Reverse=bool(rng.integers(2))
    )
    return b.made([x], [y])


def _window(rng: np.random.Generator, size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int], int, list[int]]:
    """(kernel, stride, padding, output's height and width)."""
    kernel = tuple(int(k) for k in rng.integers(1, 4, 2))
    stride = tuple(int(s) for s in rng.integers(1, 4, 2))
    padding = int(rng.integers(2))
    out = [-(-n // s) if padding == 0 else (n - k) // s + 1 for n, k, s in zip(size, kernel, stride, strict=True)]
    return kernel, stride, padding, out


def _weighted(depthwise: bool) -> Make:
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"

    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        size = tuple(int(n) for n in rng.integers(5, 9, 2))
        kernel, stride, padding, out = _window(rng, size)
        groups, each = (1, 1) if depthwise else (int(rng.integers(1, 3)), int(rng.integers(1, 4)))
        channels = int(rng.integers(1, 5)) if depthwise else groups * each
        filters = channels * int(rng.integers(1, 3)) if depthwise else groups * int(rng.integers(1, 4))
        x = b.tensor((1, *size, channels), dtype)
        w = b.constant(plain_values(rng, (1, *kernel, filters) if depthwise else (filters, *kernel, each), dtype))
        c = b.constant(plain_values(rng, (filters,), dtype))
        y = b.tensor((1, *out, filters), dtype)
        fields = {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1], "DilationHFactor": 1,
                  "DilationWFactor": 1, "FusedActivationFunction": drawn(rng, 0, 1, 3)}  # fmt: skip
        if depthwise:
            fields["DepthMultiplier"] = filters // channels
        b.operator(name, [x, w, c], [y], "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions", 1, **fields)
        return b.made([x], [y])

    return make


def _transposed(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    size, kernel, stride = (tuple(int(n) for n in rng.integers(lo, hi, 2)) for lo, hi in ((2, 5), (1, 5), (1, 4)))
    padding = int(rng.integers(2))
    out = [n * s if padding == 0 else (n - 1) * s + k for n, s, k in zip(size, stride, kernel, strict=True)]
    channels, filters = (int(n) for n in rng.integers(1, 4, 2))
    s = b.constant(np.array([1, *out, filters], np.int32))
    w, x = b.constant(plain_values(rng, (filters, *kernel, channels), dtype)), b.tensor((1, *size, channels), dtype)
    y, c = b.tensor((1, *out, filters), dtype), [b.constant(plain_values(rng, (filters,), dtype))]
    fields = {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1]}
    b.operator("TRANSPOSE_CONV", [s, w, x, *c], [y], "TransposeConvOptions", 3, **fields)
    return b.made([x], [y])


def _dense(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    rows, depth, units = extents(rng, 3, 12)
    x = b.tensor((rows, depth), dtype)
    w, c = (b.constant(plain_values(rng, shape, dtype)) for shape in ((units, depth), (units,)))
    y = b.tensor((rows, units), dtype)
    b.operator("FULLY_CONNECTED", [x, w, c], [y], "FullyConnectedOptions", 1, FusedActivationFunction=drawn(rng, 0, 1))
    return b.made([x], [y])


def _matrices(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    stack, rows, depth, columns = extents(rng, 4)
    turned = [bool(t) for t in rng.integers(0, 2, 2)]
    x = b.tensor((2, stack, *((depth, rows) if turned[0] else (rows, depth))), dtype)
    y = b.tensor((2, 1 if rng.random() < 0.3 else stack, *((columns, depth) if turned[1] else (depth, columns))), dtype)
    z = b.tensor((2, stack, rows, columns), dtype)
    b.operator("BATCH_MATMUL", [x, y], [z], "BatchMatMulOptions", 1, AdjX=turned[0], AdjY=turned[1])
    return b.made([x, y], [z])


def _pool(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        size = tuple(int(n) for n in rng.integers(4, 9, 2))
        kernel, stride, padding, out = _window(rng, size)
        depth = int(rng.integers(1, 5))
        x, y = b.tensor((2, *size, depth), dtype), b.tensor((2, *out, depth), dtype)
        fields = {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1], "FilterHeight": kernel[0],
                  "FilterWidth": kernel[1], "FusedActivationFunction": drawn(rng, 0, 1, 3)}  # fmt: skip
        b.operator(name, [x], [y], "Pool2DOptions", 1, **fields)
        return b.made([x], [y])

    return make


def _prelu(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    shape = extents(rng, 4)
    x, a = b.tensor(shape, dtype), b.constant(plain_values(rng, shape[int(rng.integers(1, 4)) :], dtype))
    y = b.tensor(shape, dtype)
    b.operator("PRELU", [x, a], [y])
    return b.made([x], [y])


def _bilinear(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    (height, width), out = (tuple(int(n) for n in rng.integers(2, 9, 2)) for _ in range(2))
    x, s, y = b.tensor((1, height, width, 3), dtype), b.constant(np.array(out, np.int32)), b.tensor((1, *out, 3), dtype)
    align, half = ((False, False), (True, False), (False, True))[int(rng.integers(3))]
    b.operator("RESIZE_BILINEAR", [x, s], [y], "ResizeBilinearOptions", 3, AlignCorners=align, HalfPixelCenters=half)
    return b.made([x], [y])


def _svdf(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    batches, depth, units, memory, rank = (int(n) for n in rng.integers(1, 6, 5))
    memory, filters = memory + 1, units * rank
    x = b.tensor((batches, depth), dtype)
    shapes = ((filters, depth), (filters, memory), (units,))
    f, t, c = (b.constant(plain_values(rng, shape, dtype)) for shape in shapes)
    s = b.tensor((batches, filters * memory), dtype, is_variable=True)
    y = b.tensor((batches, units), dtype)
    b.operator("SVDF", [x, f, t, c, s], [y], "SVDFOptions", 1, Rank=rank, FusedActivationFunction=drawn(rng, 0, 1))
    return b.made([x], [y])


def _lstm(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    batches, steps, depth, units = extents(rng, 4)
    major = bool(rng.integers(2))
    axes = (steps, batches) if major else (batches, steps)
    x, y = b.tensor((*axes, depth), dtype), b.tensor((*axes, units), dtype)
    shapes = [*[(units, depth)] * 4, *[(units, units)] * 4, *[(units,)] * 4]
    given = [b.constant((plain_values(rng, shape, dtype) / 4).astype(dtype)) for shape in shapes]
    states = [b.tensor((batches, units), dtype, is_variable=True) for _ in range(2)]
    inputs = [x, *given[:8], -1, -1, -1, *given[8:], -1, -1, *states, -1, -1, -1, -1]
    options = {"FusedActivationFunction": 4, "CellClip": drawn(rng, 0.0, 0.5), "TimeMajor": major}
    b.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], "UnidirectionalSequenceLSTMOptions", **options)
    return b.made([x], [y])


_COMPARED = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
_ACTIVE = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}

PLAIN_ROWS: dict[str, Make] = {
    **{name: _unary(name) for name in ("EXP", "LOG", "SQRT", "RSQRT", "SQUARE", "SIN", "COS", "NEG", "ABS", "FLOOR")},
    **{name: _unary(name) for name in ("CEIL", "ROUND", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LOGISTIC")},
    **{name: _unary(name) for name in ("TANH", "ELU", "HARD_SWISH", "LOGICAL_NOT", "LOG_SOFTMAX")},
    "LEAKY_RELU": _unary("LEAKY_RELU", "LeakyReluOptions", Alpha=lambda rng: float(rng.uniform(-1, 1))),
    "SOFTMAX": _unary("SOFTMAX", "SoftmaxOptions", 2, Beta=lambda rng: float(rng.uniform(0.3, 2))),
    "L2_NORMALIZATION": _unary("L2_NORMALIZATION", "L2NormOptions", 2),
    **{name: _binary(name, options, whole=name == "DIV") for name, options in _ACTIVE.items()},
    **{name: _binary(name) for name in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "LOGICAL_AND", "LOGICAL_OR")},
    **{name: _binary(name, whole=True) for name in ("FLOOR_DIV", "FLOOR_MOD")},
    **{name: _binary(name, out="bool") for name in _COMPARED},
    "ADD_N": _add_n,
    **{name: _reduced(name) for name in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")},
    **{name: _reduced(name) for name in ("REDUCE_ANY", "REDUCE_ALL")},
    "ARG_MAX": _arg("ARG_MAX"),
    "ARG_MIN": _arg("ARG_MIN"),
    "CUMSUM": _cumsum,
    "CONV_2D": _weighted(depthwise=False),
    "DEPTHWISE_CONV_2D": _weighted(depthwise=True),
    "TRANSPOSE_CONV": _transposed,
    "FULLY_CONNECTED": _dense,
    "BATCH_MATMUL": _matrices,
    **{name: _pool(name) for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")},
    "PRELU": _prelu,
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "RESIZE_BILINEAR": _bilinear,
}
