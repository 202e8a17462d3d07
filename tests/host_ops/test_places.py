"""STRIDED_SLICE, GATHER, ARG_MAX and ARG_MIN over all their options, against the reference: random models, all in one
program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.exactness import Exactness
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from tests.support.in_steps import equals_reference
from tests.support.many_operators import run_together
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")


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
    b = ModelBuilder()
    x, y = b.tensor(shape, "int8", 0.1, 3), b.tensor(found.shape, "int8", 0.1, 3)
    given = [b.constant(np.array(v, np.int32)) for v in (first, last, step)]
    b.operator("STRIDED_SLICE", [x, *given], [y], "StridedSliceOptions", 2, **masks)
    return b.made([x], [y])


def gather(rng: np.random.Generator) -> ModelBuilder:
    """Along any axis, with shared axes, by indices of either type."""
    shape = tuple(int(n) for n in rng.integers(1, 5, 3))
    axis = int(rng.integers(3))
    shared = int(rng.integers(axis + 1))
    many = (*shape[:shared], *(int(n) for n in rng.integers(1, 4, int(rng.integers(1, 3)))))
    indices = rng.integers(0, shape[axis], many).astype([np.int32, np.int64, np.int16][int(rng.integers(3))])
    b = ModelBuilder()
    x, i = b.tensor(shape, "int8", 0.1, 3), b.constant(indices)
    y = b.tensor((*shape[:axis], *many[shared:], *shape[axis + 1 :]), "int8", 0.1, 3)
    b.operator("GATHER", [x, i], [y], "GatherOptions", 2, Axis=axis - 3 * int(rng.integers(2)), BatchDims=shared)
    return b.made([x], [y])


def extreme(rng: np.random.Generator) -> ModelBuilder:
    """Along any axis, to either type of index."""
    shape = tuple(int(n) for n in rng.integers(1, 6, int(rng.integers(1, 5))))
    axis, name = int(rng.integers(len(shape))), ["ARG_MAX", "ARG_MIN"][int(rng.integers(2))]
    b = ModelBuilder()
    x, a = b.tensor(shape, "int8", 0.1, 3), b.constant(np.array(axis - len(shape) * int(rng.integers(2)), np.int32))
    y = b.tensor(shape[:axis] + shape[axis + 1 :], "int32")
    b.operator(name, [x, a], [y], "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions", OutputType=2)
    return b.made([x], [y])


def offset_slice(rng: np.random.Generator) -> ModelBuilder:
    """STRIDED_SLICE whose ends count from its begins."""
    while True:
        shape = tuple(int(n) for n in rng.integers(2, 7, int(rng.integers(1, 4))))
        first, ahead = rng.integers(0, 5, len(shape)), rng.integers(1, 5, len(shape))
        step = rng.choice([1, 1, 2], len(shape))
        if np.all(first + ahead <= shape):
            break
    b = ModelBuilder()
    made = tuple(len(range(0, int(end), int(by))) for end, by in zip(ahead, step, strict=True))
    x, y = b.tensor(shape, "int8", 0.1, 3), b.tensor(made, "int8", 0.1, 3)
    bounds = [b.constant(np.asarray(values, np.int32)) for values in (first, ahead, step)]
    b.operator("STRIDED_SLICE", [x, *bounds], [y], "StridedSliceOptions", 8, Offset=True)
    return b.made([x], [y])


@pytest.mark.parametrize("npu_compiler", ["vela", "tvm"])
def test_ends_that_count_from_begins(npu_compiler: str, tmp_path: Path) -> None:
    """Neither TVM's importer nor Vela is left to them."""
    model = offset_slice(np.random.default_rng(2)).finish()
    artifact = equals_reference(model, tmp_path, 1, CompileOptions(npu_compiler=npu_compiler, objective="bytes"))
    assert artifact.operators[0].claim.exactness is Exactness.EXACT


@pytest.mark.parametrize(("make", "count"), [(strided_slice, 60), (offset_slice, 30), (gather, 30), (extreme, 20)])
def test_random_models(make, count, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    networks, inputs, expected = [], [], []
    for number in range(count):
        model = make(rng).finish()
        networks.append(read_network(model, f"model{number}"))
        (tensor,) = (networks[-1].tensors[i] for i in networks[-1].inputs)
        inputs.append([rng.integers(-128, 128, tensor.shape).astype(np.int8)])
        expected.append(TFLiteReference(model).run(inputs[-1])[0])
    for network, (ours,), theirs in zip(networks, run_together(networks, inputs, tmp_path), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, network.name)
