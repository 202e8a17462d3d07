"""int16 activations: what the lowering takes equals tflite-micro, the rest says why it stays on the host."""

from __future__ import annotations

import pytest

from tests.support.single_operators import Case, all_cases

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference, stays_on_the_host

_ON_HOST = {
    "softmax_int16": "the NPU's tables are for 8 bits",
}
_NEITHER = ("matmul_int16",)  # no operator of the host either
CASES = [c for c in all_cases() if "int16" in c.name and c.name not in (*_ON_HOST, *_NEITHER)]
_SHAPES = ("conv_int16_s2", "depthwise_int16_s2", "dense_int16", "add_int16", "tanh_int16_wide")


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_equals_the_reference(case: Case, npu: str) -> None:
    equals_reference(case, npu, 6)


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u65-512", "ethos-u85-128", "ethos-u85-1024"])
@pytest.mark.parametrize("case", [c for c in CASES if c.name in _SHAPES], ids=lambda c: c.name)
def test_equals_the_reference_on_other_npus(case: Case, npu: str) -> None:
    equals_reference(case, npu, 6)


@pytest.mark.parametrize("name", _ON_HOST)
def test_what_stays_on_the_host_says_why(name: str) -> None:
    stays_on_the_host(name, _ON_HOST)
