"""Every single-operator model that the lowering takes equals tflite-micro, element by element."""

from __future__ import annotations

import pytest

from tests.support.single_operators import Case, all_cases

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference

# Operators that TVM's frontend refuses and the NPU cannot do, and those whose form or size is beyond the NPU.
_NOT_IMPORTED = ("matmul", "argmax")
_ON_HOST = ("conv_d4x4", "add_both_broadcast")  # relax_npu/test_partition has their reasons
_SEVERAL_PARTS = ("split_",)  # each output is a function of its own: covered by test_moves
CASES = [
    c
    for c in all_cases()
    if "int16" not in c.name and not c.name.startswith((*_NOT_IMPORTED, *_SEVERAL_PARTS)) and c.name not in _ON_HOST
]
EVERY_NPU = (
    *("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u65-256", "ethos-u65-512"),
    *("ethos-u85-128", "ethos-u85-512", "ethos-u85-1024", "ethos-u85-2048"),
)
_SHAPES = ("conv_k3x3", "conv_k5s2", "conv_i", "depthwise_c", "dense_40_17", "transpose_conv_k3_s2", "softmax_rows")


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_equals_the_reference(case: Case, npu: str) -> None:
    equals_reference(case, npu, 5)


@pytest.mark.parametrize("npu", EVERY_NPU)
@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith(_SHAPES)], ids=lambda c: c.name)
def test_equals_the_reference_on_every_npu(case: Case, npu: str) -> None:
    equals_reference(case, npu, 5)
