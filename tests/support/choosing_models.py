"""Models of one operator that fills, repeats, converts or chooses elements, of any type.

Invariant: as in `plain_models`; elements of quantised types have one scale and zero point in all tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.support.plain_models import Make, drawn, extents
from tests.support.random_values import random_scale, random_zero
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
