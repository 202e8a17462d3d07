"""What a network computes of its own shapes, and halves, are constants when it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.cli import cli
from npu_memplan.models.folding import fold_constants
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from tests.support.entry import QUICK
from tests.support.in_steps import HOST, equals_reference
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator

WAYS = [CompileOptions(objective="bytes"), CompileOptions(npu_compiler="tvm", objective="bytes")]


def started() -> tuple[ModelBuilder, int, int]:
    """A builder, its input, and the extents of what a RELU makes of it."""
    b = ModelBuilder()
    x, y = (b.tensor((1, 6, 4, 8), "int8", 0.05, 3) for _ in range(2))
    b.operator("RELU", [x], [y])
    extents = b.tensor((4,), "int32")
    b.operator("SHAPE", [y], [extents], "ShapeOptions", OutType=2)
    return b, x, extents


def to_a_matrix() -> ModelBuilder:
    """SHAPE -> STRIDED_SLICE -> PACK -> RESHAPE."""
    b, x, extents = started()
    first, target, bounds = b.tensor((), "int32"), b.tensor((2,), "int32"), ([0], [1], [1])
    b.operator("STRIDED_SLICE", [extents, *(b.constant(np.array(v, np.int32)) for v in bounds)], [first],
               "StridedSliceOptions", ShrinkAxisMask=1)  # fmt: skip
    b.operator("PACK", [first, b.constant(np.array(192, np.int32))], [target], "PackOptions", ValuesCount=2)
    z = b.tensor((1, 192), "int8", 0.05, 3)
    b.operator("RESHAPE", [1, target], [z], "ReshapeOptions")
    return b.made([x], [z])


def twice_as_large() -> ModelBuilder:
    """Height and width of the input times two are the size of a RESIZE."""
    b, x, extents = started()
    size, twice, bounds = b.tensor((2,), "int32"), b.tensor((2,), "int32"), ([1], [3], [1])
    b.operator("STRIDED_SLICE", [extents, *(b.constant(np.array(v, np.int32)) for v in bounds)], [size],
               "StridedSliceOptions")  # fmt: skip
    b.operator("MUL", [size, b.constant(np.array([2, 2], np.int32))], [twice], "MulOptions")
    z = b.tensor((1, 12, 8, 8), "int8", 0.05, 3)
    b.operator("RESIZE_NEAREST_NEIGHBOR", [1, twice], [z], "ResizeNearestNeighborOptions", 3)
    return b.made([x], [z])


def a_plane_beside() -> ModelBuilder:
    """GATHER -> CONCATENATION -> FILL, and the plane joined to the map."""
    b, x, extents = started()
    some, whole = b.tensor((3,), "int32"), b.tensor((4,), "int32")
    b.operator("GATHER", [extents, b.constant(np.array([0, 1, 2], np.int32))], [some], "GatherOptions")
    b.operator("CONCATENATION", [some, b.constant(np.array([1], np.int32))], [whole], "ConcatenationOptions")
    plane, z = b.tensor((1, 6, 4, 1), "int8", 0.05, 3), b.tensor((1, 6, 4, 9), "int8", 0.05, 3)
    b.operator("FILL", [whole, b.constant(np.array(7, np.int8), 0.05, 3)], [plane], "FillOptions")
    b.operator("CONCATENATION", [1, plane], [z], "ConcatenationOptions", Axis=3)
    return b.made([x], [z])


def halves() -> ModelBuilder:
    b, rng = ModelBuilder(), np.random.default_rng(1)
    x = b.tensor((1, 6, 4, 3), "float32")
    made = []
    for shape in ((5, 3, 3, 3), (5,)):
        made.append(b.tensor(shape, "float32"))
        b.operator("DEQUANTIZE", [b.constant(rng.standard_normal(shape).astype(np.float16))], made[-1:])
    y = b.tensor((1, 6, 4, 5), "float32")
    steps = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    b.operator("CONV_2D", [x, *made], [y], "Conv2DOptions", Padding=0, **steps)
    return b.made([x], [y])


CASES = [(make, HOST) for make in (to_a_matrix, twice_as_large, a_plane_beside, halves)]
CASES += [(make, way) for make in (twice_as_large, a_plane_beside) for way in WAYS]


@pytest.mark.parametrize(("make", "options"), CASES)
def test_the_rest_runs_and_equals_the_reference(
    make: Callable[[], ModelBuilder], options: CompileOptions, tmp_path: Path
) -> None:
    artifact = equals_reference(make().finish(), tmp_path, 2, options)
    assert {o.kind for o in artifact.operators} <= {
        *("RELU", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR", "CONCATENATION", "CONV_2D")
    }


def test_tensors_keep_their_indices_and_constants_have_their_bytes() -> None:
    model = twice_as_large().finish()
    before, after = read_network(model), read_network(fold_constants(model))
    assert [t.name for t in before.tensors] == [t.name for t in after.tensors]
    used = {i for o in after.cpu_operators for i in (*o.inputs, *o.outputs)}  # of others the reader keeps no shape
    assert len(used) >= 4
    assert [before.tensors[i].shape for i in used] == [after.tensors[i].shape for i in used]
    assert [o.name for o in after.cpu_operators] == ["RELU", "RESIZE_NEAREST_NEIGHBOR"]
    (size,) = (after.tensors[o.inputs[1]] for o in after.cpu_operators if len(o.inputs) == 2)
    assert size.array().tolist() == [12, 8]
    assert fold_constants(fold_constants(model)) == fold_constants(model)


def test_commands_count_the_operators_that_are_left(tmp_path: Path) -> None:
    path, runner = tmp_path / "model.tflite", CliRunner()
    path.write_bytes(twice_as_large().finish())
    listed = json.loads(runner.invoke(cli, ["operators", str(path), "--json"]).output)
    assert {o["kind"]: o["count"] for o in listed["operators"]} == {"RELU": 1, "RESIZE_NEAREST_NEIGHBOR": 1}
    assert runner.invoke(cli, ["compile", *QUICK, str(path), "-o", str(tmp_path / "out")]).exit_code == 0
    words = ["run", str(tmp_path / "out"), "--on", "local", "--layers", "--json", "--reference", str(path)]
    layers = json.loads(runner.invoke(cli, words).output)["operators"]
    assert [(o["kind"], o["verdict"]) for o in layers] == [("RELU", "equal"), ("RESIZE_NEAREST_NEIGHBOR", "equal")]


def test_nothing_to_fold_is_the_same_file() -> None:
    x, y = (TensorSpec((1, 8), "int8", 0.1) for _ in range(2))
    model = single_operator("RELU", [x], [y]).finish()
    assert fold_constants(model) is model


@pytest.mark.parametrize("change", ["returned", "large", "of no shape", "another type"])
def test_what_stays(change: str) -> None:
    """Results of the network, constants that would grow by much, and what the file leaves open or gets wrong."""
    b = ModelBuilder()
    x, s = b.tensor(() if change == "of no shape" else (2, 3), "int8", 0.1), b.tensor((2,), "int32")
    b.operator("SHAPE", [x], [s], "ShapeOptions", OutType=2)
    if change == "large":
        b.operators.clear()
        y = b.tensor((300, 300), "int8", 0.1)
        size, seven = b.constant(np.array([300, 300], np.int32)), b.constant(np.array(7, np.int8), 0.1)
        b.operator("FILL", [size, seven], [y], "FillOptions")
    kind = {"large": "int8", "another type": "int64"}.get(change, "int32")
    y = b.tensor((1, 2) if change != "large" else (300, 300), kind, 0.1)
    made = b.tensor((2,), "int64") if change == "another type" else s
    if change == "another type":
        b.operators[-1] = ("SHAPE", [x], [made], "ShapeOptions", {"OutType": 4}, 1)
    axis = b.constant(np.array(0, np.int32))
    b.operator("RELU" if change == "large" else "EXPAND_DIMS", [2] if change == "large" else [made, axis], [y])
    model = b.made([x], [y, s] if change == "returned" else [y]).finish()
    if change == "another type":
        assert len(read_network(fold_constants(model)).operators) == 1
    else:
        assert fold_constants(model) is model


_LIMITS = {t: (np.iinfo(t).min, np.iinfo(t).max) for t in ("int8", "uint8", "int16")}
_PAIRS = [("int8", "int8"), ("int8", "int16"), ("uint8", "int8"), ("uint8", "uint8"), ("int16", "int8"),
          ("int16", "int16"), ("float32", "int8"), ("float32", "uint8"), ("float32", "int16")]  # fmt: skip


def rescaled_constant(rng: np.random.Generator, source: str, target: str) -> tuple[ModelBuilder, int]:
    """A QUANTIZE of constants beside a RELU; and the tensor that it makes."""
    b = ModelBuilder()
    x, y = (b.tensor((1, 64), "int8", 0.05) for _ in range(2))
    b.operator("RELU", [x], [y])
    scale = np.float32(2.0 ** rng.uniform(-12, 2))
    other = np.float32(scale * rng.choice([1, 0.5, 3, 2.0 ** rng.uniform(-6, 6)]))
    zeros = [0 if t in ("int16", "float32") else int(rng.integers(*_LIMITS[t])) for t in (source, target)]
    if source == "float32":
        values = (rng.integers(-150, 150, (1, 64)) + rng.choice([0, 0.5], (1, 64))).astype(np.float32) * other
        constant = b.constant(values)
    else:
        constant = b.constant(rng.integers(*_LIMITS[source], (1, 64)).astype(source), float(scale), zeros[0])
    made, z = (b.tensor((1, 64), target, float(other), zeros[1]) for _ in range(2))
    b.operator("QUANTIZE", [constant], [made], "QuantizeOptions", 2)
    b.operator("RESHAPE", [made, b.constant(np.array([1, 64], np.int32))], [z], "ReshapeOptions", NewShape=[1, 64])
    return b.made([x], [y, z]), made


@pytest.mark.parametrize(("source", "target"), _PAIRS)
def test_rescaled_constants_have_the_bits_of_the_reference(source: str, target: str) -> None:
    rng = np.random.default_rng(len(source) * 31 + len(target))
    for _ in range(8):
        builder, made = rescaled_constant(rng, source, target)
        model = builder.finish()
        constant = read_network(fold_constants(model)).tensors[made].array()
        _, wanted = TFLiteReference(model).run([np.zeros((1, 64), np.int8)])
        np.testing.assert_array_equal(constant, wanted)


def constants_into_sum(kind: str, returned: bool) -> ModelBuilder:
    """A sum of the input and of what `kind` makes of constants, which may be an output too."""
    b, rng = ModelBuilder(), np.random.default_rng(len(kind))
    x = b.tensor((1, 4, 4, 8), "int8", 0.031, 5)
    made, z = b.tensor((1, 4, 4, 8), "int8", 0.043, -7), b.tensor((1, 4, 4, 8), "int8", 0.07, 3)
    first, second = (b.constant(rng.integers(-128, 128, (1, 4, 4, 8)).astype(np.int8), 0.059, 11) for _ in range(2))
    if kind == "QUANTIZE":
        b.operator(kind, [first], [made], "QuantizeOptions", 2)
    else:
        b.operator(kind, [first, second], [made], "MulOptions")
    b.operator("ADD", [x, made], [z], "AddOptions")
    return b.made([x], [z, made] if returned else [z])


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("kind", ["QUANTIZE", "MUL"])
def test_constants_that_vela_would_fold_equal_the_reference(kind: str, returned: bool, tmp_path: Path) -> None:
    options = CompileOptions(accelerator="ethos-u55-128", npu_compiler="vela", objective="bytes")
    artifact = equals_reference(constants_into_sum(kind, returned).finish(), tmp_path, 2, options)
    assert [o.kind for o in artifact.operators] == ["ADD"]


def constants_in_parts() -> ModelBuilder:
    """A concatenation of a part of a constant, and of what the NPU makes."""
    b, rng = ModelBuilder(), np.random.default_rng(7)
    x, y = b.tensor((1, 1, 1, 4), "int16", 0.0003), b.tensor((1, 1, 1, 4), "int16", 0.00007)
    weights = b.constant(rng.integers(-127, 128, (4, 1, 1, 4)).astype(np.int8), 0.001, 0)
    bias = b.constant(np.zeros(4, np.int64), 3e-7, 0)
    steps = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}
    b.operator("CONV_2D", [x, weights, bias], [y], "Conv2DOptions", 3, **steps)
    whole, axis = b.constant(rng.integers(-999, 999, (1, 1, 1, 8)).astype(np.int16), 0.00007, 0), np.array(3, np.int32)
    first, second = (b.tensor((1, 1, 1, 4), "int16", 0.00007) for _ in range(2))
    z = b.tensor((1, 1, 1, 8), "int16", 0.00007)
    b.operator("SPLIT", [b.constant(axis), whole], [first, second], "SplitOptions", 2, NumSplits=2)
    b.operator("CONCATENATION", [second, y], [z], "ConcatenationOptions", 2, Axis=3)
    return b.made([x], [z, first])


@pytest.mark.parametrize("accelerator", ["ethos-u55-256", "ethos-u85-256"])
def test_parts_of_a_constant_are_copied_for_the_npu(accelerator: str, tmp_path: Path) -> None:
    """TVM folds a SPLIT into a tuple of constants; an NPU function has no constants but its own."""
    options = CompileOptions(accelerator, npu_compiler="tvm", effort="quick")
    equals_reference(constants_in_parts().finish(), tmp_path, 2, options)


def dense_of_constants() -> ModelBuilder:
    """FULLY_CONNECTED of a constant alone, whose result is multiplied by the input."""
    b, rng = ModelBuilder(), np.random.default_rng(9)
    x = b.tensor((1, 25, 7), "int8", 0.006, 120)
    first = b.constant(rng.integers(-128, 128, (1, 5, 5, 7)).astype(np.int8), 0.0156, 127)
    second, flat = b.tensor((1, 5, 5, 7), "int8", 0.012, 0), b.tensor((1, 25, 7), "int8", 0.012, 0)
    b.operator("QUANTIZE", [first], [second], "QuantizeOptions", 2)
    b.operator("RESHAPE", [second, b.constant(np.array([1, 25, 7], np.int32))], [flat], "ReshapeOptions")
    weights = b.constant(rng.integers(-127, 128, (7, 7)).astype(np.int8), 0.023, 0)
    bias, dense = b.constant(np.zeros(7, np.int32), 0.012 * 0.023, 0), b.tensor((1, 25, 7), "int8", 0.39, 0)
    b.operator("FULLY_CONNECTED", [flat, weights, bias], [dense], "FullyConnectedOptions", 4, KeepNumDims=True)
    z = b.tensor((1, 25, 25), "int8", 0.67, -128)
    b.operator("BATCH_MATMUL", [x, dense], [z], "BatchMatMulOptions", 4, AdjY=True)
    return b.made([x], [z])


def test_a_file_of_velas_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """Vela transposes the result of an operator that it leaves to the CPU into a tensor without a scale."""
    options = CompileOptions("ethos-u65-256", effort="quick")
    equals_reference(dense_of_constants().finish(), tmp_path, 2, options)
