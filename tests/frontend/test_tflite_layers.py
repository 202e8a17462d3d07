"""The reader of TFLite operators: what files of old converters, and of other tools, say in their own way."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.ethosu.layers.matrix import FullyConnected
from npu_memplan.ethosu.layers.movement import ChannelGather, Rearrange, Reshape, Slice
from npu_memplan.ethosu.layers.resize import Resize
from npu_memplan.frontend.tflite.lowered import NpuGroup
from tests.support.against_reference import equals_reference
from tests.support.on_model import npu_graph, partition_model
from tests.support.single_operators import case
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator


def test_dense_layers_flatten_inputs_of_any_rank() -> None:
    x = TensorSpec((1, 4, 10), "int8", 0.05, 3)
    w = constant(np.arange(-100, 100).reshape(5, 40), "int8", 0.01)
    y = TensorSpec((1, 5), "int8", 0.5, -1)
    model = single_operator("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions", 4).finish()
    assert [type(layer) for layer in npu_graph(model).layers] == [Reshape, FullyConnected]
    equals_reference(model, "ethos-u55-256")


def test_a_dimension_of_scales_means_nothing_where_there_is_one_scale() -> None:
    equals_reference(case("depthwise_c1"), "ethos-u55-256")  # it says dimension 3


@pytest.mark.parametrize("scale", [None, ()])
def test_empty_tables_of_scales(scale: tuple[float, ...] | None) -> None:
    x, y = (TensorSpec((1, size, size, 4), "int8", 0.05, 3) for size in (3, 6))
    inputs = [x, constant([6, 6], "int32", scale)]
    model = single_operator("RESIZE_NEAREST_NEIGHBOR", inputs, [y], "ResizeNearestNeighborOptions").finish()
    assert [type(layer) for layer in npu_graph(model).layers] == [Resize]


@pytest.mark.parametrize(
    ("places", "axis", "batches", "kinds"),
    [
        ([2, 0], 2, 0, [Rearrange]),
        ([2, 0], 3, 0, [ChannelGather]),
        (1, 2, 0, []),
        ([3, -1], 2, 0, [Rearrange]),  # the nearest places, as in the host's code
    ],
)
def test_gather_of_constant_places(places: list[int] | int, axis: int, batches: int, kinds: list[type]) -> None:
    b = ModelBuilder()
    indices, shape = np.array(places, np.int32), (1, 2, 3, 4)
    x = b.tensor(shape, "int8", 0.05, 3)
    y = b.tensor((*shape[:axis], *indices.shape, *shape[axis + 1 :]), "int8", 0.05, 3)
    b.operator("GATHER", [x, b.constant(indices)], [y], "GatherOptions", 2, Axis=axis, BatchDims=batches)
    steps = partition_model(b.made([x], [y]).finish()).steps()
    assert [type(layer) for step in steps if isinstance(step, NpuGroup) for layer in step.graph.layers] == kinds


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_reshape_copies_stored_values(dtype: str) -> None:
    x, y = TensorSpec((1, 4, 6), dtype, 0.05, 3), TensorSpec((1, 24), dtype, 0.07, 9)
    b = single_operator("RESHAPE", [x, constant([1, 24])], [y], "ReshapeOptions", NewShape=[1, 24])
    equals_reference(b, "ethos-u55-256")


def test_parts_that_nobody_reads_are_not_computed() -> None:
    b = ModelBuilder()
    x, y, z = b.tensor((1, 3, 3, 8), "int8", 0.5), *(b.tensor((1, 3, 3, 4), "int8", 0.5) for _ in range(2))
    b.operator("SPLIT", [b.constant(np.array(3, np.int32)), x], [y, z], "SplitOptions", 2, NumSplits=2)
    (layer,) = npu_graph(b.made([x], [z]).finish()).layers
    assert isinstance(layer, Slice)
    assert layer.begin == (0, 0, 0, 4)


def test_functions_do_not_wait_for_each_other() -> None:
    """Two branches from one layer, of which one goes over the host, and a layer that reads both."""
    maker = ModelBuilder()
    given = maker.tensor((1, 8, 8, 8), "int8", 0.05, 0)

    def convolve(source: int) -> int:
        made = maker.tensor((1, 8, 8, 8), "int8", 0.05, 0)
        weights = maker.constant(np.ones((8, 1, 1, 8), np.int8), 0.01)
        numbers = dict.fromkeys(("StrideW", "StrideH", "DilationWFactor", "DilationHFactor"), 1)
        maker.operator(
            "CONV_2D", [source, weights, maker.constant(np.ones(8, np.int32), 0.0005)], [made], "Conv2DOptions", 3,
            Padding=0, FusedActivationFunction=0, **numbers,
        )  # fmt: skip
        return made

    def add_cumulative_sum(source: int) -> int:
        made = maker.tensor((1, 8, 8, 8), "int8", 0.05, 0)
        axis = maker.constant(np.array([1], np.int32))
        maker.operator("CUMSUM", [source, axis], [made], "CumsumOptions", 1, Exclusive=False, Reverse=False)
        return made

    def add_sum(one: int, other: int) -> int:
        made = maker.tensor((1, 8, 8, 8), "int8", 0.05, 0)
        maker.operator("ADD", [one, other], [made], "AddOptions", 2, FusedActivationFunction=0)
        return made

    first = convolve(given)
    left, right = add_cumulative_sum(first), convolve(first)
    both = add_sum(left, right)
    end = add_sum(add_sum(convolve(add_cumulative_sum(right)), both), add_cumulative_sum(both))
    parts = partition_model(maker.made([given], [end]).finish())
    steps, known = parts.steps(), {parts.names[given]}
    for step in steps:
        if isinstance(step, NpuGroup):
            assert known.issuperset(step.graph.inputs)
            known.update(step.graph.outputs)
        else:
            assert parts.names[step.inputs[0]] in known
            known.update(parts.names[index] for index in step.outputs)
    assert sum(isinstance(step, NpuGroup) for step in steps) >= 3
