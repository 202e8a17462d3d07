"""Models of one operator that moves, repeats or cuts elements: pads, slices, concatenations, resizes."""

from __future__ import annotations

import numpy as np

from tests.support.random_values import random_scale, random_zero
from tests.support.tflite_builder import ModelBuilder


def resize(
    rng: np.random.Generator,
    kind: str,
    factor: int = 2,
    dtype: str = "int8",
    align: bool = False,
    half: bool = False,
    size: tuple[int, int] = (5, 6),
    out: tuple[int, int] | None = None,
) -> ModelBuilder:
    """RESIZE_NEAREST_NEIGHBOR or RESIZE_BILINEAR."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    out = out or tuple((n - 1) * factor + 1 if align else n * factor for n in size)
    x = b.tensor((1, *size, 7), dtype, scale, zero)
    s = b.constant(np.array(out, np.int32))
    y = b.tensor((1, *out, 7), dtype, scale, zero)
    table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    b.operator(kind, [x, s], [y], table, 3, AlignCorners=align, HalfPixelCenters=half)
    return b.made([x], [y])


def pad(rng: np.random.Generator, amounts: tuple[tuple[int, int], ...], dtype: str = "int8") -> ModelBuilder:
    """PAD."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
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
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
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
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
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


def tile(rng: np.random.Generator, shape: tuple[int, ...], times: tuple[int, ...], dtype: str = "int8") -> ModelBuilder:
    """TILE."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    x = b.tensor(shape, dtype, scale, zero)
    t = b.constant(np.array(times, np.int32))
    y = b.tensor(tuple(n * k for n, k in zip(shape, times, strict=True)), dtype, scale, zero)
    b.operator("TILE", [x, t], [y], version=2)
    return b.made([x], [y])


def split(rng: np.random.Generator, axis: int, count: int, dtype: str = "int8") -> ModelBuilder:
    """SPLIT into equal parts."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    shape = [1, 6, 8, 12]
    a = b.constant(np.array(axis, np.int32))
    x = b.tensor(shape, dtype, scale, zero)
    shape[axis] //= count
    parts = [b.tensor(shape, dtype, scale, zero) for _ in range(count)]
    b.operator("SPLIT", [a, x], parts, "SplitOptions", 2, NumSplits=count)
    return b.made([x], parts)


def transpose(
    rng: np.random.Generator, order: tuple[int, ...], dtype: str = "int8", shape: tuple[int, ...] = (1, 5, 6, 10)
) -> ModelBuilder:
    """TRANSPOSE of the last dimensions of `shape`."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    shape = shape[-len(order) :]
    x = b.tensor(shape, dtype, scale, zero)
    p = b.constant(np.array(order, np.int32))
    y = b.tensor(tuple(shape[i] for i in order), dtype, scale, zero)
    b.operator("TRANSPOSE", [x, p], [y], "TransposeOptions", 2)
    return b.made([x], [y])


def reshape(rng: np.random.Generator, dtype: str = "int8") -> ModelBuilder:
    """RESHAPE followed by nothing: a copy."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    x = b.tensor((1, 5, 6, 10), dtype, scale, zero)
    s = b.constant(np.array([1, 30, 10], np.int32))
    y = b.tensor((1, 30, 10), dtype, scale, zero)
    b.operator("RESHAPE", [x, s], [y], "ReshapeOptions", 1, NewShape=[1, 30, 10])
    return b.made([x], [y])


def pack(rng: np.random.Generator, axis: int, dtype: str = "int8") -> ModelBuilder:
    """PACK of two tensors."""
    b = ModelBuilder()
    scale, zero = random_scale(rng, dtype), random_zero(rng, dtype)
    x, y = (b.tensor((5, 6, 10), dtype, scale, zero) for _ in range(2))
    out = [5, 6, 10]
    out.insert(axis, 2)
    z = b.tensor(out, dtype, scale, zero)
    b.operator("PACK", [x, y], [z], "PackOptions", 2, ValuesCount=2, Axis=axis)
    return b.made([x, y], [z])
