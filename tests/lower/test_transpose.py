"""Planes to pixels and back: few planes in one operation, by reading and writing planes as bricks of 16 columns."""

from __future__ import annotations

import pytest

from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference, operations_of
from tests.support.movement_models import transpose
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")

CASES = {
    "three planes": (((0, 2, 3, 1), (1, 3, 5, 48), "int8"), [Op.CONV]),
    "three planes uint8": (((0, 2, 3, 1), (1, 3, 5, 32), "uint8"), [Op.CONV]),
    "without a batch": (((1, 2, 0), (1, 8, 5, 16), "int8"), [Op.CONV]),
    "three channels": (((0, 3, 1, 2), (1, 6, 32, 3), "int8"), [Op.CONV]),
    "one row": (((0, 2, 3, 1), (1, 2, 1, 64), "int8"), [Op.CONV]),
    "other columns": (((0, 2, 3, 1), (1, 3, 5, 40), "int8"), [Op.POOL] * 3),
    "other types": (((0, 2, 3, 1), (1, 3, 5, 16), "int16"), [Op.POOL] * 3),
    "more planes": (((0, 2, 3, 1), (1, 9, 5, 16), "int8"), [Op.POOL] * 9),
    "other axes": (((0, 3, 2, 1), (1, 16, 16, 3), "int8"), [Op.POOL] * 3),
}


def case(label: str) -> Case:
    order, shape, dtype = CASES[label][0]
    return Case(f"transpose_{label}", "transpose", lambda rng: transpose(rng, order, dtype, shape))


@pytest.mark.parametrize("label", CASES)
def test_few_planes_take_one_operation(label: str) -> None:
    assert operations_of(case(label), "ethos-u55-256") == CASES[label][1]


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("label", CASES)
def test_equals_the_reference(label: str, npu: str) -> None:
    equals_reference(case(label), npu, 3)
