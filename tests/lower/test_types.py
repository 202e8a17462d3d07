"""A QUANTIZE between int8 and uint8 that changes no number is no operation before layers that read either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.layers.movement import Slice
from npu_memplan.ethosu.lower.layer import LayerGraph
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference
from tests.support.arithmetic_models import convolution, fully_connected, pool
from tests.support.on_model import only_graph, run_program
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")
NPU = "ethos-u55-256"


def quantised(layer: Callable[..., ModelBuilder], scale: float = 1.0, zero: int = 0, **options: Any) -> Case:
    """`layer` of int8 behind a QUANTIZE of a uint8 input."""

    def make(rng: np.random.Generator) -> ModelBuilder:
        b = layer(rng, **options)
        (x,) = b.inputs
        tensor = b.tensors[x]
        given = b.tensor(tensor.shape, "uint8", tensor.scale * scale, tensor.zero_point + 128 + zero)
        operators, b.operators = b.operators, []
        b.operator("QUANTIZE", [given], [x], "QuantizeOptions", 2)
        b.operators += operators
        return b.made([given], b.outputs)

    return Case(f"types_{layer.__name__}_{scale}_{zero}_{len(options)}", "types", make)


def graph_of(case: Case) -> LayerGraph:
    return only_graph(partition_for_ethosu(import_relax(case.build()), NPU))


def operations(lowered: Lowered) -> list[Op]:
    return [operation.op for operation in lowered.program.operations]


CASES: dict[str, tuple[Case, list[Op]]] = {
    "convolution": (quantised(convolution), [Op.CONV]),
    "few channels": (quantised(convolution, shape=(8, 16, 3), stride=(2, 2)), [Op.CONV]),
    "depthwise": (quantised(convolution, depthwise=True), [Op.DEPTHWISE]),
    "fully connected": (quantised(fully_connected, batch=4), [Op.CONV]),
    "another scale": (quantised(convolution, scale=1.01), [Op.POOL, Op.CONV]),
    "another zero": (quantised(convolution, zero=1), [Op.POOL, Op.CONV]),
    "a reader of stored values": (quantised(pool), [Op.POOL, Op.POOL]),
}


@pytest.mark.parametrize("label", CASES)
def test_it_is_left_out_where_no_number_changes(label: str) -> None:
    case, expected = CASES[label]
    assert operations(lower(graph_of(case), accelerator(NPU))) == expected


@pytest.mark.parametrize("label", CASES)
def test_equals_the_reference(label: str) -> None:
    equals_reference(CASES[label][0], NPU, 5)


def test_rows_with_gaps_are_moved_for_who_needs_dense_ones() -> None:
    """A fully connected layer cannot read a slice in place: its numbers are quantised as the model says."""
    whole = graph_of(quantised(fully_connected, batch=4))
    (name,), wide = whole.inputs, 60
    given = whole.tensors[name]
    cut = Slice("cut", ("wide",), name, (0, 7), (1, 1))
    tensors = {**whole.tensors, "wide": replace(given, name="wide", shape=(4, wide))}
    part = replace(whole, tensors=tensors, inputs=("wide",), layers=(cut, *whole.layers))
    values = np.random.default_rng(3).integers(0, 256, (4, wide)).astype(np.uint8)
    expected = run_program(lower(whole, accelerator(NPU)), {name: values[:, 7 : 7 + given.shape[1]].copy()})
    lowered = lower(part, accelerator(NPU))
    assert operations(lowered) == [Op.POOL, Op.CONV]
    assert np.array_equal(run_program(lowered, {"wide": values}), expected)
