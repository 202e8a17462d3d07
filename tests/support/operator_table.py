"""One model for each kind of operator and type, by which `npu_memplan.exactness` is held to what it says.

Invariant: a row is (operator, type of its activations) -> a model of that operator alone. Elements of quantised types
have one scale and zero point in all tensors where an operator only moves or chooses them. Of plain numbers (float32,
int32, int64 and bool), shapes, axes and options are drawn from the generator.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.support.operator_models import (
    SAME,
    argmax,
    batch_matmul,
    binary,
    concatenation,
    convolution,
    fully_connected,
    lstm_layer,
    mean,
    move,
    pack,
    pad,
    pool,
    prelu,
    quantize,
    random_tensor,
    reshape,
    resize,
    rsqrt,
    split,
    strided_slice,
    svdf,
    transpose,
    transpose_convolution,
    unary,
)
from tests.support.random_values import PLAIN, random_scale, random_zero
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

Make = Callable[[np.random.Generator, str], ModelBuilder]
_OLD = ("EXPAND_DIMS", "DEPTH_TO_SPACE", "REDUCE_ANY", "REDUCE_ALL", "RELU_N1_TO_1")  # LiteRT knows version 1 only


def drawn(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def extents(rng: np.random.Generator, rank: int, most: int = 7) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, most, rank))


# -- plain numbers ---------------------------------------------------------------------------------


def plain_values(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers that neither overflow nor are all alike."""
    if dtype == "bool":
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    if dtype == "float32":
        return (rng.standard_normal(tuple(shape)) * 3).astype(np.float32)
    return rng.integers(-40, 41, tuple(shape)).astype(dtype)


