"""int16 activations: what the lowering takes equals tflite-micro, the rest says why it stays on the host."""

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

_ON_HOST = {
    "leaky_relu_int16": "the NPU's tables are for 8 bits",
    "softmax_int16": "the NPU's tables are for 8 bits",
}
_NEITHER = ("matmul_int16",)  # no operator of the host either
CASES = [c for c in all_cases() if "int16" in c.name and c.name not in (*_ON_HOST, *_NEITHER)]
_SHAPES = ("conv_int16_s2", "depthwise_int16_s2", "dense_int16", "add_int16", "tanh_int16_wide")


def _check(case: Case, npu: str) -> None:
    model = case.build()
    module = partition_for_ethosu(import_relax(model), npu)
    assert host_operators(module) == ()
    graph = only_graph(module)
    inputs = random_inputs(graph, 6)
    found = run_program(lower(graph, accelerator(npu)), inputs)
    wanted = reference.Reference(model).run([inputs[str(p.name)] for p in module["main"].params])
    for ours, theirs in zip(found, wanted, strict=True):
        assert np.array_equal(ours.reshape(-1), theirs.reshape(-1))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_equals_the_reference(case: Case) -> None:
    _check(case, "ethos-u55-256")


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u65-512"])
@pytest.mark.parametrize("case", [c for c in CASES if c.name in _SHAPES], ids=lambda c: c.name)
def test_equals_the_reference_on_other_npus(case: Case, npu: str) -> None:
    _check(case, npu)


@pytest.mark.parametrize("name", _ON_HOST)
def test_what_stays_on_the_host_says_why(name: str) -> None:
    (case,) = (c for c in all_cases() if c.name == name)
    module = partition_for_ethosu(import_relax(case.build()))
    assert not offloaded(module)
    assert any(_ON_HOST[name] in o.reason for o in host_operators(module)), host_operators(module)
