"""Shapes of a file that contradict each other are refused by name: no operator indexes outside of its tensors."""

from __future__ import annotations

import pytest

from npu_memplan.frontend.host_ops import unsupported_reason
from npu_memplan.models.tflite import read_network
from tests.support.single_op import TensorSpec, constant, write_model


def _t(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "int8", 0.1)


TANH = TensorSpec((1, 4, 5), "int8", 1 / 128, 0)
CASES = {
    "a larger output": ("TANH", [_t(1, 4, 4)], [TANH], None),
    "a larger part": ("SPLIT", [constant(1), _t(1, 6)], [_t(1, 3), _t(1, 5)], ("SplitOptions", {"NumSplits": 2})),
    "other extents": ("TRANSPOSE", [_t(4, 6), constant([1, 0])], [_t(7, 4)], None),
    "an axis left out": ("SUM", [_t(4, 6), constant([1])], [_t(1, 6)], ("ReducerOptions", {"KeepDims": True})),
    "parts of a smaller whole": ("UNPACK", [_t(2, 3)], [_t(4), _t(4)], ("UnpackOptions", {"Num": 2, "Axis": 0})),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_is_refused(case: str) -> None:
    name, inputs, outputs, options = CASES[case]
    network = read_network(write_model(name, inputs, outputs, options))
    reason = unsupported_reason(network, network.operators[0])
    assert reason is not None
    assert any(character.isdigit() for character in reason), "it says no extents"
