"""Graphs of TOSA's operators with random numbers: shapes, strides and constants that layers do not have as they are.

Invariant: as in `tosa_operators`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .tosa_graphs import TosaFile
from .tosa_numbers import Random
from .tosa_numbers import limits as _limits
from .tosa_numbers import scales_about as _scales
from .tosa_numbers import widened as _wide
from .tosa_numbers import zero_point as _zero


def moves_of_many(rng: Random) -> bytes:
    """Stored values of five or six dimensions to other places."""
    file, rank = TosaFile(), int(rng.integers(5, 7))
    shape = tuple(int(v) for v in rng.integers(1, 5, rank))
    x = file.operator("RESHAPE", [file.input(int(np.prod(shape))), file.shape(*shape)], shape)
    for _ in range(2):
        axes = tuple(int(axis) for axis in rng.permutation(rank))
        shape = tuple(shape[axis] for axis in axes)
        x = file.operator("TRANSPOSE", [x], shape, attribute={0: axes})
    axis = int(rng.integers(rank))
    joined = tuple(2 * extent if i == axis else extent for i, extent in enumerate(shape))
    limited = file.operator("CLAMP", [x], shape, attribute=_limits(-50, 90))
    both = file.operator("CONCAT", [x, limited], joined, attribute={0: axis})
    begin = tuple(int(rng.integers(extent)) for extent in joined)
    size = tuple(extent - first for extent, first in zip(joined, begin, strict=True))
    part = file.operator("SLICE", [both, file.shape(*begin), file.shape(*size)], size)
    return file.finish(file.operator("REDUCE_MAX", [both], _without(joined, axis), attribute={0: axis, 1: 1}), part)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(1 if i == axis else extent for i, extent in enumerate(shape))


def reduced_images(rng: Random) -> bytes:
    """Sums along one axis of several images, which are limited before."""
    file, axis = TosaFile(), int(rng.integers(4))
    shape, zero = tuple(int(v) for v in rng.integers(2, 9, 4)), _zero(rng) // 4
    x = file.operator("CLAMP", [file.input(*shape)], shape, attribute=_limits(-100, 99))
    wide = file.rescale(x, shape, [(1 << 30, 30)], (zero, 0), ("int8", "int32"))
    sums = file.operator("REDUCE_SUM", [wide], _without(shape, axis), "int32", {0: axis})
    return file.finish(file.rescale(sums, _without(shape, axis), _scales(rng, 1, 0.2), (0, zero)), x)


def images(rng: Random) -> bytes:
    """Windows, sums with weights and broadcasts of several images."""
    file, (count, height, width, depth) = TosaFile(), (int(v) for v in rng.integers(2, 6, 4))
    shape, zero = (count, height, width, depth), _zero(rng)
    border = [file.input(*shape), file.shape(0, 0, 1, 2, 0, 1, 0, 0), file.constant([zero], "int8")]
    shape = (count, height + 3, width + 1, depth)
    x = file.operator("PAD", border, shape)
    pool = {0: (3, 2), 1: (1, 1), 2: (1, 1, 1, 0), 3: 1}
    x = file.operator("MAX_POOL2D", [x], shape, attribute=pool)
    weights, bias = rng.integers(-127, 128, (7, 2, 2, depth)), rng.integers(-5000, 5000, 7)
    operands = [x, file.constant(weights, "int8"), file.constant(bias, "int32")]
    operands += [file.constant([zero], "int8"), file.constant([0], "int8")]
    made = (count, height + 2, width, 7)
    sums = file.operator("CONV2D", operands, made, "int32", {0: (0, 0, 0, 0), 1: (1, 1), 2: (1, 1), 4: 5})
    y, out = file.rescale(sums, made, _scales(rng, 7, 0.006), (0, _zero(rng) // 4)), _zero(rng)
    other = tuple(extent if rng.random() < 0.5 else 1 for extent in made)
    z = file.constant(rng.integers(-128, 128, other), "int8") if rng.random() < 0.5 else file.input(*other)
    wide = [_wide(file, y, made, (1 << 30, 30), 0), _wide(file, z, other, (1 << 30, 30), _zero(rng))]
    products = file.operator("MUL", [*wide, file.constant([0], "int8")], made, "int32")
    return file.finish(file.rescale(products, made, _scales(rng, 1, 0.008), (0, out)))


def long_strides(rng: Random, kind: str) -> bytes:
    """A stride that the NPU does not have, also with padding, of a pool before it too."""
    file, depth, channels = TosaFile(), int(rng.integers(1, 6)), int(rng.integers(2, 7))
    stride, kernel = tuple(int(v) for v in rng.integers(4, 7, 2)), tuple(int(v) for v in rng.integers(1, 9, 2))
    padding, made = tuple(int(v) for v in rng.integers(0, 2, 4)), tuple(int(v) for v in rng.integers(1, 4, 2))
    if kind == "TRANSPOSE_CONV2D":
        stride = ((3, 1), (1, 2), (2, 2), (4, 3))[int(rng.integers(4))]
        padding = tuple(int(v) for v in rng.integers(-min(*kernel, 2) + 1, 3, 4))
    pads = sum(padding[:2]), sum(padding[2:])
    ends = zip(made, stride, kernel, pads, strict=True)
    if kind == "TRANSPOSE_CONV2D":
        extents, results = made, [(n - 1) * step + size + pad for n, step, size, pad in ends]
    else:
        extents, results = [max((n - 1) * step + size - pad, 1) for n, step, size, pad in ends], made
        padding = _covering(extents, kernel, stride, padding, results)
    if min(results) < 1:
        return long_strides(rng, kind)
    x, zero = file.input(1, *extents, depth), _zero(rng)
    if kind == "MAX_POOL2D":
        kernel = tuple(max(size, max(padding) + 1) for size in kernel)
        padding = _covering(extents, kernel, stride, padding, results)
        attribute = {0: kernel, 1: stride, 2: padding, 3: 1}
        if min(padding) < 0:
            return long_strides(rng, kind)
        return file.finish(file.operator(kind, [x], (1, *results, depth), attribute=attribute))
    if min(padding) < 0 and kind == "CONV2D":
        return long_strides(rng, kind)
    bias = file.constant(rng.integers(-5000, 5000, channels), "int32")
    operands = [x, file.constant(rng.integers(-127, 128, (channels, *kernel, depth)), "int8"), bias]
    operands += [file.constant([zero], "int8"), file.constant([0], "int8")]
    attribute = {0: padding, 1: stride, 3: 5} if kind != "CONV2D" else {0: padding, 1: stride, 2: (1, 1), 4: 5}
    shape = (1, *results, channels)
    sums = file.operator(kind, operands, shape, "int32", attribute)
    count = channels if rng.random() < 0.6 else 1
    return file.finish(file.rescale(sums, shape, _scales(rng, count, 0.006), (0, _zero(rng) // 4)))


def _covering(
    extents: Sequence[int], kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...],
    made: Sequence[int],
) -> tuple[int, ...]:  # fmt: skip
    """`padding` with as much behind as the windows need."""
    behind = [(made[i] - 1) * stride[i] + kernel[i] - extents[i] - padding[2 * i] for i in (0, 1)]
    return padding[0], behind[0], padding[2], behind[1]


def constants(rng: Random) -> bytes:
    """Operators of constants alone, as a batch norm that was not folded has them, and moves of widened values."""
    file, shape, row = TosaFile(), (1, 5, 9, 16), (1, 1, 1, 16)
    least, unit = file.constant(rng.integers(0, 128, 16), "int8"), (1 << 30, 30)
    wide = [file.rescale(n, s, [unit], (0, 0), ("int8", "int32"))
            for n, s in ((least, (16,)), (file.constant([3], "int8"), (1,)))]  # fmt: skip
    total = file.rescale(file.operator("ADD", wide, (16,), "int32"), (16,), _scales(rng, 1, 0.9), (0, -7))
    total = file.operator("TABLE", [total, file.constant(rng.integers(-128, 128, 256), "int8")], (16,))
    factor = file.rescale(total, (16,), [unit], (5, 0), ("int8", "int32"))
    factor = file.operator("RESHAPE", [factor, file.shape(*row)], row, "int32")
    turned, zero = file.operator("NEGATE", [file.input(*shape), *_zeros(file, rng)], shape), _zero(rng)
    products = [_wide(file, turned, shape, unit, zero), factor, file.constant([0], "int8")]
    products = file.operator("MUL", products, shape, "int32")
    return file.finish(file.rescale(products, shape, _scales(rng, 1, 0.008), (0, _zero(rng))))


def _zeros(file: TosaFile, rng: Random) -> list[str]:
    return [file.constant([_zero(rng)], "int8") for _ in range(2)]


def tiled(rng: Random) -> bytes:
    """Values several times along two axes, and the least of them along one."""
    file, times = TosaFile(), [1, 1, 1, 1]
    shape, axis = tuple(int(v) for v in rng.integers(1, 7, 4)), int(rng.integers(4))
    for place in rng.permutation(4)[:2]:
        times[place] = int(rng.integers(2, 4))
    made = tuple(extent * count for extent, count in zip(shape, times, strict=True))
    tiled = file.operator("TILE", [file.input(*shape), file.shape(*times)], made)
    least = file.operator("REDUCE_MIN", [tiled], _without(made, axis), attribute={0: axis, 1: 1})
    return file.finish(least, tiled)
