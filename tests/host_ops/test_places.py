"""STRIDED_SLICE and GATHER over all their options, against the reference: random models, all in one
program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_memplan.exactness import Exactness
from npu_memplan.options import CompileOptions
from tests.exactness.test_host_operators import values
from tests.support.in_steps import equals_reference
from tests.support.many_operators import assert_equals_references
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")


def tensor(shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(shape, "int8", 0.1, 3)


def strided_slice(rng: np.random.Generator) -> ModelBuilder:
    """Bounds in any order of axes, new axes, dropped ones and an ellipsis; numpy says the shape."""
    while True:
        shape = tuple(int(n) for n in rng.integers(1, 6, int(rng.integers(1, 4))))
        count = int(rng.integers(1, len(shape) + 1))
        first, last, step = rng.integers(-6, 7, count), rng.integers(-6, 7, count), rng.choice([-2, -1, 1, 1, 2], count)
        masks = dict.fromkeys(("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"), 0)
        places: list[object] = []
        for bit in range(count):
            kind = str(rng.choice(["slice", "slice", "new", "drop", "ellipsis"]))
            if kind == "ellipsis" and not masks["EllipsisMask"]:
                masks["EllipsisMask"] |= 1 << bit
                places.append(Ellipsis)
            elif kind == "new":
                masks["NewAxisMask"] |= 1 << bit
                places.append(None)
            elif kind == "drop":
                masks["ShrinkAxisMask"] |= 1 << bit
                step[bit] = 1
                places.append(int(first[bit]))
            else:
                open_ = rng.random(2) < 0.3
                masks["BeginMask"] |= int(open_[0]) << bit
                masks["EndMask"] |= int(open_[1]) << bit
                bounds = [None if o else int(b[bit]) for o, b in zip(open_, (first, last), strict=True)]
                places.append(slice(*bounds, int(step[bit])))
        try:
            found = np.zeros(shape)[tuple(places)]
        except IndexError:
            continue
        if found.size and found.ndim and found.ndim <= 4:
            break
    inputs = tensor(shape), *map(constant, (first, last, step))
    return single_operator("STRIDED_SLICE", inputs, [tensor(found.shape)], "StridedSliceOptions", 2, **masks)


def gather(rng: np.random.Generator) -> ModelBuilder:
    """Along any axis, with shared axes, by indices of either type."""
    shape = tuple(int(n) for n in rng.integers(1, 5, 3))
    axis = int(rng.integers(3))
    shared = int(rng.integers(axis + 1))
    many = (*shape[:shared], *(int(n) for n in rng.integers(1, 4, int(rng.integers(1, 3)))))
    indices = rng.integers(0, shape[axis], many).astype([np.int32, np.int64, np.int16][int(rng.integers(3))])
    inputs, y = [tensor(shape), constant(indices, indices.dtype)], (*shape[:axis], *many[shared:], *shape[axis + 1 :])
    fields = {"Axis": axis - 3 * int(rng.integers(2)), "BatchDims": shared}
    return single_operator("GATHER", inputs, [tensor(y)], "GatherOptions", 2, **fields)


def offset_slice(rng: np.random.Generator) -> ModelBuilder:
    """STRIDED_SLICE whose ends count from its begins."""
    while True:
        shape = tuple(int(n) for n in rng.integers(2, 7, int(rng.integers(1, 4))))
        first, ahead = rng.integers(0, 5, len(shape)), rng.integers(1, 5, len(shape))
        step = rng.choice([1, 1, 2], len(shape))
        if np.all(first + ahead <= shape):
            break
    made = tuple(len(range(0, int(end), int(by))) for end, by in zip(ahead, step, strict=True))
    inputs = tensor(shape), *map(constant, (first, ahead, step))
    return single_operator("STRIDED_SLICE", inputs, [tensor(made)], "StridedSliceOptions", 8, Offset=True)


@pytest.mark.parametrize("npu_compiler", ["vela", "tvm"])
def test_ends_that_count_from_begins(npu_compiler: str, tmp_path: Path) -> None:
    """Neither TVM's importer nor Vela is left to them."""
    model = offset_slice(np.random.default_rng(2)).finish()
    artifact = equals_reference(model, tmp_path, 1, CompileOptions(npu_compiler=npu_compiler, objective="bytes"))
    assert artifact.operators[0].claim.exactness is Exactness.EXACT


@pytest.mark.parametrize(("make", "count"), [(strided_slice, 60), (offset_slice, 30), (gather, 30)])
def test_random_models(make, count, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    assert_equals_references({f"model{number}": make(rng).finish() for number in range(count)}, values, tmp_path)
