"""Maps of few channels, seen as ones of more: the same sums and the same elements, in fewer cycles."""

from __future__ import annotations

from typing import Any

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.program.access import FeatureMap, Kernel
from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference
from tests.support.on_model import npu_graph
from tests.support.operator_models import convolution, quantize
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")


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
