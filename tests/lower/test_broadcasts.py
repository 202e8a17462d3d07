"""Broadcasts that the NPU does not take say what stands in the way; what it takes is in test_drawn_operators."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.against_reference import host_reasons
from tests.support.tflite_builder import TensorSpec, constant, single_operator


@pytest.mark.parametrize(
    ("first", "second", "is_constant", "reason"),
    [
        ((1, 2, 1, 5), (1, 1, 4, 5), False, "would have to be broadcast"),
        ((2, 3, 4, 5), (1, 1, 1, 5), False, "broadcasts over a batch"),
        ((1, 3, 4, 5), (1, 1, 1, 5), True, "constant operand is larger"),
        ((2, 1, 3, 4, 5), (5,), False, "its tensor has 5 dimensions; the NPU walks at most 4"),
    ],
)
def test_broadcasts_are_refused(
    first: tuple[int, ...], second: tuple[int, ...], is_constant: bool, reason: str
) -> None:
    x, y = TensorSpec(first, "int8", 0.05, 3), TensorSpec(second, "int8", 0.04, 3)
    if is_constant:
        x = constant(np.zeros(first), "int8", 0.05, 3)
    z = TensorSpec(np.broadcast_shapes(first, second), "int8", 0.06, 2)
    (said,) = host_reasons(single_operator("SUB", [x, y], [z], "SubOptions", 2))
    assert reason in said
