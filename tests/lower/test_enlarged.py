"""Enlargements by two that Keras 3 writes as RESHAPE, TILE, RESHAPE, TILE, RESHAPE: one layer of the NPU, exact."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.options import CompileOptions
from npu_memplan.vocabulary import is_npu
from tests.support.random_networks.branching import Branches, Map
from tests.support.random_networks.verdict import Trial, Verdict
from tests.support.tflite_builder import ModelBuilder

OPTIONS = CompileOptions(npu_compiler="tvm", objective="bytes")
ROWS_FIRST = (((1, 4, 1, 6, 8), 2), ((1, 8, 6, 1, 8), 3))
COLUMNS_FIRST = (((1, 4, 6, 1, 8), 3), ((1, 4, 1, 12, 8), 2))
CHANNELS = (((1, 4, 6, 8, 1), 4), ((1, 4, 1, 96), 2))


def network(steps: tuple[tuple[tuple[int, ...], int], ...]) -> bytes:
    """A convolution, shapes in which an axis of length one is repeated twice, and another convolution."""
    d = Branches(1, 9)
    x = d.conv(Map(d.b.tensor((1, 4, 6, 3), "int8", 0.05, -3), 4, 6, 3), 8, 3)
    index, scale = x.index, d.b.tensors[x.index]
    for shape, axis in steps:
        repeated = tuple(2 * n if i == axis else n for i, n in enumerate(shape))
        for name, made, numbers, options in (
            ("RESHAPE", shape, shape, "ReshapeOptions"),
            ("TILE", repeated, [2 if i == axis else 1 for i in range(len(shape))], None),
        ):
            result = d.b.tensor(made, "int8", scale.scale, scale.zero_point)
            d.b.operator(name, [index, d.b.constant(np.array(numbers, "int32"))], [result], options)
            index = result
    made = d.b.tensor((1, 8, 12, 8), "int8", scale.scale, scale.zero_point)
    d.b.operator("RESHAPE", [index, d.b.constant(np.array([1, 8, 12, 8], "int32"))], [made], "ReshapeOptions")
    return d.b.made([0], [d.conv(Map(made, 8, 12, 8), 4, 3).index]).finish()


@pytest.mark.parametrize("steps", [ROWS_FIRST, COLUMNS_FIRST], ids=["rows first", "columns first"])
@pytest.mark.parametrize("stripes", [False, True], ids=["whole", "stripes"])
def test_an_enlargement_is_one_layer_of_the_npu(steps: tuple[tuple[tuple[int, ...], int], ...], stripes: bool) -> None:
    model = network(steps)
    functions = build_module(model).module.functions.values()
    assert sum(is_npu(function) for function in functions) == 1
    assert len(functions) == 2
    options = CompileOptions(npu_compiler="tvm", objective="bytes", stripes=stripes)
    outcome = Trial(model, 1).compile_and_run(options)
    assert outcome.verdict is Verdict.EXACT, outcome.message


def test_what_the_user_keeps_on_the_host_stays_there() -> None:
    module = build_module(network(ROWS_FIRST), host_ops=("TILE",)).module
    assert [str(gv.name_hint) for gv in module.functions if "tile" in gv.name_hint]


def test_repeated_channels_are_no_enlargement() -> None:
    outcome = Trial(network(CHANNELS), 1).compile_and_run(OPTIONS)
    assert outcome.verdict is Verdict.EXACT, outcome.message


def test_what_picks_from_several_is_no_repetition() -> None:
    """A column beside its own copy, and a reshape behind it."""
    b = ModelBuilder()
    x, joined, made = (b.tensor(shape, "int8", 0.1, 3) for shape in ((1, 6, 1), (1, 6, 2), (4, 3, 1)))
    amounts = b.constant(np.array([[0, 0], [0, 0], [0, 1]], np.int32))
    b.operator("MIRROR_PAD", [x, amounts], [joined], "MirrorPadOptions", 2, Mode=1)
    b.operator("RESHAPE", [joined], [made], "ReshapeOptions", NewShape=[4, 3, 1])
    functions = build_module(b.made([x], [made]).finish()).module.functions.values()
    assert [is_npu(function) for function in functions].count(True) == 1
