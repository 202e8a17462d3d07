"""Every single-operator model that the lowering takes equals tflite-micro, element by element."""

from __future__ import annotations

import numpy as np
import pytest
from on_model import only_graph, random_inputs, run_program
from single_operators import Case, all_cases

from npu_memplan.ethosu.accelerator import accelerator
from npu_memplan.ethosu.lower.lower import lower
from npu_memplan.frontend.relax_import import import_relax
from npu_memplan.relax.partition import host_operators, offloaded, partition_for_ethosu

reference = pytest.importorskip("fvp_runner.reference")
pytest.importorskip("tflite_micro")

# Operators that TVM's frontend refuses and the NPU cannot do, and those whose form or size is beyond the NPU.
_NOT_IMPORTED = ("matmul", "argmax")
_ON_HOST = {
    "conv_d4x4": "dilation 4x4",
    "transpose_conv_k3_s1": "stride 2x2",
    "add_both_broadcast": "both operands",
    "pad_depth": "only height and width",
}
_SEVERAL_PARTS = ("split_",)  # each output is a function of its own: covered by test_moves
CASES = [
    c
    for c in all_cases()
    if "int16" not in c.name and not c.name.startswith((*_NOT_IMPORTED, *_SEVERAL_PARTS)) and c.name not in _ON_HOST
]
EVERY_NPU = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u65-256", "ethos-u65-512")
_SHAPES = ("conv_k3x3", "conv_k5s2", "conv_i", "depthwise_c", "dense_40_17", "transpose_conv_k3_s2", "softmax_rows")


def _check(case: Case, npu: str) -> None:
    module = partition_for_ethosu(import_relax(case.build()), npu)
    assert host_operators(module) == ()
    graph = only_graph(module)
    lowered = lower(graph, accelerator(npu))
    inputs = random_inputs(graph, 5)
    found = run_program(lowered, inputs)
    order = [str(p.name) for p in module["main"].params]
    given = [_signed(inputs[name]) for name in order]
    for ours, theirs in zip(found, reference.Reference(case.reference()).run(given), strict=True):
        wanted = theirs.reshape(-1)
        # tflite-micro has no uint8: the reference is the same model 128 lower, unless the case itself converts
        seen = _signed(ours).reshape(-1) if wanted.dtype == np.int8 else ours.reshape(-1)
        assert np.array_equal(seen, wanted)


def _signed(values: np.ndarray) -> np.ndarray:
    return (values ^ np.uint8(128)).view(np.int8) if values.dtype == np.uint8 else values


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_equals_the_reference(case: Case) -> None:
    _check(case, "ethos-u55-256")


@pytest.mark.parametrize("npu", EVERY_NPU)
@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith(_SHAPES)], ids=lambda c: c.name)
def test_equals_the_reference_on_every_npu(case: Case, npu: str) -> None:
    _check(case, npu)


@pytest.mark.parametrize("name", _ON_HOST)
def test_what_stays_on_the_host_says_why(name: str) -> None:
    (case,) = (c for c in all_cases() if c.name == name)
    module = partition_for_ethosu(import_relax(case.build()))
    assert not offloaded(module)
    assert any(_ON_HOST[name] in o.reason for o in host_operators(module)), host_operators(module)
