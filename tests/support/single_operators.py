"""Models of a single operator, over shapes, strides, paddings, dilations, precisions and broadcasts.

Invariant: a case is determined by its name: weights, scales and zero points come from a generator seeded with
it. To cover another operator, add a function to `operator_models`, and a line here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.operator_models import (
    SAME,
    VALID,
    argmax,
    batch_matmul,
    binary,
    concatenation,
    convolution,
    fully_connected,
    mean,
    pack,
    pad,
    pool,
    prelu,
    quantize,
    reshape,
    resize,
    rsqrt,
    split,
    strided_slice,
    transpose,
    transpose_convolution,
    unary,
)
from tests.support.tflite_builder import ModelBuilder


@dataclass(frozen=True)
class Case:
    """One model: `build()` makes the TFLite file."""

    name: str
    group: str
    make: Callable[[np.random.Generator], ModelBuilder]

    def build(self) -> bytes:
        """The file; the same bytes each time."""
        return self.make(np.random.default_rng(zlib.crc32(self.name.encode()))).finish()


def _case(group: str, label: str, function: Callable[..., ModelBuilder], /, **options: Any) -> Case:
    return Case(f"{group}_{label}", group, lambda rng: function(rng, **options))


def all_cases() -> Iterator[Case]:
    """Every case, in a fixed order."""
    yield from _convolutions()
    yield from _pools_and_dense()
    yield from _elementwise()
    yield from _data_movement()


def case(name: str) -> Case:
    """The case of this name."""
    return next(c for c in all_cases() if c.name == name)


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
        yield _case(name.lower(), "constant", binary, name=name, is_constant=True)
        yield _case(name.lower(), "constant_channel", binary, name=name, is_constant=True, second=(1, 1, 1, 9))
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
    yield _case("rsqrt", "int8", rsqrt, dtype="int8")
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
