"""A window operator that reads a part of a tensor of several images: Vela 5.2's stream for it is wrong.

Invariant: weights and sizes are fixed; the output is `[batch, 6, 4, 3]` (convolution) or that of the part.
"""

from __future__ import annotations

import numpy as np

from tests.support.tflite_builder import ModelBuilder

_WINDOW = {"StrideH": 1, "StrideW": 1}


def split_then(consumer: str, batch: int, axis: int = 3, slicer: str = "SPLIT") -> bytes:
    """`slicer` along `axis` (`UNPACK`: along a new first one), then `consumer`, which reads the second half."""
    b, rng = ModelBuilder(), np.random.default_rng(1)
    shape = [batch, 6, 4, 8]
    if slicer == "UNPACK":
        shape, axis = [2, *shape], 0
    half = shape[1:] if slicer == "UNPACK" else [n // 2 if i == axis else n for i, n in enumerate(shape)]
    x, part = b.tensor(shape, "int8", 0.1, 3), b.tensor(half, "int8", 0.1, 3)
    if slicer == "UNPACK":
        b.operator("UNPACK", [x], [b.tensor(half, "int8", 0.1, 3), part], "UnpackOptions", Num=2, Axis=axis)
    elif slicer == "SPLIT":
        place, other = b.constant(np.array(axis, np.int32)), b.tensor(half, "int8", 0.1, 3)
        b.operator("SPLIT", [place, x], [other, part], "SplitOptions", NumSplits=2)
    elif slicer == "SPLIT_V":
        sizes, place = b.constant(np.array([half[axis]] * 2, np.int32)), b.constant(np.array(axis, np.int32))
        other = b.tensor(half, "int8", 0.1, 3)
        b.operator("SPLIT_V", [x, sizes, place], [other, part], "SplitVOptions", NumSplits=2)
    else:
        begin = [n - m for n, m in zip(shape, half, strict=True)]
        bounds = (begin, half) if slicer == "SLICE" else (begin, shape, [1] * 4)
        b.operator(slicer, [x, *(b.constant(np.array(v, np.int32)) for v in bounds)], [part],
                   "SliceOptions" if slicer == "SLICE" else "StridedSliceOptions")  # fmt: skip
    return b.made([x], [_consumer(b, rng, consumer, part, half)]).finish()


def _consumer(b: ModelBuilder, rng: np.random.Generator, kind: str, part: int, shape: list[int]) -> int:
    channels = shape[3]
    if kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
        out = b.tensor(shape, "int8", 0.1, 3)
        b.operator(kind, [part], [out], "Pool2DOptions", **_WINDOW, FilterHeight=2, FilterWidth=3)
        return out
    if kind in ("REDUCE_MAX", "REDUCE_MIN"):
        out = b.tensor((*shape[:3], 1), "int8", 0.1, 3)
        b.operator(kind, [part, b.constant(np.array([3], np.int32))], [out], "ReducerOptions", 2, KeepDims=True)
        return out
    if kind == "ADD":
        out, other = b.tensor(shape, "int8", 0.2, -5), b.constant(rng.integers(-99, 99, shape).astype(np.int8), 0.1, 2)
        b.operator("ADD", [part, other], [out], "AddOptions")
        return out
    deep = kind == "CONV_2D"
    made, axis = (3, 0) if deep else (channels, 3)
    weights = rng.integers(-127, 128, (made, 1, 3, channels) if deep else (1, 1, 3, channels)).astype(np.int8)
    more = {} if deep else {"DepthMultiplier": 1}
    out = b.tensor((*shape[:3], made), "int8", 0.5, -5)
    inputs = [part, b.constant(weights, 0.01, axis=axis), b.constant(np.zeros(made, np.int32), 0.001)]
    b.operator(kind, inputs, [out], "Conv2DOptions" if deep else "DepthwiseConv2DOptions", **_WINDOW, **more,
               DilationHFactor=1, DilationWFactor=1)  # fmt: skip
    return out
