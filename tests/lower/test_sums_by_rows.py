"""Sums of whole maps by rows: the results of the sums they stand for, and stripes in which the map is never whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.graph_rewrites import Total, sum_by_rows
from npu_memplan.ethosu.layers.matrix import FullyConnected
from npu_memplan.ethosu.layers.movement import Reshape
from npu_memplan.ethosu.layers.pool import PoolKind, PoolLayer
from npu_memplan.ethosu.lower.layer import LayerGraph
from npu_memplan.ethosu.lower.operands import Arithmetic, LayerTensor
from npu_memplan.ethosu.lowering import Lowered, LoweringTarget, lower
from npu_memplan.ethosu.schedule.stripes.cascade_space import CascadeSpace, apply
from npu_memplan.tuning.cascades import best_choice
from tests.support.chains import Chain
from tests.support.on_model import random_inputs, run_program

BY_ROWS = LoweringTarget(sums_by_rows=True)
NPUS = ("ethos-u55-256", "ethos-u55-32", "ethos-u65-512", "ethos-u85-256", "ethos-u85-2048")
SHAPES = ((4, 1, 1), (5, 3, 7), (25, 5, 64), (9, 4, 17))


def average(shape: tuple[int, int, int], kind: PoolKind, dtype: str) -> LayerGraph:
    """Of all rows and columns."""
    info, zero = np.iinfo(dtype), {"int8": -7, "uint8": 130, "int16": 0}[dtype]
    scale = 0.05 if kind is PoolKind.AVERAGE else 0.031
    tensors = [
        LayerTensor("x", (1, *shape), dtype, 0.05, zero),
        LayerTensor("y", (1, 1, 1, shape[2]), dtype, scale, zero if kind is PoolKind.AVERAGE else zero + 5),
    ]
    layer = PoolLayer("pool", ("x",), "y", kind, shape[:2], (int(info.min), int(info.max)))
    return LayerGraph("average", {t.name: t for t in tensors}, ("x",), ("y",), (layer,))


def product(shape: tuple[int, int, int], made: int = 5) -> LayerGraph:
    """A matrix times the flattened map."""
    rng, size = np.random.default_rng(sum(shape)), int(np.prod(shape))
    tensors = [
        LayerTensor("x", (1, *shape), "int8", 0.05, 11),
        LayerTensor("flat", (1, size), "int8", 0.05, 11),
        LayerTensor("y", (1, made), "int8", 0.9, -4),
    ]
    weights = rng.integers(-127, 128, (made, 1, 1, size)).astype(np.int16)
    bias = rng.integers(-9000, 9000, made).astype(np.int64)
    layers = (
        Reshape("reshape", ("x",), "flat"),
        FullyConnected("fully_connected", ("flat",), "y", weights, bias, (0.002,), (-128, 120)),
    )
    return LayerGraph("product", {t.name: t for t in tensors}, ("x",), ("y",), layers)


def inputs_of(graph: LayerGraph) -> list[dict[str, np.ndarray]]:
    """Random, and all at either limit."""
    (name,) = graph.inputs
    tensor = graph.tensors[name]
    extremes = [{name: np.full(tensor.shape, limit, tensor.dtype)} for limit in tensor.limits]
    return [random_inputs(graph, 1), random_inputs(graph, 2), *extremes]


def equal(graph: LayerGraph, npu: str) -> bool:
    """Whether both ways make the same of every input."""
    whole, by_rows = lower(graph, accelerator(npu)), lower(graph, accelerator(npu), BY_ROWS)
    return all(np.array_equal(run_program(whole, x), run_program(by_rows, x, scheduled=True)) for x in inputs_of(graph))


@pytest.mark.parametrize("npu", NPUS)
@pytest.mark.parametrize("kind", [PoolKind.AVERAGE, PoolKind.MEAN])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_averages_are_those_of_one_operation(npu: str, kind: PoolKind, dtype: str) -> None:
    for shape in SHAPES:
        graph = average(shape, kind, dtype)
        assert any(isinstance(layer, Total) for layer in sum_by_rows(graph).layers)
        assert equal(graph, npu), shape


def test_averages_of_real_numbers_are_rounded_once() -> None:
    for shape in SHAPES:
        assert equal(replace(average(shape, PoolKind.MEAN, "int8"), arithmetic=Arithmetic.REAL), "ethos-u55-256")


@pytest.mark.parametrize("npu", NPUS)
def test_products_are_those_of_one_operation(npu: str) -> None:
    for shape in SHAPES:
        graph = product(shape)
        assert [type(layer).__name__ for layer in sum_by_rows(graph).layers] == ["RowSums", "Total"]
        assert equal(graph, npu), shape


def test_what_is_not_summed_by_rows_stays() -> None:
    """Few rows, 16 bits, scales of channels, another output of the flattened map."""
    for graph in (average((3, 5, 8), PoolKind.AVERAGE, "int8"), average((9, 5, 8), PoolKind.AVERAGE, "int16")):
        assert sum_by_rows(graph).layers == graph.layers
    graph = product((6, 3, 4))
    reshape, matrix = graph.layers
    assert isinstance(matrix, FullyConnected)
    apart = replace(graph, layers=(reshape, replace(matrix, weight_scales=(0.002,) * 5)))
    assert sum_by_rows(apart).layers == apart.layers
    shown = sum_by_rows(replace(graph, outputs=("y", "flat")))
    assert [type(layer).__name__ for layer in shown.layers] == ["Reshape", "RowSums", "Total"]


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
def test_stripes_then_need_less_than_the_map(npu: str) -> None:
    chain = Chain(2, (30, 6, 8))
    for _ in range(2):
        chain.conv(32, 3, 1)
    chain.tensors["y"] = replace(chain.tensors[chain.last], name="y", shape=(1, 1, 1, 32))
    chain.layers.append(PoolLayer("pool", (chain.last,), "y", PoolKind.AVERAGE, (30, 6), (-128, 127)))
    chain.last = "y"
    graph, needed = chain.graph(), []
    for target in (LoweringTarget(), BY_ROWS):
        lowered = lower(graph, accelerator(npu), target)
        groups = CascadeSpace(lowered.program)
        chosen = best_choice(groups, 0)
        needed.append(chosen.size_bytes)
        striped = Lowered(apply(lowered.program, chosen.groups, groups.costs.blocks), lowered.constants)
        inputs = random_inputs(graph, 3)
        assert np.array_equal(run_program(striped, inputs), run_program(lowered, inputs))
    map_bytes = 30 * 6 * 32
    assert needed[1] < map_bytes < needed[0]
