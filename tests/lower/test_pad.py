"""Pads of channels, beside those of height and width, equal the reference; what they add is made of no constants."""

from __future__ import annotations

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from tests.support.against_reference import equals_reference
from tests.support.movement_models import pad
from tests.support.on_model import only_graph
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")

NONE = (0, 0)
CASES = {  # of [1, 5, 6, 10]: amounts, type, operations
    "behind": ((NONE, NONE, NONE, (0, 5)), "int8", 2),
    "in front": ((NONE, NONE, NONE, (3, 0)), "uint8", 2),
    "on both sides": ((NONE, NONE, NONE, (2, 5)), "int16", 3),
    "more than there are": ((NONE, NONE, NONE, (0, 35)), "int8", 5),
    "every side": ((NONE, (1, 2), (3, 1), (20, 2)), "int8", 8),
}


def case(label: str) -> Case:
    amounts, dtype, _ = CASES[label]
    return Case(f"pad_{label}", "pad", lambda rng: pad(rng, amounts, dtype))


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("label", CASES)
def test_equals_the_reference(label: str, npu: str) -> None:
    equals_reference(case(label), npu, 3)


@pytest.mark.parametrize("label", CASES)
def test_channels_are_made_of_what_is_there(label: str) -> None:
    graph = only_graph(partition_for_ethosu(import_relax(case(label).build()), "ethos-u55-256"))
    lowered = lower(graph, accelerator("ethos-u55-256"))
    assert len(lowered.program.operations) == CASES[label][2]
    assert bool(lowered.constants) == (label == "every side")  # rows and columns are copied
