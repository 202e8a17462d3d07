"""Padding with the lowest value before MAX_POOL_2D is the window's own; any other padding stays, and both are exact."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.ethosu.graph_rewrites import fold_pads
from npu_memplan.ethosu.layers.movement import Pad
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from npu_memplan.options import CompileOptions
from tests.support.on_model import only_graph
from tests.support.random_networks.verdict import Trial, Verdict
from tests.support.relax_import import import_relax
from tests.support.tflite_builder import ModelBuilder

CASES = {  # type, zero point, padding value, rows and columns before and after, window, whether the pool takes it
    "zero point": ("int8", -128, None, (1, 1), 3, True),
    "value": ("int8", -3, -128, (1, 2), 3, True),
    "behind alone": ("int8", -128, None, (0, 1), 2, True),
    "above the lowest": ("int8", -3, None, (1, 1), 3, False),
    "window in the padding": ("int8", -128, None, (2, 1), 2, False),
    "uint8": ("uint8", 0, None, (1, 1), 3, True),
    "uint8 above": ("uint8", 128, None, (1, 1), 3, False),
}


def network(name: str) -> bytes:
    """A padded pool."""
    dtype, zero, value, (before, after), window, _ = CASES[name]
    b = ModelBuilder()
    x = b.tensor((1, 9, 11, 8), dtype, 0.05, zero)
    rows, columns = 9 + before + after, 11 + before + after
    padded = b.tensor((1, rows, columns, 8), dtype, 0.05, zero)
    made = b.tensor((1, (rows - window) // 2 + 1, (columns - window) // 2 + 1, 8), dtype, 0.05, zero)
    sides = b.constant(np.array([[0, 0], [before, after], [before, after], [0, 0]], "int32"))
    if value is None:
        b.operator("PAD", [x, sides], [padded], "PadOptions", 2)
    else:
        constant = b.constant(np.array([value], dtype), 0.05, zero_point=zero)
        b.operator("PADV2", [x, sides, constant], [padded], "PadV2Options", 2)
    fields = {"FilterHeight": window, "FilterWidth": window, "StrideH": 2, "StrideW": 2, "Padding": 1}
    b.operator("MAX_POOL_2D", [padded], [made], "Pool2DOptions", 2, FusedActivationFunction=0, **fields)
    return b.made([x], [made]).finish()


@pytest.mark.parametrize("name", CASES)
def test_a_pool_takes_the_padding_that_no_maximum_sees(name: str) -> None:
    graph = only_graph(partition_for_ethosu(import_relax(network(name))))
    assert any(isinstance(layer, Pad) for layer in graph.layers)
    assert any(isinstance(layer, Pad) for layer in fold_pads(graph).layers) is not CASES[name][-1]


@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
@pytest.mark.parametrize("name", CASES)
def test_a_padded_pool_is_exact(name: str, npu: str) -> None:
    outcome = Trial(network(name), 1).try_unchecked(CompileOptions(npu, npu_compiler="tvm", effort="quick"))
    assert outcome.verdict is Verdict.EXACT, outcome.message
