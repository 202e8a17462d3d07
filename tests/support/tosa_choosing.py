"""TOSA files of GATHER, of comparisons and of SELECT, with random numbers.

Invariant: as that of `tosa_operators`.
"""

from __future__ import annotations

import numpy as np

from .tosa_graphs import TosaFile
from .tosa_numbers import Random, limits


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
