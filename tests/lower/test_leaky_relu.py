"""LEAKY_RELU of int16: two products, and their maximum where that is exact for every value, else a sum."""

from __future__ import annotations

from functools import partial

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.program.program import BufferRole
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from npu_memplan.ethosu.stream.isa import ElementwiseMode
from tests.support.arithmetic_models import unary
from tests.support.on_model import only_graph
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference


def leaky_relu(slope: float, ratio: float) -> Case:
    """`ratio`: the input's scale to the output's."""
    fields = {"dtype": "int16", "options": "LeakyReluOptions", "shape": (1, 16, 64, 32), "Alpha": slope}
    out = (1e-4 / ratio, 0)
    return Case(
        f"leaky_relu_{slope}_{ratio}", "leaky_relu", partial(unary, name="LEAKY_RELU", in_scale=1e-4, out=out, **fields)
    )


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
@pytest.mark.parametrize("ratio", [1.0, 0.93, 0.501, 2.7, 0.013])
@pytest.mark.parametrize("slope", [0.0, 0.1, 0.5, 0.97, 1.0, 1.3])
def test_equals_the_reference(npu: str, slope: float, ratio: float) -> None:
    equals_reference(leaky_relu(slope, ratio), npu, 5)


@pytest.mark.parametrize(("slope", "last"), [(0.1, ElementwiseMode.MAX), (1.3, ElementwiseMode.ADD)])
def test_the_larger_product_is_the_result_where_the_slope_is_small(slope: float, last: ElementwiseMode) -> None:
    npu = "ethos-u55-256"
    graph = only_graph(partition_for_ethosu(import_relax(leaky_relu(slope, 0.93).build()), npu))
    program = lower(graph, accelerator(npu)).program
    assert [o.parameter for o in program.operations] == [ElementwiseMode.MUL, ElementwiseMode.MUL, last]
    assert all(buffer.role is not BufferRole.CONSTANTS for buffer in program.buffers)