def _plain(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> TensorSpec:
    """A constant."""
    return constant(plain_values(rng, shape, dtype), dtype)


def _unary(name: str, options: str | None = None, rank: int | None = None, **fields: object) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        x = TensorSpec(extents(rng, rank or int(rng.integers(1, 5)), 9), dtype)
        return single_operator(name, [x], [x], options, **{k: v(rng) if callable(v) else v for k, v in fields.items()})

    return make


def _binary(name: str, options: str | None = None, out: str | None = None, whole: bool = False) -> Make:
    """Two inputs, one of which may be broadcast, or a constant without zeros where `whole`."""

    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        shape = extents(rng, int(rng.integers(1, 5)))
        other = tuple(1 if rng.random() < 0.3 else n for n in shape)
        if rng.random() < 0.3:
            other = other[1:] or (1,)
        y = TensorSpec(other, dtype)
        if whole:
            values = plain_values(rng, other, dtype)
            y = constant(np.where(values == 0, 3, values), dtype)
        activations = (0, 1, 3) if dtype == "float32" and options else (0,)
        fused = {"FusedActivationFunction": drawn(rng, *activations)} if options else {}
        return single_operator(name, [TensorSpec(shape, dtype), y], [TensorSpec(shape, out or dtype)], options, **fused)

    return make


def _add_any(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    shape, count = extents(rng, 3), int(rng.integers(2, 5))
    return single_operator("ADD_N", [TensorSpec(shape, dtype)] * count, [TensorSpec(shape, dtype)], "AddNOptions")


def _reduced_any(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        rank = int(rng.integers(2, 5))
        shape = extents(rng, rank)
        axes = sorted(rng.permutation(rank)[: int(rng.integers(1, rank))].tolist())
        keep = bool(rng.random() < 0.5)
        out = tuple(1 if a in axes else n for a, n in enumerate(shape) if keep or a not in axes)
        inputs, version = [TensorSpec(shape, dtype), constant(axes)], 1 if name == "REDUCE_ANY" else 2
        return single_operator(name, inputs, [TensorSpec(out, dtype)], "ReducerOptions", version, KeepDims=keep)

    return make


def _arg(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        rank = int(rng.integers(1, 5))
        shape, axis = extents(rng, rank), int(rng.integers(rank))
        inputs = [TensorSpec(shape, dtype), constant([axis - rank * int(rng.integers(2))])]
        y = TensorSpec(shape[:axis] + shape[axis + 1 :], "int32")
        return single_operator(name, inputs, [y], f"Arg{name[4:].capitalize()}Options", 2, OutputType=2)

    return make


def _cumsum_any(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    rank = int(rng.integers(1, 4))
    x, axis = TensorSpec(extents(rng, rank), dtype), constant(int(rng.integers(rank)))
    flags = {"Exclusive": bool(rng.integers(2)), "Reverse": bool(rng.integers(2))}
    return single_operator("CUMSUM", [x, axis], [x], "CumsumOptions", **flags)


def _window(rng: np.random.Generator, size: tuple[int, int]) -> tuple[tuple[int, int], dict[str, int], list[int]]:
    """The kernel, stride and padding as options, and the output's height and width."""
    kernel = tuple(int(k) for k in rng.integers(1, 4, 2))
    stride = tuple(int(s) for s in rng.integers(1, 4, 2))
    padding = int(rng.integers(2))
    out = [-(-n // s) if padding == 0 else (n - k) // s + 1 for n, k, s in zip(size, kernel, stride, strict=True)]
    return (kernel[0], kernel[1]), {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1]}, out


def _weighted(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        depthwise = name == "DEPTHWISE_CONV_2D"
        size = tuple(int(n) for n in rng.integers(5, 9, 2))
        kernel, fields, out = _window(rng, size)
        groups, each = (1, 1) if depthwise else (int(rng.integers(1, 3)), int(rng.integers(1, 4)))
        channels = int(rng.integers(1, 5)) if depthwise else groups * each
        filters = channels * int(rng.integers(1, 3)) if depthwise else groups * int(rng.integers(1, 4))
        w = _plain(rng, (1, *kernel, filters) if depthwise else (filters, *kernel, each), dtype)
        inputs = [TensorSpec((1, *size, channels), dtype), w, _plain(rng, (filters,), dtype)]
        fields |= {"DilationHFactor": 1, "DilationWFactor": 1, "FusedActivationFunction": drawn(rng, 0, 1, 3)}
        fields |= {"DepthMultiplier": filters // channels} if depthwise else {}
        options = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        return single_operator(name, inputs, [TensorSpec((1, *out, filters), dtype)], options, **fields)

    return make


def _transposed(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    size, kernel, stride = (tuple(int(n) for n in rng.integers(lo, hi, 2)) for lo, hi in ((2, 5), (1, 5), (1, 4)))
    padding = int(rng.integers(2))
    out = [n * s if padding == 0 else (n - 1) * s + k for n, s, k in zip(size, stride, kernel, strict=True)]
    channels, filters = (int(n) for n in rng.integers(1, 4, 2))
    w, x = _plain(rng, (filters, *kernel, channels), dtype), TensorSpec((1, *size, channels), dtype)
    inputs = [constant([1, *out, filters]), w, x, _plain(rng, (filters,), dtype)]
    fields = {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1]}
    y = TensorSpec((1, *out, filters), dtype)
    return single_operator("TRANSPOSE_CONV", inputs, [y], "TransposeConvOptions", 3, **fields)


def _dense(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    rows, depth, units = extents(rng, 3, 12)
    inputs = [TensorSpec((rows, depth), dtype), _plain(rng, (units, depth), dtype), _plain(rng, (units,), dtype)]
    fields = {"FusedActivationFunction": drawn(rng, 0, 1)}
    return single_operator(
        "FULLY_CONNECTED", inputs, [TensorSpec((rows, units), dtype)], "FullyConnectedOptions", **fields
    )


def _matrices(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    stack, rows, depth, columns = extents(rng, 4)
    turned = [bool(t) for t in rng.integers(0, 2, 2)]
    x = TensorSpec((2, stack, *((depth, rows) if turned[0] else (rows, depth))), dtype)
    second = 1 if rng.random() < 0.3 else stack
    y = TensorSpec((2, second, *((columns, depth) if turned[1] else (depth, columns))), dtype)
    z, fields = TensorSpec((2, stack, rows, columns), dtype), {"AdjX": turned[0], "AdjY": turned[1]}
    return single_operator("BATCH_MATMUL", [x, y], [z], "BatchMatMulOptions", **fields)


def _pooled(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        size = tuple(int(n) for n in rng.integers(4, 9, 2))
        kernel, fields, out = _window(rng, size)
        depth = int(rng.integers(1, 5))
        x, y = TensorSpec((2, *size, depth), dtype), TensorSpec((2, *out, depth), dtype)
        fields |= {"FilterHeight": kernel[0], "FilterWidth": kernel[1], "FusedActivationFunction": drawn(rng, 0, 1, 3)}
        return single_operator(name, [x], [y], "Pool2DOptions", **fields)

    return make


def _prelu(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    x = TensorSpec(extents(rng, 4), dtype)
    return single_operator("PRELU", [x, _plain(rng, x.shape[int(rng.integers(1, 4)) :], dtype)], [x])


def _bilinear(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    (height, width), out = (tuple(int(n) for n in rng.integers(2, 9, 2)) for _ in range(2))
    inputs, y = [TensorSpec((1, height, width, 3), dtype), constant(out)], TensorSpec((1, *out, 3), dtype)
    align, half = ((False, False), (True, False), (False, True))[int(rng.integers(3))]
    fields = {"AlignCorners": align, "HalfPixelCenters": half}
    return single_operator("RESIZE_BILINEAR", inputs, [y], "ResizeBilinearOptions", 3, **fields)


def _svdf(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    batches, depth, units, memory, rank = (int(n) for n in rng.integers(1, 6, 5))
    memory, filters = memory + 1, units * rank
    fixed = [_plain(rng, shape, dtype) for shape in ((filters, depth), (filters, memory), (units,))]
    state = TensorSpec((batches, filters * memory), dtype, is_variable=True)
    inputs, fields = [TensorSpec((batches, depth), dtype), *fixed, state], {"FusedActivationFunction": drawn(rng, 0, 1)}
    return single_operator("SVDF", inputs, [TensorSpec((batches, units), dtype)], "SVDFOptions", Rank=rank, **fields)


def _lstm_of_floats(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    batches, steps, depth, units = extents(rng, 4)
    major = bool(rng.integers(2))
    axes = (steps, batches) if major else (batches, steps)
    shapes = [*[(units, depth)] * 4, *[(units, units)] * 4, *[(units,)] * 4]
    given = [constant(plain_values(rng, shape, dtype) / 4, dtype) for shape in shapes]
    states = [TensorSpec((batches, units), dtype, is_variable=True)] * 2
    inputs = [TensorSpec((*axes, depth), dtype), *given[:8], *[None] * 3, *given[8:], *[None] * 2, *states, *[None] * 4]
    fields = {"FusedActivationFunction": 4, "CellClip": drawn(rng, 0.0, 0.5), "TimeMajor": major}
    name, options, y = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions", (*axes, units)
    return single_operator(name, inputs, [TensorSpec(y, dtype)], options, **fields)


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
    "ADD_N": _add_any,
    **{name: _reduced_any(name) for name in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")},
    **{name: _reduced_any(name) for name in ("REDUCE_ANY", "REDUCE_ALL")},
    "ARG_MAX": _arg("ARG_MAX"),
    "ARG_MIN": _arg("ARG_MIN"),
    "CUMSUM": _cumsum_any,
    "CONV_2D": _weighted("CONV_2D"),
    "DEPTHWISE_CONV_2D": _weighted("DEPTHWISE_CONV_2D"),
    "TRANSPOSE_CONV": _transposed,
    "FULLY_CONNECTED": _dense,
    "BATCH_MATMUL": _matrices,
    **{name: _pooled(name) for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")},
    "PRELU": _prelu,
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm_of_floats,
    "RESIZE_BILINEAR": _bilinear,
}


# -- any type: operators that only move or choose elements -----------------------------------------


class Elements:
    """Tensors of one type and quantisation."""

    def __init__(self, rng: np.random.Generator, dtype: str) -> None:
        self.rng, self.dtype, self.tensor = rng, dtype, random_tensor(rng, dtype)
        self.scale, self.zero = self.tensor(()).scale, self.tensor(()).zero_point

    def constant(self, shape: tuple[int, ...]) -> TensorSpec:
        values = self.rng.integers(0, 2 if self.dtype == "bool" else 100, shape)
        return constant(values, self.dtype, self.scale, self.zero)

    def indices(self, shape: tuple[int, ...], extent: int) -> TensorSpec:
        return constant(self.rng.integers(0, extent, shape))


def _made(make: Callable[[Elements], ModelBuilder]) -> Make:
    return lambda rng, dtype: make(Elements(rng, dtype))


def _cast(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """To types that one reference has from this one; quantised types are stored numbers here."""
    others = ("int8", "int16", "int32", "float32", "uint32")
    targets = {"int64": ("int32", "float32", "int8"), "uint8": ("float32", "int32")}.get(dtype, others)
    shape = extents(rng, 3)
    target = drawn(rng, *(t for t in targets if t != dtype and (dtype, t) != ("float32", "uint32")))
    return single_operator("CAST", [TensorSpec(shape, dtype)], [TensorSpec(shape, target)], "CastOptions")


def _select(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 4)
    narrow = tuple(1 if e.rng.random() < 0.4 else n for n in shape)
    condition = TensorSpec(narrow if e.rng.random() < 0.5 else shape, "bool")
    inputs = [condition, e.tensor(shape), e.tensor(narrow)]
    return single_operator("SELECT_V2", inputs, [e.tensor(shape)], "SelectV2Options")


def _select_same(e: Elements) -> ModelBuilder:
    """Without broadcasting but for a condition of one number a row."""
    shape = extents(e.rng, 3)
    condition, x = TensorSpec(shape[:1] if e.rng.random() < 0.5 else shape, "bool"), e.tensor(shape)
    return single_operator("SELECT", [condition, x, x], [x], "SelectOptions")


def _gather_nd(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    depth, many = int(e.rng.integers(1, 4)), extents(e.rng, 2)
    places = constant(np.stack([e.rng.integers(0, n, many) for n in shape[:depth]], -1))
    return single_operator(
        "GATHER_ND", [e.tensor(shape), places], [e.tensor((*many, *shape[depth:]))], "GatherNdOptions"
    )


def _embedding(e: Elements) -> ModelBuilder:
    rows, columns, many = extents(e.rng, 3)
    inputs = [e.indices((many,), rows), e.tensor((rows, columns))]
    return single_operator("EMBEDDING_LOOKUP", inputs, [e.tensor((many, columns))])


def _one_hot(e: Elements) -> ModelBuilder:
    many, depth = extents(e.rng, 2)
    axis = int(e.rng.integers(-1, 2))
    inputs = [e.indices((many,), depth), constant(depth), e.constant(()), e.tensor(())]
    y = e.tensor((depth, many) if axis == 0 else (many, depth))
    return single_operator("ONE_HOT", inputs, [y], "OneHotOptions", Axis=axis)


def _fill(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    return single_operator("FILL", [constant(shape), e.tensor(())], [e.tensor(shape)], "FillOptions")


def _zeros(e: Elements) -> ModelBuilder:
    x = e.tensor(extents(e.rng, 3))
    return single_operator("ZEROS_LIKE", [x], [x], "ZerosLikeOptions")


def _rank(e: Elements) -> ModelBuilder:
    x = e.tensor(extents(e.rng, int(e.rng.integers(1, 5))))
    return single_operator("RANK", [x], [TensorSpec((), "int32")], "RankOptions")


def _tile(e: Elements) -> ModelBuilder:
    shape, times = extents(e.rng, 3, 4), extents(e.rng, 3, 4)
    y = e.tensor(tuple(n * t for n, t in zip(shape, times, strict=True)))
    return single_operator("TILE", [e.tensor(shape), constant(times)], [y], "TileOptions")


def _update(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    part = tuple(int(e.rng.integers(1, n + 1)) for n in shape)
    inputs = [e.tensor(shape), e.tensor(part), constant(e.rng.integers(-1, 5, 3))]
    return single_operator("DYNAMIC_UPDATE_SLICE", inputs, [e.tensor(shape)], "DynamicUpdateSliceOptions")


def _add_n(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    parts = [e.tensor(shape)] * int(e.rng.integers(2, 5))
    return single_operator("ADD_N", parts, [TensorSpec(shape, e.dtype, e.scale * 2.3, e.zero)], "AddNOptions")


def _cumsum(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    inputs, y = [e.tensor(shape), constant(int(e.rng.integers(3)))], TensorSpec(shape, e.dtype, e.scale * 2.3, e.zero)
    flags = {"Exclusive": bool(e.rng.integers(2)), "Reverse": bool(e.rng.integers(2))}
    return single_operator("CUMSUM", inputs, [y], "CumsumOptions", **flags)


def _shapes(e: Elements) -> ModelBuilder:
    """BROADCAST_ARGS of constants, whose type this is."""
    first = np.array(extents(e.rng, 3), e.dtype)
    second = np.where(e.rng.random(3) < 0.5, 1, first)
    inputs = [constant(first, e.dtype), constant(second, e.dtype)]
    return single_operator("BROADCAST_ARGS", inputs, [TensorSpec((3,), e.dtype)])


def _range(e: Elements) -> ModelBuilder:
    start, delta, many = int(e.rng.integers(-5, 5)), int(e.rng.integers(1, 4)), int(e.rng.integers(1, 9))
    numbers = [constant(n, e.dtype) for n in (start, start + delta * many, delta)]
    return single_operator("RANGE", numbers, [TensorSpec((many,), e.dtype)], "RangeOptions")


CHOOSING_ROWS: dict[str, Make] = {
    "CAST": _cast,
    "SELECT": _made(_select_same),
    "SELECT_V2": _made(_select),
    "GATHER_ND": _made(_gather_nd),
    "EMBEDDING_LOOKUP": _made(_embedding),
    "ONE_HOT": _made(_one_hot),
    "FILL": _made(_fill),
    "ZEROS_LIKE": _made(_zeros),
    "RANK": _made(_rank),
    "TILE": _made(_tile),
    "DYNAMIC_UPDATE_SLICE": _made(_update),
    "BROADCAST_ARGS": _made(_shapes),
    "RANGE": _made(_range),
}
SUMMING_ROWS: dict[str, Make] = {"ADD_N": _made(_add_n), "CUMSUM": _made(_cumsum)}  # of quantised types


# -- quantised types -------------------------------------------------------------------------------

TYPES = ("int8", "int16", "uint8")
_PLANE = (1, 6, 8, 12)
_WIDE = (1, 16, 16, 10)  # where rounding has to be met


def _moving(name: str, out: tuple[int, ...], options: str, *constants: object, **fields: object) -> Make:
    """An operator of one tensor and constants that gives another shape with the same quantisation."""
    shape, version = (4, 3, 4, 12) if name == "BATCH_TO_SPACE_ND" else _PLANE, 1 if name in _OLD else 2
    return lambda rng, dtype: move(rng, name, shape, out, options, *constants, dtype=dtype, version=version, **fields)


def _random(rng: np.random.Generator, dtype: str, shape: Sequence[int] = _PLANE) -> TensorSpec:
    """A tensor of a quantisation of its own."""
    return random_tensor(rng, dtype)(shape)


def _padv2(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    e = Elements(rng, dtype)
    inputs = [e.tensor(_PLANE), constant([[0, 0], [1, 2], [2, 1], [0, 0]]), constant([e.zero], dtype, e.scale, e.zero)]
    return single_operator("PADV2", inputs, [e.tensor((1, 9, 11, 12))], "PadV2Options", 2)


def _parts(name: str, shape: tuple[int, ...], out: tuple[int, ...], *constants: object, **fields: object) -> Make:
    """SPLIT_V and UNPACK into two."""

    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        tensor, options = random_tensor(rng, dtype), "SplitVOptions" if name == "SPLIT_V" else "UnpackOptions"
        return single_operator(
            name, [tensor(shape), *map(constant, constants)], [tensor(out)] * 2, options, 2, **fields
        )

    return make


def _reduced(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        e, out = Elements(rng, dtype), (1, 1, 1, 12)
        y = TensorSpec(out, dtype, e.scale * 31, random_zero(rng, dtype)) if name == "SUM" else e.tensor(out)
        return single_operator(name, [e.tensor(_PLANE), constant([1, 2])], [y], "ReducerOptions", 2, KeepDims=True)

    return make


def _gather(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """What the NPU gathers."""
    return move(rng, "GATHER", _PLANE, (*_PLANE[:3], 4), "GatherOptions", [5, 0, 3, 3], dtype=dtype, Axis=3)


def _compared(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        pair = [_random(rng, dtype), _random(rng, dtype)]
        return single_operator(name, pair, [TensorSpec(_PLANE, "bool")], None, 2)

    return make


def _div(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """By numbers that are not zero."""
    x = TensorSpec(_PLANE, dtype, 0.05, random_zero(rng, dtype))
    low = {"uint8": 10, "int8": -118, "int16": 10}[dtype]
    y = constant(rng.integers(low, low + 100, _PLANE), dtype, 0.04, low - 9 if dtype != "int16" else 0)
    return single_operator("DIV", [x, y], [TensorSpec(_PLANE, dtype, 0.03, random_zero(rng, dtype))], "DivOptions", 2)


def _squashed(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        one = name == "LOGISTIC"
        out = {"int16": (1 / 32768, 0), "int8": (1 / 256, -128) if one else (1 / 128, 0),
               "uint8": (1 / 256, 0) if one else (1 / 128, 128)}[dtype]  # fmt: skip
        return unary(rng, name, dtype=dtype, out=out, in_scale=8 / 32768 if dtype == "int16" else 0.05, shape=_WIDE)

    return make


def _softmax(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    out = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}[dtype]
    scale = 0.001 if dtype == "int16" else 0.08
    options = {"options": "SoftmaxOptions", "shape": (40, 17), "in_scale": scale, "Beta": 1.0}
    return unary(rng, "SOFTMAX", dtype=dtype, out=out, **options)


def _log_softmax(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    out = (1 / 16, 127 if dtype == "int8" else 255)
    return unary(rng, "LOG_SOFTMAX", dtype=dtype, out=out, shape=(40, 17), in_scale=0.08)


def _l2(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    out = (1 / 128, 128 if dtype == "uint8" else 0)
    return unary(rng, "L2_NORMALIZATION", dtype=dtype, out=out, options="L2NormOptions", shape=(40, 17))


def _other_scale(name: str, options: str | None = None, **fields: object) -> Make:
    """An operator of one tensor whose output has another scale than its input."""

    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        scale = random_scale(rng, dtype)
        out = (scale * 0.71, random_zero(rng, dtype))
        version = 1 if name in ("HARD_SWISH", "GELU") else 2  # LiteRT knows version 1 only
        quantised: dict[str, Any] = {"dtype": dtype, "in_scale": scale, "out": out}
        return unary(rng, name, options=options, shape=_WIDE, version=version, **quantised, **fields)

    return make


def _alike(name: str, options: str | None = None) -> Make:
    """An operator of one tensor whose output is quantised as its input."""
    return lambda rng, dtype: unary(rng, name, dtype=dtype, options=options, shape=_WIDE, version=1)


def _exp(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    fine = 2**-8 if dtype == "int16" else 1
    out = 0.05 * fine, random_zero(rng, dtype)
    return unary(rng, "EXP", dtype=dtype, in_scale=0.02 * fine, out=out, shape=_WIDE)


def _gelu(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    return _other_scale("GELU", "GeluOptions", Approximate=bool(rng.integers(2)))(rng, dtype)


def _log(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """Of numbers from zero on, or some below."""
    fine = 2**-8 if dtype == "int16" else 1
    x = TensorSpec(_WIDE, dtype, 0.03 * fine, 0 if dtype == "int16" else -128 + int(rng.integers(0, 2)) * 20)
    y = TensorSpec(_WIDE, dtype, float(rng.uniform(0.02, 0.05)) * fine, random_zero(rng, dtype))
    return single_operator("LOG", [x], [y])


def _square(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    return binary(rng, "SQUARED_DIFFERENCE", _WIDE, _WIDE, dtype=dtype, ratio=0.8)


def _arithmetic(name: str) -> Make:
    return lambda rng, dtype: binary(rng, name, _WIDE, _WIDE, dtype=dtype, ratio=0.7)


def _dequantize(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    return single_operator(
        "DEQUANTIZE", [_random(rng, dtype, _WIDE)], [TensorSpec(_WIDE, "float32")], "DequantizeOptions", 2
    )


def _lstm(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    x = b.tensor((1, 3, 7), dtype, 0.03 if dtype == "int8" else 0.0004, 4 if dtype == "int8" else 0)
    return b.made([x], [lstm_layer(b, x, dtype=dtype, clip=float(rng.integers(2)) * 4)])


def _shape(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    return single_operator("SHAPE", [_random(rng, dtype)], [TensorSpec((4,), "int32")], "ShapeOptions", OutType=2)


def _requantized(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """From int8 and int16 to themselves, from other types to int8."""
    if dtype not in ("int32", "float32"):
        return quantize(rng, dtype, "int8" if dtype == "uint8" else dtype)
    x = TensorSpec(_WIDE, "float32") if dtype == "float32" else TensorSpec(_WIDE, "int32", 1e-9)
    return single_operator("QUANTIZE", [x], [TensorSpec(_WIDE, "int8", 0.03, -7)], "QuantizeOptions", 2)


def _extreme(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        if dtype != "int32":
            return binary(rng, name, dtype=dtype, same=True)
        x = TensorSpec(_PLANE, "int32")
        return single_operator(name, [x, x], [x], "MaximumMinimumOptions", 2)

    return make


ROWS: dict[str, Make] = {
    "CONV_2D": lambda rng, dtype: convolution(rng, dtype=dtype, shape=(16, 16, 7), channels=24),
    "DEPTHWISE_CONV_2D": lambda rng, dtype: convolution(rng, dtype=dtype, shape=(16, 16, 24), depthwise=True),
    "FULLY_CONNECTED": lambda rng, dtype: fully_connected(rng, inputs=33, outputs=50, batch=20, dtype=dtype),
    "TRANSPOSE_CONV": lambda rng, dtype: transpose_convolution(rng, dtype=dtype),
    "BATCH_MATMUL": lambda rng, dtype: batch_matmul(rng, dtype),
    "AVERAGE_POOL_2D": lambda rng, dtype: pool(rng, "AVERAGE", (3, 3), (2, 2), SAME, (20, 20, 9), dtype),
    "MAX_POOL_2D": lambda rng, dtype: pool(rng, "MAX", (3, 3), (2, 2), SAME, (20, 20, 9), dtype),
    "MEAN": lambda rng, dtype: mean(rng, (1, 2), dtype, (1, 9, 10, 100)),
    **{name: _reduced(name) for name in ("SUM", "REDUCE_MAX", "REDUCE_MIN")},
    **{name: _arithmetic(name) for name in ("ADD", "SUB", "MUL")},
    "SQUARED_DIFFERENCE": _square,
    "DIV": _div,
    "PRELU": lambda rng, dtype: prelu(rng, dtype, shape=_WIDE),
    "RELU": _other_scale("RELU"),
    "RELU6": lambda rng, dtype: unary(rng, "RELU6", dtype=dtype),
    **{n: _alike(n) for n in ("RELU_0_TO_1", "RELU_N1_TO_1")},
    "GELU": _gelu,
    "LOG": _log,
    "NEG": _alike("NEG", "NegOptions"),
    "LEAKY_RELU": _other_scale("LEAKY_RELU", "LeakyReluOptions", Alpha=0.17),
    "ABS": _other_scale("ABS", "AbsOptions"),
    "ELU": _other_scale("ELU"),
    "HARD_SWISH": _other_scale("HARD_SWISH", "HardSwishOptions"),
    "EXP": _exp,
    **{name: _squashed(name) for name in ("LOGISTIC", "TANH")},
    "SOFTMAX": _softmax,
    "LOG_SOFTMAX": _log_softmax,
    "L2_NORMALIZATION": _l2,
    "ARG_MAX": argmax,
    "ARG_MIN": lambda rng, dtype: argmax(rng, dtype, "ARG_MIN"),
    **{name: _compared(name) for name in _COMPARED},
    "RESIZE_NEAREST_NEIGHBOR": lambda rng, dtype: resize(rng, "RESIZE_NEAREST_NEIGHBOR", dtype=dtype),
    "RESIZE_BILINEAR": lambda rng, dtype: resize(rng, "RESIZE_BILINEAR", dtype=dtype),
    "PAD": lambda rng, dtype: pad(rng, ((0, 0), (1, 2), (3, 1), (0, 0)), dtype),
    "PADV2": _padv2,
    "MIRROR_PAD": _moving("MIRROR_PAD", (1, 9, 11, 12), "MirrorPadOptions", [[0, 0], [1, 2], [2, 1], [0, 0]], Mode=0),
    "RESHAPE": reshape,
    "SQUEEZE": _moving("SQUEEZE", (6, 8, 12), "SqueezeOptions", SqueezeDims=[0]),
    "EXPAND_DIMS": _moving("EXPAND_DIMS", (1, 1, 6, 8, 12), "ExpandDimsOptions", 0),
    "CONCATENATION": lambda rng, dtype: concatenation(rng, 3, dtype),
    "SPLIT": lambda rng, dtype: split(rng, 3, 3, dtype),
    "SPLIT_V": _parts("SPLIT_V", _PLANE, (1, 3, 8, 12), [3, 3], 1, NumSplits=2),
    "PACK": lambda rng, dtype: pack(rng, 0, dtype),
    "UNPACK": _parts("UNPACK", (1, 2, 8, 12), (1, 8, 12), Num=2, Axis=1),
    "SLICE": _moving("SLICE", (1, 3, 5, 12), "SliceOptions", [0, 1, 2, 0], [1, 3, 5, 12]),
    "STRIDED_SLICE": lambda rng, dtype: strided_slice(rng, [0, 0, 1, 0], [1, 8, 9, 10], [1, 2, 2, 1], dtype),
    "TRANSPOSE": lambda rng, dtype: transpose(rng, (0, 2, 1, 3), dtype),
    "REVERSE_V2": _moving("REVERSE_V2", _PLANE, "ReverseV2Options", [1]),
    "GATHER": _gather,
    "BROADCAST_TO": _moving("BROADCAST_TO", (2, 6, 8, 12), "BroadcastToOptions", [2, 6, 8, 12]),
    "DEPTH_TO_SPACE": _moving("DEPTH_TO_SPACE", (1, 12, 16, 3), "DepthToSpaceOptions", BlockSize=2),
    "SPACE_TO_DEPTH": _moving("SPACE_TO_DEPTH", (1, 3, 4, 48), "SpaceToDepthOptions", BlockSize=2),
    "SPACE_TO_BATCH_ND": _moving("SPACE_TO_BATCH_ND", (4, 3, 4, 12), "SpaceToBatchNDOptions", [2, 2], [[0, 0], [0, 0]]),
    "BATCH_TO_SPACE_ND": _moving("BATCH_TO_SPACE_ND", (1, 6, 8, 12), "BatchToSpaceNDOptions", [2, 2], [[0, 0]] * 2),
    "DEQUANTIZE": _dequantize,
    "MAXIMUM": _extreme("MAXIMUM"),
    "MINIMUM": _extreme("MINIMUM"),
    "QUANTIZE": _requantized,
    "RSQRT": rsqrt,
    "SHAPE": _shape,
    "SVDF": lambda rng, dtype: svdf(rng),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}


def row(kind: str, dtype: str, number: int = 0) -> Case:
    """A model of a row; others of the same form, with other scales and weights, by `number`."""

    def make(rng: np.random.Generator) -> ModelBuilder:
        tables = (PLAIN_ROWS, CHOOSING_ROWS, ROWS) if dtype in PLAIN else (SUMMING_ROWS, CHOOSING_ROWS, ROWS)
        return next(table[kind] for table in tables if kind in table)(rng, dtype)

    return Case(f"{kind.lower()}_{dtype}" + (f"_{number}" if number else ""), kind, make)


def three(kind: str, dtype: str) -> Case:
    """Three models of a row beside each other in one."""
    cases = [row(kind, dtype, number) for number in range(3)]

    def make(_: np.random.Generator) -> ModelBuilder:
        parts = [case.make(np.random.default_rng(zlib.crc32(case.name.encode()))) for case in cases]
        return parts[0].beside(parts[1]).beside(parts[2])

    return Case(f"{kind.lower()}_{dtype}_three", kind, make)


KINDS = {*ROWS, *PLAIN_ROWS, *CHOOSING_ROWS, *SUMMING_ROWS}  # that there is a model of
