"""One model for each kind of operator and type, by which `npu_memplan.exactness` is held to what it says.

Invariant: a row is (operator, type of its activations) -> a model of that operator alone; elements of
quantised types have one scale and zero point in all tensors where an operator only moves or chooses them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from tests.support.arithmetic_models import (
    SAME,
    argmax,
    batch_matmul,
    binary,
    convolution,
    fully_connected,
    mean,
    pool,
    prelu,
    quantize,
    rsqrt,
    transpose_convolution,
    unary,
)
from tests.support.movement_models import concatenation, pack, pad, reshape, resize, split, strided_slice, transpose
from tests.support.plain_models import PLAIN_ROWS, Make, drawn, extents
from tests.support.random_values import PLAIN, random_scale, random_zero
from tests.support.recurrent_models import lstm_layer, svdf
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder


class Elements:
    """Tensors of one type and quantisation."""

    def __init__(self, rng: np.random.Generator, dtype: str) -> None:
        self.b, self.rng, self.dtype = ModelBuilder(), rng, dtype
        self.scale, self.zero = random_scale(rng, dtype), random_zero(rng, dtype)

    def tensor(self, shape: tuple[int, ...]) -> int:
        return self.b.tensor(shape, self.dtype, self.scale, self.zero)

    def constant(self, shape: tuple[int, ...]) -> int:
        values = self.rng.integers(0, 2 if self.dtype == "bool" else 100, shape).astype(self.dtype)
        return self.b.constant(values, self.scale, self.zero)

    def indices(self, shape: tuple[int, ...], extent: int, dtype: str = "int32") -> int:
        return self.b.constant(self.rng.integers(0, extent, shape).astype(dtype))


def _made(make: Callable[[Elements], ModelBuilder]) -> Make:
    return lambda rng, dtype: make(Elements(rng, dtype))


def _cast(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """To types that one reference has from this one; quantised types are stored numbers here."""
    b = ModelBuilder()
    others = ("int8", "int16", "int32", "float32", "uint32")
    targets = {"int64": ("int32", "float32", "int8"), "uint8": ("float32", "int32")}.get(dtype, others)
    shape = extents(rng, 3)
    target = drawn(rng, *(t for t in targets if t != dtype and (dtype, t) != ("float32", "uint32")))
    x, y = b.tensor(shape, dtype), b.tensor(shape, str(target))
    b.operator("CAST", [x], [y], "CastOptions")
    return b.made([x], [y])


def _select(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 4)
    narrow = tuple(1 if e.rng.random() < 0.4 else n for n in shape)
    condition = e.b.tensor(narrow if e.rng.random() < 0.5 else shape, "bool")
    x, y, z = e.tensor(shape), e.tensor(narrow), e.tensor(shape)
    e.b.operator("SELECT_V2", [condition, x, y], [z], "SelectV2Options")
    return e.b.made([condition, x, y], [z])


def _select_same(e: Elements) -> ModelBuilder:
    """Without broadcasting but for a condition of one number a row."""
    shape = extents(e.rng, 3)
    condition = e.b.tensor(shape[:1] if e.rng.random() < 0.5 else shape, "bool")
    x, y, z = (e.tensor(shape) for _ in range(3))
    e.b.operator("SELECT", [condition, x, y], [z], "SelectOptions")
    return e.b.made([condition, x, y], [z])


def _gather_nd(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    depth, many = int(e.rng.integers(1, 4)), extents(e.rng, 2)
    places = np.stack([e.rng.integers(0, n, many) for n in shape[:depth]], -1).astype(np.int32)
    x, i, y = e.tensor(shape), e.b.constant(places), e.tensor((*many, *shape[depth:]))
    e.b.operator("GATHER_ND", [x, i], [y], "GatherNdOptions")
    return e.b.made([x], [y])


def _embedding(e: Elements) -> ModelBuilder:
    rows, columns, many = extents(e.rng, 3)
    i, x, y = e.indices((many,), rows), e.tensor((rows, columns)), e.tensor((many, columns))
    e.b.operator("EMBEDDING_LOOKUP", [i, x], [y])
    return e.b.made([x], [y])


def _one_hot(e: Elements) -> ModelBuilder:
    many, depth = extents(e.rng, 2)
    axis = int(e.rng.integers(-1, 2))
    i, d = e.indices((many,), depth), e.b.constant(np.array(depth, np.int32))
    on, off = e.constant(()), e.tensor(())
    y = e.tensor((depth, many) if axis == 0 else (many, depth))
    e.b.operator("ONE_HOT", [i, d, on, off], [y], "OneHotOptions", Axis=axis)
    return e.b.made([off], [y])


def _fill(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    s, x, y = e.b.constant(np.array(shape, np.int32)), e.tensor(()), e.tensor(shape)
    e.b.operator("FILL", [s, x], [y], "FillOptions")
    return e.b.made([x], [y])


def _zeros(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    x, y = e.tensor(shape), e.tensor(shape)
    e.b.operator("ZEROS_LIKE", [x], [y], "ZerosLikeOptions")
    return e.b.made([x], [y])


def _rank(e: Elements) -> ModelBuilder:
    x, y = e.tensor(extents(e.rng, int(e.rng.integers(1, 5)))), e.b.tensor((), "int32")
    e.b.operator("RANK", [x], [y], "RankOptions")
    return e.b.made([x], [y])


def _tile(e: Elements) -> ModelBuilder:
    shape, times = extents(e.rng, 3, 4), extents(e.rng, 3, 4)
    x, m = e.tensor(shape), e.b.constant(np.array(times, np.int32))
    y = e.tensor(tuple(n * t for n, t in zip(shape, times, strict=True)))
    e.b.operator("TILE", [x, m], [y], "TileOptions")
    return e.b.made([x], [y])


def _update(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    part = tuple(int(e.rng.integers(1, n + 1)) for n in shape)
    x, u, s = e.tensor(shape), e.tensor(part), e.b.constant(e.rng.integers(-1, 5, 3).astype(np.int32))
    y = e.tensor(shape)
    e.b.operator("DYNAMIC_UPDATE_SLICE", [x, u, s], [y], "DynamicUpdateSliceOptions")
    return e.b.made([x, u], [y])


def _add_n(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    parts = [e.tensor(shape) for _ in range(int(e.rng.integers(2, 5)))]
    y = e.b.tensor(shape, e.dtype, e.scale * 2.3, e.zero)
    e.b.operator("ADD_N", parts, [y], "AddNOptions")
    return e.b.made(parts, [y])


def _cumsum(e: Elements) -> ModelBuilder:
    shape = extents(e.rng, 3)
    x, a = e.tensor(shape), e.b.constant(np.array(int(e.rng.integers(3)), np.int32))
    y = e.b.tensor(shape, e.dtype, e.scale * 2.3, e.zero)
    flags = {"Exclusive": bool(e.rng.integers(2)), "Reverse": bool(e.rng.integers(2))}
    e.b.operator("CUMSUM", [x, a], [y], "CumsumOptions", **flags)
    return e.b.made([x], [y])


def _shapes(e: Elements) -> ModelBuilder:
    """BROADCAST_ARGS of constants, whose type this is."""
    first = np.array(extents(e.rng, 3), e.dtype)
    second = np.where(e.rng.random(3) < 0.5, 1, first).astype(e.dtype)
    x, y, z = e.b.constant(first), e.b.constant(second), e.b.tensor((3,), e.dtype)
    e.b.operator("BROADCAST_ARGS", [x, y], [z])
    return e.b.made([], [z])


def _range(e: Elements) -> ModelBuilder:
    start, delta, many = int(e.rng.integers(-5, 5)), int(e.rng.integers(1, 4)), int(e.rng.integers(1, 9))
    numbers = [e.b.constant(np.array(n, e.dtype)) for n in (start, start + delta * many, delta)]
    y = e.b.tensor((many,), e.dtype)
    e.b.operator("RANGE", numbers, [y], "RangeOptions")
    return e.b.made([], [y])


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


TYPES = ("int8", "int16", "uint8")
_PLANE = (1, 6, 8, 12)
_WIDE = (1, 16, 16, 10)  # where rounding has to be met


def _moving(name: str, out: tuple[int, ...], options: str | None, *constants: object, **fields: object) -> Make:
    """An operator of one tensor and constants that gives another shape with the same quantisation."""

    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
        x = b.tensor(_PLANE, dtype, scale, zero)
        parts = [b.constant(np.asarray(c, np.int32)) for c in constants]
        y = b.tensor(out, dtype, scale, zero)
        b.operator(name, [x, *parts], [y], options, 1 if name in _OLD else 2, **fields)
        return b.made([x], [y])

    return make


_OLD = ("EXPAND_DIMS", "DEPTH_TO_SPACE", "REDUCE_ANY", "REDUCE_ALL", "RELU_N1_TO_1")  # LiteRT knows version 1 only


def _padv2(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    x = b.tensor(_PLANE, dtype, scale, zero)
    p = b.constant(np.array([[0, 0], [1, 2], [2, 1], [0, 0]], np.int32))
    v = b.constant(np.array([zero], dtype), scale, zero)
    y = b.tensor((1, 9, 11, 12), dtype, scale, zero)
    b.operator("PADV2", [x, p, v], [y], "PadV2Options", 2)
    return b.made([x], [y])


def _parts(name: str, options: str, shape: tuple[int, ...], **fields: object) -> Make:
    """SPLIT_V and UNPACK into two."""

    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
        x = b.tensor((1, 2, 8, 12) if name == "UNPACK" else _PLANE, dtype, scale, zero)
        extra = [b.constant(np.array([3, 3], np.int32)), b.constant(np.array(1, np.int32))] if name == "SPLIT_V" else []
        made = [b.tensor(shape, dtype, scale, zero) for _ in range(2)]
        b.operator(name, [x, *extra], made, options, 2, **fields)
        return b.made([x], made)

    return make


def _reduced(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
        x, axes = b.tensor(_PLANE, dtype, scale, zero), b.constant(np.array([1, 2], np.int32))
        sums = name == "SUM"
        y = b.tensor((1, 1, 1, 12), dtype, scale * (31 if sums else 1), random_zero(rng, dtype) if sums else zero)
        b.operator(name, [x, axes], [y], "ReducerOptions", 2, KeepDims=True)
        return b.made([x], [y])

    return make


def _gather(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    x, i = b.tensor(_PLANE, dtype, scale, zero), b.constant(np.array([5, 0, 3, 3], np.int32))
    y = b.tensor((*_PLANE[:3], 4), dtype, scale, zero)
    b.operator("GATHER", [x, i], [y], "GatherOptions", 2, Axis=3)  # what the NPU gathers
    return b.made([x], [y])


def _compared(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = ModelBuilder()
        x, y = (b.tensor(_PLANE, dtype, random_scale(rng, dtype), random_zero(rng, dtype)) for _ in range(2))
        z = b.tensor(_PLANE, "bool")
        b.operator(name, [x, y], [z], None, 2)
        return b.made([x, y], [z])

    return make


def _argmin(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = argmax(rng, dtype)
    _, inputs, outputs, _, _, version = b.operators[0]
    b.operators[0] = ("ARG_MIN", inputs, outputs, "ArgMinOptions", {"OutputType": 2}, version)
    return b


def _div(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """By numbers that are not zero."""
    b = ModelBuilder()
    x = b.tensor(_PLANE, dtype, 0.05, random_zero(rng, dtype))
    low = {"uint8": 10, "int8": -118, "int16": 10}[dtype]
    y = b.constant(rng.integers(low, low + 100, _PLANE).astype(dtype), 0.04, low - 9 if dtype != "int16" else 0)
    z = b.tensor(_PLANE, dtype, 0.03, random_zero(rng, dtype))
    b.operator("DIV", [x, y], [z], "DivOptions", 2)
    return b.made([x], [z])


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
        b = unary(rng, name, dtype=dtype, in_scale=scale, out=out, options=options, shape=_WIDE, **fields)
        if name in ("HARD_SWISH", "GELU"):  # LiteRT knows version 1 only
            b.operators[0] = (*b.operators[0][:5], 1)
        return b

    return make


def _alike(name: str, options: str | None = None) -> Make:
    """An operator of one tensor whose output is quantised as its input."""

    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        b = unary(rng, name, dtype=dtype, options=options, shape=_WIDE)
        b.operators[0] = (*b.operators[0][:5], 1)
        return b

    return make


def _exp(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    fine = 2**-8 if dtype == "int16" else 1
    out = 0.05 * fine, random_zero(rng, dtype)
    return unary(rng, "EXP", dtype=dtype, in_scale=0.02 * fine, out=out, shape=_WIDE)


def _gelu(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    return _other_scale("GELU", "GeluOptions", Approximate=bool(rng.integers(2)))(rng, dtype)


def _log(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """Of numbers from zero on, or some below."""
    b = ModelBuilder()
    fine = 2**-8 if dtype == "int16" else 1
    x = b.tensor(_WIDE, dtype, 0.03 * fine, 0 if dtype == "int16" else -128 + int(rng.integers(0, 2)) * 20)
    y = b.tensor(_WIDE, dtype, float(rng.uniform(0.02, 0.05)) * fine, random_zero(rng, dtype))
    b.operator("LOG", [x], [y])
    return b.made([x], [y])


def _square(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    return binary(rng, "SQUARED_DIFFERENCE", _WIDE, _WIDE, dtype=dtype, ratio=0.8)


def _arithmetic(name: str) -> Make:
    return lambda rng, dtype: binary(rng, name, _WIDE, _WIDE, dtype=dtype, ratio=0.7)


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
    "ARG_MIN": _argmin,
    **{name: _compared(name) for name in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")},
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
    "SPLIT_V": _parts("SPLIT_V", "SplitVOptions", (1, 3, 8, 12), NumSplits=2),
    "PACK": lambda rng, dtype: pack(rng, 0, dtype),
    "UNPACK": _parts("UNPACK", "UnpackOptions", (1, 8, 12), Num=2, Axis=1),
    "SLICE": _moving("SLICE", (1, 3, 5, 12), "SliceOptions", [0, 1, 2, 0], [1, 3, 5, 12]),
    "STRIDED_SLICE": lambda rng, dtype: strided_slice(rng, [0, 0, 1, 0], [1, 8, 9, 10], [1, 2, 2, 1], dtype),
    "TRANSPOSE": lambda rng, dtype: transpose(rng, (0, 2, 1, 3), dtype),
    "REVERSE_V2": _moving("REVERSE_V2", _PLANE, "ReverseV2Options", [1]),
    "GATHER": _gather,
    "BROADCAST_TO": _moving("BROADCAST_TO", (2, 6, 8, 12), "BroadcastToOptions", [2, 6, 8, 12]),
    "DEPTH_TO_SPACE": _moving("DEPTH_TO_SPACE", (1, 12, 16, 3), "DepthToSpaceOptions", BlockSize=2),
    "SPACE_TO_DEPTH": _moving("SPACE_TO_DEPTH", (1, 3, 4, 48), "SpaceToDepthOptions", BlockSize=2),
    "SPACE_TO_BATCH_ND": _moving("SPACE_TO_BATCH_ND", (4, 3, 4, 12), "SpaceToBatchNDOptions", [2, 2], [[0, 0], [0, 0]]),
}


def _batches(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    x = b.tensor((4, 3, 4, 12), dtype, scale, zero)
    block, crops = (b.constant(np.array(v, np.int32)) for v in ([2, 2], [[0, 0], [0, 0]]))
    y = b.tensor((1, 6, 8, 12), dtype, scale, zero)
    b.operator("BATCH_TO_SPACE_ND", [x, block, crops], [y], "BatchToSpaceNDOptions", 2)
    return b.made([x], [y])


def _dequantize(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    x, y = b.tensor(_WIDE, dtype, random_scale(rng, dtype), random_zero(rng, dtype)), b.tensor(_WIDE, "float32")
    b.operator("DEQUANTIZE", [x], [y], "DequantizeOptions", 2)
    return b.made([x], [y])


def _lstm(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    x = b.tensor((1, 3, 7), dtype, 0.03 if dtype == "int8" else 0.0004, 4 if dtype == "int8" else 0)
    return b.made([x], [lstm_layer(b, x, dtype=dtype, clip=float(rng.integers(2)) * 4)])


def _shape(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    x, y = b.tensor(_PLANE, dtype, random_scale(rng, dtype), random_zero(rng, dtype)), b.tensor((4,), "int32")
    b.operator("SHAPE", [x], [y], "ShapeOptions", 1, OutType=2)
    return b.made([x], [y])


def _requantized(rng: np.random.Generator, dtype: str) -> ModelBuilder:
    """From int8 and int16 to themselves, from other types to int8."""
    if dtype not in ("int32", "float32"):
        return quantize(rng, dtype, "int8" if dtype == "uint8" else dtype)
    b = ModelBuilder()
    x = b.tensor(_WIDE, "float32") if dtype == "float32" else b.tensor(_WIDE, "int32", 1e-9, 0)
    y = b.tensor(_WIDE, "int8", 0.03, -7)
    b.operator("QUANTIZE", [x], [y], "QuantizeOptions", 2)
    return b.made([x], [y])


def _wide_extreme(name: str) -> Make:
    def make(rng: np.random.Generator, dtype: str) -> ModelBuilder:
        if dtype != "int32":
            return binary(rng, name, dtype=dtype, same=True)
        b = ModelBuilder()
        x, y, z = (b.tensor(_PLANE, "int32") for _ in range(3))
        b.operator(name, [x, y], [z], "MaximumMinimumOptions", 2)
        return b.made([x, y], [z])

    return make


ROWS |= {
    "BATCH_TO_SPACE_ND": _batches,
    "DEQUANTIZE": _dequantize,
    "MAXIMUM": _wide_extreme("MAXIMUM"),
    "MINIMUM": _wide_extreme("MINIMUM"),
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
