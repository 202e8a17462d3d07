"""Graphs of TOSA's operators with random numbers, by kind: those that native lowering takes.

Invariant: a graph is sound by the specification, and its numbers follow from the generator alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .tosa_graphs import DOUBLE, SINGLE, TosaFile

Random = np.random.Generator


def _scales(rng: Random, count: int, real: float) -> list[tuple[int, int]]:
    """Random scales of about `real`."""
    shift = 31 - int(np.ceil(np.log2(real)))
    return [(int(rng.integers(1 << 30, 1 << 31)), shift) for _ in range(count)]


def _zero(rng: Random) -> int:
    return int(rng.integers(-128, 128))


def limits(low: int, high: int, size: int = 1) -> dict[int, Any]:
    """The attribute of a CLAMP of numbers of `size` bytes."""
    return {0: low.to_bytes(size, "little", signed=True), 1: high.to_bytes(size, "little", signed=True), 2: 1}


def _wide(file: TosaFile, name: str, shape: tuple[int, ...], scale: tuple[int, int], zero: int) -> str:
    return file.rescale(name, shape, [scale], (zero, 0), ("int8", "int32"))


def taken_rows(rng: Random) -> bytes:
    """Rows of a constant by given indices in another shape, rows of what is made of those, and rows at maxima."""
    file = TosaFile()
    images, rows, count, channels = (int(v) for v in rng.integers(2, 20, 4))
    dtype = str(rng.choice(["int8", "int16"]))
    info = np.iinfo(dtype)
    words = file.constant(rng.integers(info.min, info.max + 1, (images, rows, channels)), dtype)
    flat = file.operator("RESHAPE", [file.input(images * count, dtype="int32"), file.shape(images, count)],
                         (images, count), "int32")  # fmt: skip
    shape = (images, count, channels)
    taken = file.operator("GATHER", [words, flat], shape, dtype)
    turned = file.operator("CLAMP", [taken], shape, dtype, limits(-100, 90, info.bits // 8))
    again = file.operator("GATHER", [turned, file.input(images, 1, dtype="int32")], (images, 1, channels), dtype)
    x = file.input(images, count, 5)
    most = file.operator("ARGMAX", [x], (images, 5), "int32", {0: 1, 1: 1})
    last = file.operator("GATHER", [turned, most], (images, 5, channels), dtype)
    return file.finish(again, last)


def placed_rows(rng: Random) -> bytes:
    """Rows at places that do not repeat, of what is made and of a constant; then one at a given place."""
    file, dtype = TosaFile(), str(rng.choice(["int8", "int16"]))
    images, rows, channels = (int(v) for v in rng.integers(2, 12, 3))
    count, info = int(rng.integers(1, rows + 1)), np.iinfo(dtype)
    places = np.stack([rng.permutation(rows)[:count] for _ in range(images)])
    shape = (images, rows, channels)
    x = file.operator("CLAMP", [file.input(*shape, dtype=dtype)], shape, dtype, limits(-100, 90, info.bits // 8))
    given = file.input(images, count, channels, dtype=dtype)
    made = file.operator("SCATTER", [x, file.constant(places, "int32"), given], shape, dtype)
    one = file.constant(rng.integers(info.min, info.max + 1, (images, 1, channels)), dtype)
    last = file.operator("SCATTER", [made, file.input(images, 1, dtype="int32"), one], shape, dtype)
    return file.finish(last, file.operator("CLAMP", [made], shape, dtype, limits(-50, 60, info.bits // 8)))


def least_backwards(rng: Random) -> bytes:
    """Values backwards along an axis, and the least along another, of int8 or int16 in one to six dimensions."""
    file, dtype = TosaFile(), str(rng.choice(["int8", "int16"]))
    shape = tuple(int(v) for v in rng.integers(2, 6, int(rng.integers(1, 7))))
    axes = [int(axis) for axis in rng.integers(len(shape), size=2)]
    flat = file.input(int(np.prod(shape)), dtype=dtype)
    x = file.operator("RESHAPE", [flat, file.shape(*shape)], shape, dtype)
    turned = file.operator("REVERSE", [x], shape, dtype, {0: axes[0]})
    made = tuple(1 if place == axes[1] else extent for place, extent in enumerate(shape))
    return file.finish(turned, file.operator("REDUCE_MIN", [turned], made, dtype, {0: axes[1], 1: 1}))


def chosen(rng: Random, kind: str) -> bytes:
    """Numbers of two scales compared, and with constants; elements of maps and a constant that the flags choose."""
    file, shape = TosaFile(), tuple(int(v) for v in rng.integers(3, 9, int(rng.integers(2, 5))))
    narrow = tuple(1 if rng.integers(2) else extent for extent in shape)
    ends = limits(-2, 1)  # few values, so that many are equal
    x = file.operator("CLAMP", [file.input(*shape)], shape, attribute=ends)
    y = file.operator("CLAMP", [file.input(*narrow)], narrow, attribute=ends)
    zero, scale = int(rng.integers(-1, 1)), [[(1 << 30, 20)], [(1 << 30, 19)], [(1518500249, 21)]][rng.integers(3)]
    first = file.rescale(x, shape, [(1 << 30, 20)], (zero, 0), ("int8", "int32"))
    second = file.rescale(y, narrow, scale, (zero, 0), ("int8", "int32"))
    flags = file.operator(kind, [first, second], shape, "bool")
    least = file.constant(rng.integers(-100, 100, (1,) * len(shape)), "int8")
    made = file.operator("SELECT", [flags, x, least], shape)
    edge = file.constant(rng.integers(-2, 2, shape) * 1024, "int32")
    above = file.operator(kind, [first, edge], shape, "bool")
    return file.finish(file.operator("SELECT", [above, y, made], shape), above)


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
    limited = file.operator("CLAMP", [x], shape, attribute=limits(-50, 90))
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
    x = file.operator("CLAMP", [file.input(*shape)], shape, attribute=limits(-100, 99))
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


_SCALARS = {"ADD": (-40, 40), "SUB": (-40, 40), "MUL": (2, 5), "MAXIMUM": (-90, -20), "MINIMUM": (400, 900)}
_NAN = {0: 1}  # NanPropagationMode of MAXIMUM and MINIMUM


def _weighted(rng: Random, kind: str, rounding: int = SINGLE, dtype: str = "int8") -> bytes:
    """A sum with weights, a rescale of each channel or one, a clamp."""
    file, channels, depth = TosaFile(), int(rng.integers(3, 20)), int(rng.integers(2, 20))
    zero, out = _zero(rng), _zero(rng) // 4
    height, width = (int(v) for v in rng.integers(1, 4, 2))
    spread = int(rng.integers(1, 3))  # of the rows of a kernel
    attribute: dict[int, Any] = {0: (1, 0, 0, 1), 1: (1, 2), 2: (spread, 1), 4: 5}
    weights: tuple[int, ...] = (channels, height, width, depth)
    rows, columns = 7, 2 * (int(rng.integers(2, 5)) - 1) + width - 1
    x, words = file.input(1, rows, columns, depth, dtype=dtype), dtype == "int16"
    wide = "int48" if words else "int32"
    zero, out = (0, 0) if words else (zero, out)
    made = [1, rows + 1 - (height - 1) * spread, (columns + 1 - width) // 2 + 1, channels]
    if words:
        attribute[4] = 6  # sums of 48 bits
    if kind == "DEPTHWISE_CONV2D":
        weights, channels = (height, width, depth, 1), depth
        made[3] = depth
    elif kind == "TRANSPOSE_CONV2D":
        attribute = {0: (0, 0, 0, 0), 1: (2, 2), 3: 6 if words else 5}
        made = [1, 2 * (rows - 1) + height, 2 * (columns - 1) + width, channels]
    values = rng.integers(-127, 128, weights)
    bias = file.constant(rng.integers(-5000, 5000, channels) * (1000 if words else 1), wide)
    zeros = file.constant([zero], dtype), file.constant([0], "int8")
    sums = file.operator(kind, [x, file.constant(values, "int8"), bias, *zeros], made, wide, attribute)
    scales = _scales(rng, channels if rng.random() < 0.7 else 1, 0.004)
    if words:
        scales = [(multiplier >> 16, shift - 16) for multiplier, shift in scales]
    result = file.rescale(sums, made, scales, (0, out), (wide, dtype), rounding)
    low, high = int(rng.integers(-128, -20)), int(rng.integers(20, 128))
    ends = limits(low << 8, high << 8, 2) if words else limits(low, high)
    return file.finish(file.operator("CLAMP", [result], made, dtype, ends))


def _spread(rng: Random, kind: str) -> bytes:
    """A dilation that the NPU does not have; of a DEPTHWISE_CONV2D several channels of each."""
    file, dilation = TosaFile(), tuple(int(v) for v in rng.integers(3, 6, 2))
    height, width, depth, count = (int(v) for v in rng.integers(2, 5, 4))
    depthwise = kind == "DEPTHWISE_CONV2D"
    channels, weights = (depth * count, (height, width, depth, count)) if depthwise else (7, (7, height, width, depth))
    rows, columns = 3 + (height - 1) * dilation[0], 4 + (width - 1) * dilation[1]
    x, zero = file.input(1, rows, columns, depth), _zero(rng)
    bias = file.constant(rng.integers(-5000, 5000, channels), "int32")
    operands = [x, file.constant(rng.integers(-127, 128, weights), "int8"), bias]
    operands += [file.constant([zero], "int8"), file.constant([0], "int8")]
    made, attribute = (1, 4, 5, channels), {0: (1, 0, 0, 1), 1: (1, 1), 2: dilation, 4: 5}
    sums = file.operator(kind, operands, made, "int32", attribute)
    return file.finish(file.rescale(sums, made, _scales(rng, channels, 0.006), (0, _zero(rng) // 4)))


def _matmul(rng: Random) -> bytes:
    file, (rows, depth, channels) = TosaFile(), (int(v) for v in rng.integers(2, 30, 3))
    x, zero = file.input(1, rows, depth), _zero(rng)
    weights = file.constant(rng.integers(-120, 120, (1, depth, channels)), "int8")
    zeros = file.constant([zero], "int8"), file.constant([int(rng.integers(-8, 8))], "int8")
    sums = file.operator("MATMUL", [x, weights, *zeros], (1, rows, channels), "int32")
    return file.finish(file.rescale(sums, (1, rows, channels), _scales(rng, 1, 0.004), (0, _zero(rng))))


def _matmul_of_maps(rng: Random) -> bytes:
    """Attention's products: of stacks of matrices; several may be constant."""
    file, (stacks, rows, depth, columns) = TosaFile(), (int(v) for v in rng.integers(1, 20, 4))
    a = file.input(stacks, rows, depth)
    constant = stacks > 1 and rng.random() < 0.3
    b = file.constant(rng.integers(-99, 99, (stacks, depth, columns)), "int8") if constant else ""
    b = b or file.input(stacks, depth, columns)
    zeros = [file.constant([_zero(rng) // 8], "int8") for _ in range(2)]
    sums = file.operator("MATMUL", [a, b, *zeros], (stacks, rows, columns), "int32")
    return file.finish(file.rescale(sums, (stacks, rows, columns), _scales(rng, 1, 0.002), (0, _zero(rng) // 4)))


def _sum(rng: Random, kind: str) -> bytes:
    """Two operands in the form of quantised exports: the one of the larger scale is shifted only."""
    file, shape = TosaFile(), (1, 3, 40, 16)
    names, zeros = [file.input(*shape), file.input(*shape)], [_zero(rng), _zero(rng)]
    down = int(rng.integers(0, 4))
    scales = [(1 << 30, 11), (int(rng.integers(1 << 30, 1 << 31)), 12 + down)]
    if rng.random() < 0.5:
        scales.reverse()
    kinds = ("int8", "int32")
    wide = [file.rescale(n, shape, [s], (z, 0), kinds) for n, s, z in zip(names, scales, zeros, strict=True)]
    total = file.operator(kind, wide, shape, "int32")
    scale = (int(rng.integers(1 << 30, 1 << 31)), 49 + int(rng.integers(0, 3)))
    return file.finish(file.rescale(total, shape, [scale], (0, _zero(rng))))


def _product(rng: Random) -> bytes:
    file, shape, other = TosaFile(), (1, 5, 9, 17), (1, 1, 1, 17)
    x, kinds = file.input(*shape), ("int8", "int32")
    if rng.random() < 0.5:
        second = file.constant(rng.integers(-128, 128, other), "int8")
    else:
        other = shape if rng.random() < 0.5 else (1, 1, 1, 17)
        second = file.input(*other)
    wide = [
        file.rescale(x, shape, [(1 << 30, 30)], (_zero(rng), 0), kinds),
        file.rescale(second, other, [(1 << 30, 30)], (_zero(rng), 0), kinds),
    ]
    products = file.operator("MUL", [*wide, file.constant([0], "int8")], shape, "int32")
    return file.finish(file.rescale(products, shape, _scales(rng, 1, 0.008), (0, _zero(rng))))


def _extreme(rng: Random, kind: str) -> bytes:
    """Two operands in the smaller one's scale: a tensor, one for each channel, a constant of 8 or of 32 bits."""
    file, shape, other = TosaFile(), (1, 5, 9, 17), (1, 1, 1, 17)
    scales = [(1 << 30, 30), (int(rng.integers(1 << 30, 1 << 31)), 30 - int(rng.integers(0, 3)))]
    given = int(rng.integers(0, 4))
    if given == 0:
        second = _wide(file, file.input(*shape), shape, scales[0], _zero(rng))
        other = shape
    elif given == 1:
        second = _wide(file, file.input(*other), other, scales[0], _zero(rng))
    elif given == 2:
        second = _wide(file, file.constant(rng.integers(-128, 128, other), "int8"), other, scales[0], _zero(rng))
    else:
        other = (1, 1, 1, 1)
        second = file.constant(rng.integers(-100, 100, other), "int32")
    first = _wide(file, file.input(*shape), shape, scales[1], _zero(rng))
    names = [first, second] if rng.random() < 0.5 else [second, first]
    most = file.operator(kind, names, shape, "int32", _NAN)
    return file.finish(file.rescale(most, shape, _scales(rng, 1, 0.6), (0, _zero(rng) // 4)))


def _rows(rng: Random) -> bytes:
    """A product of rows as a convolution of images of one pixel, between reshapes."""
    file, (rows, depth, channels) = TosaFile(), (int(v) for v in rng.integers(2, 30, 3))
    x = file.operator("RESHAPE", [file.input(rows, depth), file.shape(rows, 1, 1, depth)], (rows, 1, 1, depth))
    weights = file.constant(rng.integers(-120, 120, (channels, 1, 1, depth)), "int8")
    bias = file.constant(rng.integers(-5000, 5000, channels), "int32")
    zeros = file.constant([_zero(rng)], "int8"), file.constant([0], "int8")
    window = {0: (0, 0, 0, 0), 1: (1, 1), 2: (1, 1), 4: 5}
    made = (rows, 1, 1, channels)
    sums = file.operator("CONV2D", [x, weights, bias, *zeros], made, "int32", window)
    result = file.rescale(sums, made, _scales(rng, channels, 0.004), (0, _zero(rng) // 4))
    return file.finish(file.operator("RESHAPE", [result, file.shape(rows, channels)], (rows, channels)))


def _softmax(rng: Random) -> bytes:
    """As ExecuTorch exports it: the largest value is taken away, tables are the exponential and the reciprocal."""
    file, shape, zero = TosaFile(), (1, int(rng.integers(1, 6)), int(rng.integers(2, 20))), _zero(rng)
    x, row, types = file.input(*shape), (*shape[:2], 1), ("int8", "int32")
    largest = file.operator("REDUCE_MAX", [x], row, attribute={0: 2, 1: 1})
    wide = [file.rescale(n, s, [(1 << 30, 11)], (zero, 0), types) for n, s in ((x, shape), (largest, row))]
    left = file.rescale(file.operator("SUB", wide, shape, "int32"), shape, [(1 << 30, 49)], (0, 127))
    powers = np.round(255 * np.exp((np.arange(256) - 255) / 60) - 128)
    power = file.operator("TABLE", [left, file.constant(powers, "int8")], shape)
    wide = [file.rescale(power, shape, [(1 << 30, 30)], (-128, 0), types) for _ in range(2)]
    total = file.operator("REDUCE_SUM", [wide[0]], row, "int32", {0: 2})
    total = file.rescale(total, row, _scales(rng, 1, 0.7 / shape[2]), (0, -128))
    parts = np.clip(4000 / (np.arange(256) + 16), 0, 255) - 128
    part = file.operator("TABLE", [total, file.constant(parts.astype(int), "int8")], row)
    part = file.rescale(part, row, [(1 << 30, 30)], (-128, 0), types)
    product = file.operator("MUL", [wide[1], part, file.constant([0], "int8")], shape, "int32")
    return file.finish(file.rescale(product, shape, _scales(rng, 1, 0.008), (0, -128)))


def _byte_function(rng: Random) -> bytes:
    """Operators of 32 bits of one tensor and single constants."""
    file, shape = TosaFile(), (1, 4, 9, 12)
    x = _wide(file, file.input(*shape), shape, (int(rng.integers(1 << 30, 1 << 31)), 30), _zero(rng))
    for kind in rng.permutation(["ABS", "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"]):
        if kind == "ABS":
            x = file.operator("ABS", [x], shape, "int32")
            continue
        low, high = _SCALARS[str(kind)]
        operands = [x, file.constant(rng.integers(low, high, (1, 1, 1, 1)), "int32")]
        shift = [file.constant([0], "int8")] if kind == "MUL" else []
        operands = operands if rng.random() < 0.5 else operands[::-1]
        x = file.operator(str(kind), [*operands, *shift], shape, "int32", _NAN if "IMUM" in kind else None)
    x = file.rescale(x, shape, _scales(rng, 1, 0.3), (0, 0), ("int32", "int32"))
    return file.finish(file.rescale(x, shape, _scales(rng, 1, 0.6), (0, _zero(rng) // 4)))


def _words(rng: Random, kind: str) -> bytes:
    """Sums, products, maxima, minima and averages of int16, moved and rescaled."""
    file, shape, types = TosaFile(), (1, 6, 10, 12), ("int16", "int32")
    other = shape if rng.random() < 0.5 else (1, 1, 1, 12)
    a, b = file.input(*shape, dtype="int16"), file.input(*other, dtype="int16")
    shift = {"ADD": 19, "SUB": 19}.get(kind, 30)
    wide = [file.rescale(x, extents, [(1 << 30, shift)], (0, 0), types) for x, extents in ((a, shape), (b, other))]
    real = {"ADD": 0.0004, "SUB": 0.0004, "MUL": 0.00004}.get(kind, 0.9)
    scale = [(1 << 30, 30)] if "IMUM" in kind else _scales(rng, 1, real)
    operands = [*wide, file.constant([0], "int8")] if kind == "MUL" else wide
    made = file.operator(kind, operands, shape, "int32", _NAN if "IMUM" in kind else None)
    x = file.rescale(made, shape, scale, (0, 0), ("int32", "int16"))
    turned = file.operator("TRANSPOSE", [x], (1, 12, 6, 10), "int16", {0: (0, 3, 1, 2)})
    part = file.operator("SLICE", [turned, file.shape(0, 1, 2, 0), file.shape(1, 8, 4, 10)], (1, 8, 4, 10), "int16")
    both = file.operator("CONCAT", [part, part], (1, 8, 4, 20), "int16", {0: 3})
    pool = {0: (3, 3), 1: (1, 1), 2: (1, 1, 1, 1), 3: 1}
    most = file.operator("MAX_POOL2D", [both], (1, 8, 4, 20), "int16", pool)
    zeros = [file.constant([0], "int16"), file.constant([0], "int16")]
    pool = {0: (2, 3), 1: (1, 1), 2: (0, 0, 0, 0), 3: 5}
    mean = file.operator("AVG_POOL2D", [most, *zeros], (1, 7, 2, 20), "int16", pool)
    small = file.rescale(x, shape, _scales(rng, 1, 0.003), (0, _zero(rng)), ("int16", "int8"))
    back = file.rescale(small, shape, _scales(rng, 1, 200), (_zero(rng), 0), ("int8", "int16"))
    return file.finish(x, mean, back)


def _resized(rng: Random, mixes: bool = False) -> bytes:
    """The nearest value, or neighbours mixed, as ExecuTorch exports it: scales twice as large as they need to be."""
    file, (height, width) = TosaFile(), (int(v) for v in rng.integers(2, 8, 2))
    dtype = "int8" if mixes else str(rng.choice(["int8", "int16"]))
    x = file.input(1, height, width, 20, dtype=dtype)
    factors = [int(v) for v in rng.choice([1, 2, 4], 2)] if mixes else [int(v) for v in rng.integers(1, 5, 2)]
    centred = rng.random() < 0.7
    offsets = [1 - factor if centred else 0 for factor in factors]
    borders = [factor - 1 if centred else 2 * (factor - 1) for factor in factors]
    shape = (1, height * factors[0], width * factors[1], 20)
    numbers = [file.shape(2 * factors[0], 2, 2 * factors[1], 2), file.shape(*offsets), file.shape(*borders)]
    if not mixes:
        return file.finish(file.operator("RESIZE", [x, *numbers], shape, dtype, {0: 1}))
    sums = file.operator("RESIZE", [x, *numbers], shape, "int32", {0: 2})
    bits = (4 * factors[0] * factors[1]).bit_length() - 1
    return file.finish(file.rescale(sums, shape, [(1 << 30, 30 + bits)], (0, 0)))


def _reduced(rng: Random, words: bool = False) -> bytes:
    file, (height, width) = TosaFile(), (int(v) for v in rng.integers(2, 20, 2))
    dtype = "int16" if words else "int8"
    x, zero = file.input(1, height, width, 24, dtype=dtype), 0 if words else _zero(rng) // 4
    if rng.random() < 0.4:
        sums = file.rescale(x, (1, height, width, 24), [(1 << 30, 29)], (zero, 0), (dtype, "int32"))
        sums = file.operator("REDUCE_SUM", [sums], (1, height, width, 1), "int32", {0: 3})
        scales, types = _scales(rng, 1, 0.1), ("int32", dtype)
        return file.finish(file.rescale(sums, (1, height, width, 1), scales, (0, zero), types))
    sums = file.rescale(x, (1, height, width, 24), [(1 << 30, 30)], (zero, 0), (dtype, "int32"))
    sums = file.operator("REDUCE_SUM", [sums], (1, 1, width, 24), "int32", {0: 1})
    sums = file.operator("REDUCE_SUM", [sums], (1, 1, 1, 24), "int32", {0: 2})
    scales = _scales(rng, 1, 1.5 / (height * width))
    if rng.random() < 0.7:  # a mean of a sum, times a power of two
        part = 64
        factor = file.constant([[[[part]]]], "int16")
        factor = file.rescale(factor, (1, 1, 1, 1), [(1 << 30, 30)], (0, 0), ("int16", "int32"))
        sums = file.operator("MUL", [sums, factor, file.constant([0], "int8")], (1, 1, 1, 24), "int32")
        scales = [(m, shift + part.bit_length() - 1) for m, shift in scales]
    return file.finish(file.rescale(sums, (1, 1, 1, 24), scales, (0, zero), ("int32", dtype)))


def _reduced_groups(rng: Random) -> bytes:
    """Sums of groups of channels and of their pixels, as group normalisation has them."""
    file, (groups, channels, pixels) = TosaFile(), (int(v) for v in rng.integers(2, 20, 3))
    shape, zero = (1, groups, channels, pixels), _zero(rng) // 4
    sums = file.rescale(file.input(*shape), shape, [(1 << 30, 30)], (zero, 0), ("int8", "int32"))
    sums = file.operator("REDUCE_SUM", [sums], (1, groups, 1, pixels), "int32", {0: 2})
    sums = file.operator("REDUCE_SUM", [sums], (1, groups, 1, 1), "int32", {0: 3})
    return file.finish(file.rescale(sums, (1, groups, 1, 1), _scales(rng, 1, 0.06), (0, zero)))


def _requantised(rng: Random) -> bytes:
    file, shape = TosaFile(), (1, 4, 64, 8)
    scales = _scales(rng, 1, float(rng.choice([0.3, 0.9, 1.7])))
    x = file.rescale(file.input(*shape), shape, scales, (_zero(rng), _zero(rng)), ("int8", "int8"))
    return file.finish(file.operator("TABLE", [x, file.constant(rng.integers(-128, 128, 256), "int8")], shape))


def _pools(rng: Random) -> bytes:
    """An average with zero points or without, of a maximum."""
    file, kernel = TosaFile(), int(rng.integers(2, 6))
    x = file.input(1, 9, 11, 20)
    x = file.operator("MAX_POOL2D", [x], (1, 9, 11, 20), attribute={0: (3, 3), 1: (1, 1), 2: (1, 1, 1, 1), 3: 1})
    zeros = (0, 0) if rng.random() < 0.5 else (_zero(rng), _zero(rng))
    given = [file.constant([zero], "int8") for zero in zeros]
    border = int(rng.random() < 0.6)
    made = (1, 9 - kernel + 1 + border, 11 - kernel + 1 + border, 20)
    pool = {0: (kernel, kernel), 1: (1, 1), 2: (border, 0, 0, border), 3: 5}
    return file.finish(file.operator("AVG_POOL2D", [x, *given], made, attribute=pool))


def _interpolated(rng: Random) -> bytes:
    """A table of int16 as exports have it: 7 bits of fraction, which a RESCALE rounds."""
    file, shape = TosaFile(), (1, 3, 40, 16)
    entries = np.cumsum(rng.integers(-900, 900, 513)).clip(-32768, 32767)
    x = file.input(*shape, dtype="int16")
    wide = file.operator("TABLE", [x, file.constant(entries, "int16")], shape, "int32")
    return file.finish(file.rescale(wide, shape, [(1 << 30, 37)], (0, 0), ("int32", "int16")))


def _matmul_of_stacks(rng: Random) -> bytes:
    """Two stacks of matrices that are both computed, the second one transposed for this product or as it comes."""
    file, (stacks, rows, depth, columns) = TosaFile(), (int(v) for v in rng.integers(2, 24, 4))
    x, moved = file.input(stacks, rows, depth), rng.random() < 0.6
    y = file.input(stacks, columns, depth) if moved else file.input(stacks, depth, columns)
    if moved:
        y = file.operator("TRANSPOSE", [y], (stacks, depth, columns), attribute={0: (0, 2, 1)})
    zeros = [file.constant([_zero(rng) // 8], "int8") for _ in range(2)]
    made = (stacks, rows, columns)
    sums = file.operator("MATMUL", [x, y, *zeros], made, "int32")
    result = file.rescale(sums, made, _scales(rng, 1, 0.001), (0, _zero(rng) // 4))
    clamped = file.operator("CLAMP", [result], made, attribute=limits(-90, 100))
    axes = [(2, 0, 1), (1, 2, 0), (2, 1, 0), (1, 0, 2)][int(rng.integers(4))]
    return file.finish(file.operator("TRANSPOSE", [clamped], tuple(made[a] for a in axes), attribute={0: axes}))


def _moved_sums(rng: Random) -> bytes:
    """A product whose 32-bit sums are moved before they are rescaled."""
    file, zero = TosaFile(), _zero(rng)
    x = file.input(1, 12, 20)
    weights = file.constant(rng.integers(-120, 120, (1, 20, 16)), "int8")
    zeros = file.constant([zero], "int8"), file.constant([0], "int8")
    sums = file.operator("MATMUL", [x, weights, *zeros], (1, 12, 16), "int32")
    sums = file.operator("RESHAPE", [sums, file.shape(1, 3, 4, 16)], (1, 3, 4, 16), "int32")
    sums = file.operator("TRANSPOSE", [sums], (1, 16, 3, 4), "int32", {0: (0, 3, 1, 2)})
    return file.finish(file.rescale(sums, (1, 16, 3, 4), _scales(rng, 1, 0.004), (0, _zero(rng) // 4)))


def _moves(rng: Random) -> bytes:
    """Stored values to other places, between tensors of several zero points."""
    file = TosaFile()
    x = file.input(1, 6, 10, 12)
    turned = file.operator("TRANSPOSE", [x], (1, 12, 6, 10), attribute={0: (0, 3, 1, 2)})
    back = file.operator("TRANSPOSE", [turned], (1, 6, 10, 12), attribute={0: (0, 2, 3, 1)})
    part = file.operator("SLICE", [back, file.shape(0, 1, 2, 0), file.shape(1, 4, 5, 12)], (1, 4, 5, 12))
    other = file.rescale(part, (1, 4, 5, 12), [(1 << 30, 30)], (_zero(rng), _zero(rng)), ("int8", "int8"))
    both = file.operator("CONCAT", [part, other], (1, 4, 5, 24), attribute={0: 3})
    border = [both, file.shape(0, 0, 1, 2, 2, 1, 0, 0), file.constant([_zero(rng)], "int8")]
    padded = file.operator("PAD", border, (1, 7, 8, 24))
    clamped = file.operator("CLAMP", [padded], (1, 7, 8, 24), attribute=limits(-50, 90))
    same = file.operator("IDENTITY", [clamped], (1, 7, 8, 24))
    flat = file.operator("RESHAPE", [same, file.shape(1, 56, 24)], (1, 56, 24))
    return file.finish(flat, padded)


def _moves_of_rows(rng: Random) -> bytes:
    """A border around three dimensions, and a limit of two."""
    file = TosaFile()
    x = file.input(1, 9, 20)
    border = [x, file.shape(0, 0, 2, 1, 3, 0), file.constant([_zero(rng)], "int8")]
    padded = file.operator("PAD", border, (1, 12, 23))
    flat = file.operator("RESHAPE", [padded, file.shape(12, 23)], (12, 23))
    return file.finish(file.operator("CLAMP", [flat], (12, 23), attribute=limits(-50, 90)), padded)


def _places(rng: Random) -> bytes:
    """Places of maxima, some of which are there twice."""
    file, shape, axis = TosaFile(), tuple(int(v) for v in rng.integers(2, 12, 3)), int(rng.integers(3))
    x = file.input(*shape)
    limited = file.operator("CLAMP", [x], shape, attribute=limits(-100, 90))
    made = shape[:axis] + shape[axis + 1 :]
    return file.finish(file.operator("ARGMAX", [limited], made, "int32", {0: axis, 1: 1}))


_WEIGHTED = ("CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")
ONLY_U85: dict[str, Callable[[Random], bytes]] = {
    "MATMUL of stacks": _matmul_of_stacks,
    "ARGMAX": _places,
    "GATHER": taken_rows,
    "SCATTER": placed_rows,
    "REVERSE": least_backwards,
    **{k: lambda rng, k=k: chosen(rng, k) for k in ("EQUAL", "GREATER", "GREATER_EQUAL")},  # type: ignore[misc]
}
CASES: dict[str, Callable[[Random], bytes]] = {
    **{k: lambda rng, k=k: _weighted(rng, k) for k in _WEIGHTED},
    "CONV2D twice": lambda rng: _weighted(rng, "CONV2D", DOUBLE),
    **{f"{k} dilated": lambda rng, k=k: _spread(rng, k) for k in _WEIGHTED[:2]},
    "MATMUL": _matmul,
    "MATMUL moved": _moved_sums,
    "MATMUL of maps": _matmul_of_maps,
    **{k: lambda rng, k=k: _sum(rng, k) for k in ("ADD", "SUB")},
    "MUL": _product,
    **{k: lambda rng, k=k: _extreme(rng, k) for k in ("MAXIMUM", "MINIMUM")},
    "ABS": _byte_function,
    "CONV2D of rows": _rows,
    "REDUCE_MAX": _softmax,
    **{f"{k} int16": lambda rng, k=k: _weighted(rng, k, dtype="int16") for k in _WEIGHTED},
    **{f"{k} int16": lambda rng, k=k: _words(rng, k) for k in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")},
    "RESIZE": _resized,
    "RESIZE mixed": lambda rng: _resized(rng, mixes=True),
    "REDUCE_SUM": _reduced,
    "REDUCE_SUM of groups": _reduced_groups,
    "REDUCE_SUM int16": lambda rng: _reduced(rng, words=True),
    "RESCALE": _requantised,
    "AVG_POOL2D": _pools,
    "TABLE int16": _interpolated,
    "TRANSPOSE": _moves,
    "TRANSPOSE of many": moves_of_many,
    "REDUCE_SUM of images": reduced_images,
    "CONV2D of images": images,
    **{f"{k} long strides": lambda rng, k=k: long_strides(rng, k)
       for k in ("CONV2D", "TRANSPOSE_CONV2D", "MAX_POOL2D")},
    "NEGATE": constants,
    "REDUCE_MIN": tiled,
    "PAD of rows": _moves_of_rows,
}  # fmt: skip
