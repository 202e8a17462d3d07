"""Maps of few channels, seen as ones of more: the same sums and the same elements, in fewer cycles."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.layers.matrix import Sums, in_runs
from npu_memplan.ethosu.lower.emit import exact_window
from npu_memplan.ethosu.lower.operands import Operand, Padding, TensorView, Window
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.program.access import FeatureMap, Kernel
from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference
from tests.support.on_model import npu_graph
from tests.support.operator_models import convolution, quantize
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")


def convolved(sums: Sums, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The sums over the bytes of a buffer, by definition."""
    view, window = sums.ifm.view, sums.window
    seen = as_strided(data[view.offset :], view.shape, view.strides).astype(int)
    pad = window.padding
    seen = np.pad(seen, ((pad.top, pad.bottom), (pad.left, pad.right), (0, 0)))
    (rows, columns), (down, across) = window.kernel, window.stride
    height, width = (seen.shape[0] - rows) // down + 1, (seen.shape[1] - columns) // across + 1
    made = np.zeros((height, width, len(sums.weights)), int)
    for y, x in product(range(height), range(width)):
        piece = seen[y * down : y * down + rows, x * across : x * across + columns]
        made[y, x] = (sums.weights.astype(int) * piece).sum((1, 2, 3))
    return made


def case(width: int, kernel: int, stride: int, left: int, right: int, depth: int) -> tuple[Sums, Operand]:
    """A convolution of 3x`kernel` elements whose right padding is what is really read, and its output."""
    rng = np.random.default_rng(width * 1000 + kernel * 100 + stride * 10 + left)
    ifm = Operand(TensorView.dense("in", (5, width, depth), 1), "int8")
    made = (width + left + right - kernel) // stride + 1
    ofm = Operand(TensorView.dense("out", (3, made, 2), 1), "int8")
    weights = rng.integers(-9, 9, (2, 3, kernel, depth))
    return Sums(ifm, exact_window(Window((3, kernel), (2, stride), padding=Padding(1, left)), ifm, ofm), weights), ofm


CASES = [
    (width, kernel, stride, left, right, depth)
    for width, kernel, stride, depth in product(range(3, 9), range(2, 6), range(1, 4), (1, 3))
    for left, right in product(range(min(kernel, 4)), range(min(kernel, 3)))
    if width + left + right >= kernel
]


def test_the_sums_are_the_same_however_the_input_is_seen() -> None:
    seen = 0
    for parameters in CASES:
        sums, ofm = case(*parameters)
        data = np.random.default_rng(1).integers(-9, 9, 5 * parameters[0] * parameters[5]).astype(np.int8)
        expected = convolved(sums, data)
        way = in_runs(sums, ofm)
        if way is not None:
            found = convolved(way, data)
            assert found.shape[1] >= ofm.shape.width  # columns behind the last are left
            assert np.array_equal(found[:3, : ofm.shape.width], expected), parameters
            seen += 1
    assert seen == sum(stride > 1 and width % stride == 0 for width, _, stride, *_ in CASES) > 200


def kernels(made: Case, npu: str) -> list[tuple[int, int, int]]:
    """Input width, input depth and taps of each operation."""
    graph = npu_graph(made.build(), npu)
    program = lower(graph, accelerator(npu)).program
    found = []
    for index, operation in enumerate(program.operations):
        assert operation.op in (Op.CONV, Op.POOL)
        placed = program.at_zero(index)
        ifm, kernel = FeatureMap.ifm(placed), Kernel.from_registers(placed)
        found.append((ifm.width, ifm.depth, kernel.height * kernel.width))
    return found


def model(label: str, **options: Any) -> Case:
    return Case(f"narrow_{label}", "conv", lambda rng: convolution(rng, **options))


ONE: dict[str, Any] = {"kernel": (10, 4), "shape": (49, 10, 1), "channels": 64}
THREE: dict[str, Any] = {"kernel": (3, 3), "stride": (2, 2), "channels": 8}
TAKEN: dict[str, tuple[dict[str, Any], list[tuple[int, int, int]]]] = {
    # (input width, input depth, taps) of the convolutions
    "two columns as one": ({**THREE, "shape": (16, 32, 3)}, [(16, 6, 6)]),
    "a column in front": ({**ONE, "stride": (2, 2)}, [(5, 2, 30)]),
    "without a stride": ({**ONE, "stride": (1, 1)}, [(10, 1, 40)]),
    "the first of two in front of the window": ({**THREE, "kernel": (3, 5), "shape": (16, 32, 3)}, [(16, 6, 9)]),
    "an odd row stays": ({**THREE, "shape": (16, 33, 3)}, [(33, 3, 9)]),
    "many channels stay": ({**THREE, "shape": (16, 32, 32)}, [(32, 32, 9)]),
    "dilated ones stay": ({"kernel": (3, 3), "dilation": (1, 2), "shape": (16, 32, 1)}, [(32, 1, 15)]),
}


@pytest.mark.parametrize("label", TAKEN)
def test_the_fastest_way_is_taken(label: str) -> None:
    options, expected = TAKEN[label]
    assert kernels(model(label, **options), "ethos-u55-256") == expected


ROWS = {
    "three": ((6, 32, 3), (6, 16)),
    "one": ((6, 32, 1), (2, 16)),
    "odd": ((6, 31, 3), (1, 93)),
    "four": ((6, 32, 4), (32, 4)),
}


@pytest.mark.parametrize("label", ROWS)
@pytest.mark.parametrize("source, target", [("int8", "int8"), ("int16", "int16"), ("uint8", "int8")])
def test_elements_of_few_channels_are_bricks_to_what_works_on_each(label: str, source: str, target: str) -> None:
    shape, seen = ROWS[label]
    made = Case(f"narrow_{label}", "quantize", lambda rng: quantize(rng, source, target, (1, *shape)))
    assert kernels(made, "ethos-u55-256") == [(*seen, 1)]
    equals_reference(made, "ethos-u55-256", 5)
