"""Shapes that a file leaves to the run time, though they follow from its inputs, are static when it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npu_memplan.models.folding import fold_constants, with_static_shapes
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.frontend.test_folding import started, to_a_matrix, twice_as_large
from tests.support.in_steps import HOST, equals_reference
from tests.support.tflite_builder import ModelBuilder, TensorSpec

Leave = Callable[[TensorSpec], TensorSpec]
_STEPS = {"StrideH": 2, "StrideW": 1}
_DILATED = {"DilationHFactor": 1, "DilationWFactor": 2}


def no_rank(spec: TensorSpec) -> TensorSpec:
    """As converters write a tensor of unknown rank."""
    return replace(spec, shape=())


def ones(spec: TensorSpec) -> TensorSpec:
    """As converters write unknown extents: 1 in their place, and -1 in the signature."""
    return replace(spec, shape=(1,) * len(spec.shape), signature=(-1,) * len(spec.shape))


def left_open(b: ModelBuilder, leave: Leave) -> bytes:
    """The file of `b`, in which what is computed has its shape when it runs."""
    for index, spec in enumerate(b.tensors):
        if index not in b.inputs and spec.data is None and spec.shape:
            b.tensors[index] = leave(spec)
    return b.finish()


def one(name: str, inputs: Sequence[Any], shape: tuple[int, ...], kind: str | None, **options: Any) -> ModelBuilder:
    """One operator of a map, [1, 6, 4, 8], and constants."""
    b = ModelBuilder()
    x = b.tensor((1, 6, 4, 8), "float32")
    given = [x if value is None else b.constant(np.array(value)) for value in inputs]
    y = b.tensor(shape, "float32")
    b.operator(name, given, [y], kind, **options)
    return b.made([x], [y])


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


OPERATORS: list[tuple[str, list[Any], tuple[int, ...], str | None, dict[str, Any]]] = [
    ("CONV_2D", [None, f32(5, 3, 3, 8), f32(5)], (1, 3, 4, 5), "Conv2DOptions", {**_STEPS, **_DILATED, "Padding": 0}),
    ("CONV_2D", [None, f32(5, 3, 2, 8), f32(5)], (1, 2, 2, 5), "Conv2DOptions", {**_STEPS, **_DILATED, "Padding": 1}),
    ("DEPTHWISE_CONV_2D", [None, f32(1, 3, 3, 16), f32(16)], (1, 3, 4, 16), "DepthwiseConv2DOptions",
     {**_STEPS, "DilationHFactor": 1, "DilationWFactor": 1, "DepthMultiplier": 2, "Padding": 0}),
    ("MAX_POOL_2D", [None], (1, 2, 3, 8), "Pool2DOptions",
     {**_STEPS, "FilterHeight": 3, "FilterWidth": 2, "Padding": 1}),
    ("MEAN", [None, i32(1, 2)], (1, 8), "ReducerOptions", {}),
    ("MEAN", [None, i32(-2)], (1, 6, 1, 8), "ReducerOptions", {"KeepDims": True}),
    ("PAD", [None, i32(0, 0, 1, 2, 0, 3, 0, 0).reshape(4, 2)], (1, 9, 7, 8), "PadOptions", {}),
    ("RESIZE_NEAREST_NEIGHBOR", [None, i32(12, 8)], (1, 12, 8, 8), "ResizeNearestNeighborOptions", {}),
    ("MUL", [None, f32(1, 1, 4, 1)], (1, 6, 4, 8), "MulOptions", {}),
    ("TRANSPOSE", [None, i32(0, 3, 1, 2)], (1, 8, 6, 4), "TransposeOptions", {}),
    ("EXPAND_DIMS", [None, i32(-1)], (1, 6, 4, 8, 1), "ExpandDimsOptions", {}),
    ("SLICE", [None, i32(0, 1, 0, 2), i32(1, 3, -1, 4)], (1, 3, 4, 4), "SliceOptions", {}),
    ("RESHAPE", [None, i32(2, -1)], (2, 96), "ReshapeOptions", {}),
    ("CONCATENATION", [None, f32(1, 6, 4, 2)], (1, 6, 4, 10), "ConcatenationOptions", {"Axis": -1}),
    ("FULLY_CONNECTED", [None, f32(3, 192), f32(3)], (1, 3), "FullyConnectedOptions", {}),
    ("LOGISTIC", [None], (1, 6, 4, 8), None, {}),
]  # fmt: skip


@pytest.mark.parametrize("leave", [no_rank, ones])
@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case[0])
def test_an_operators_shape_follows(case: Any, leave: Leave) -> None:
    name, inputs, shape, kind, options = case
    model = left_open(one(name, inputs, shape, kind, **options), leave)
    network = read_network(with_static_shapes(model))
    assert network.tensors[network.outputs[0]].shape == shape


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case[0])
def test_the_reference_says_the_same(case: Any, tmp_path: Path) -> None:
    name, inputs, shape, kind, options = case
    model = left_open(one(name, inputs, shape, kind, **options), ones)
    artifact = equals_reference(model, tmp_path, 1) if name not in _ROUNDED else None
    assert artifact is None or artifact.outputs[0].shape == shape


_ROUNDED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MEAN", "LOGISTIC")  # floats, in another order


@pytest.mark.parametrize("leave", [no_rank, ones])
@pytest.mark.parametrize("make", [to_a_matrix, twice_as_large])
@pytest.mark.parametrize("options", [HOST, CompileOptions(objective="bytes", effort="quick")], ids=["host", "npu"])
def test_a_chain_of_shapes_is_compiled_and_exact(
    make: Callable[[], ModelBuilder], leave: Leave, options: CompileOptions, tmp_path: Path
) -> None:
    made = make()
    wanted = [made.tensors[i].shape for i in made.outputs]
    artifact = equals_reference(left_open(made, leave), tmp_path, 2, options)
    assert [slot.shape for slot in artifact.outputs] == wanted
    assert {o.kind for o in artifact.operators} <= {"RELU", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR"}


@pytest.mark.parametrize("signature", [(-1, 4, 6, 8), (-1,) * 4, (7,)])
@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u85-256"])
def test_vela_compiles_the_stated_shape(signature: tuple[int, ...], npu: str, tmp_path: Path) -> None:
    """It takes -1 in a signature for an extent of 1, so that all images but the first were left out."""
    b = ModelBuilder()
    x = b.tensor((3, 4, 6, 8), "int8", 0.05, 3, signature=signature)
    y = b.tensor((3, 2, 6, 8), "int8", 0.05, 3, signature=signature)
    b.operator("MAX_POOL_2D", [x], [y], "Pool2DOptions", **_STEPS, FilterHeight=2, FilterWidth=1)
    options = CompileOptions(npu, npu_compiler="vela")
    (operator,) = equals_reference(b.made([x], [y]).finish(), tmp_path, 1, options).operators
    assert operator.agent is Agent.NPU


def test_a_shape_of_the_networks_values_stays_open() -> None:
    b, x, extents = started()
    count, z = b.tensor((4,), "int32"), b.tensor((1, 192), "int8", 0.05, 3)
    b.operator("ADD", [extents, extents], [count], "AddOptions", FusedActivationFunction=1)
    b.operator("RESHAPE", [1, count], [z], "ReshapeOptions")
    model = left_open(b.made([x], [z]), no_rank)
    assert read_network(with_static_shapes(model)).tensors[z].shape == ()
    assert [o.name for o in read_network(fold_constants(model)).cpu_operators] == ["RELU", "ADD", "RESHAPE"]


def test_what_a_file_states_is_kept() -> None:
    model = twice_as_large().finish()
    assert with_static_shapes(model) is model
