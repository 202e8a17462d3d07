"""Copies of strided boxes put every element in its place, once; too many of them stay on the host."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from npu_memplan.ethosu.layers.movement import Box, Move, batch_and_space, depth_and_space, pick_moves
from npu_memplan.ethosu.relax.partition import host_operators, npu_functions, partition_for_ethosu
from tests.support.relax_import import import_relax
from tests.support.tflite_builder import ModelBuilder


def moved(moves: Iterable[Move], values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What `moves` make of `values`, none of which is negative; no element is made twice."""
    out = np.full(shape, -1)
    for source, target in moves:
        assert (out[_slices(target)] == -1).all()
        out[_slices(target)] = values[_slices(source)]
    return out


def _slices(box: Box) -> tuple[slice, ...]:
    parts = zip(box.begin, box.shape, box.step, strict=True)
    return tuple(slice(first, first + (count - 1) * step + 1, step) for first, count, step in parts)


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


@pytest.mark.parametrize("seed", range(40))
def test_picked_axes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 5)))
    places = [rng.integers(0, n, rng.integers(1, 12)) for n in shape]
    if seed % 2:
        places = [np.sort(axis) for axis in places]
    moves = list(pick_moves([[int(place) for place in axis] for axis in places]))
    values = _numbers(shape)
    assert (moved(moves, values, tuple(map(len, places))) == values[np.ix_(*places)]).all()
    assert all(box.step[-1] == 1 for move in moves for box in move)


def test_runs_are_as_few_as_tiles_and_mirrors_need() -> None:
    assert len(list(pick_moves([[0], [*range(5)] * 3, [*range(4)] * 2, [*range(9)]]))) == 6
    assert len(list(pick_moves([[0], [1, 0, 1, 2, 3, 2], [*range(4)], [*range(9)]]))) == 3
    assert len(list(pick_moves([[0], [0, 2, 4, 6], [*range(4)], [*range(9)]]))) == 1
    assert len(list(pick_moves([[0], [*range(4)], [*range(4)], [0, 2, 4, 6]]))) == 4  # nothing steps through channels


@pytest.mark.parametrize(("block", "packed"), [(2, (2, 3, 5, 12)), (3, (1, 2, 2, 9)), (1, (1, 2, 3, 4))])
def test_depth_and_space(block: int, packed: tuple[int, ...]) -> None:
    images, height, width, channels = packed
    depth = channels // block**2
    values = _numbers(packed)
    spread = values.reshape(images, height, width, block, block, depth).transpose(0, 1, 3, 2, 4, 5)
    spread = spread.reshape(images, height * block, width * block, depth)
    moves = list(depth_and_space(packed, block))
    assert (moved(moves, values, spread.shape) == spread).all()
    assert (moved([(b, a) for a, b in moves], spread, packed) == values).all()


@pytest.mark.parametrize("crops", [((0, 0), (0, 0)), ((1, 0), (0, 2)), ((3, 1), (2, 1)), ((4, 2), (0, 0))])
@pytest.mark.parametrize("block", [(2, 3), (1, 2), (3, 1)])
def test_batch_and_space(block: tuple[int, int], crops: tuple[tuple[int, int], tuple[int, int]]) -> None:
    images, rows, columns, depth = 2, 7, 6, 3
    batch = _numbers((images * math.prod(block), rows, columns, depth))
    whole = batch.reshape(*block, images, rows, columns, depth).transpose(2, 3, 0, 4, 1, 5)
    whole = whole.reshape(images, rows * block[0], columns * block[1], depth)
    (top, bottom), (left, right) = crops
    image = whole[:, top : whole.shape[1] - bottom, left : whole.shape[2] - right]
    moves = list(batch_and_space(image.shape, batch.shape, block, (top, left)))
    assert (moved([(b, a) for a, b in moves], batch, image.shape) == image).all()
    if not any((*crops[0], *crops[1])):
        assert (moved(moves, image, batch.shape) == batch).all()


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u65-512", "ethos-u85-1024"])
@pytest.mark.parametrize(("count", "fits"), [(64, True), (65, False)])
def test_many_copies_stay_on_the_host(count: int, fits: bool, npu: str) -> None:
    b = ModelBuilder()
    x, y = b.tensor((1, 3, 5, 8), "int8", 0.1, 3), b.tensor((1, 3 * count, 5, 8), "int8", 0.1, 3)
    times = b.constant(np.array([1, count, 1, 1], np.int32))
    b.operator("TILE", [x, times], [y], "TileOptions", 2)
    module = partition_for_ethosu(import_relax(b.made([x], [y]).finish()), npu)
    reasons = [operator.reason for operator in host_operators(module)]
    assert bool(npu_functions(module)) == fits
    assert reasons == ([] if fits else ["it takes 65 copies; at most 64 pay on the NPU"])
