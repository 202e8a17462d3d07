"""Ethos-U85: weights of which two of every four are zero are stored and multiplied as such."""

from __future__ import annotations

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.program.access import is_sparse
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from tests.support.arithmetic_models import convolution
from tests.support.on_model import only_graph
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference

KINDS = {
    "3x3": {"shape": (9, 10, 64), "channels": 40},
    "1x1": {"shape": (16, 16, 130), "channels": 64, "kernel": (1, 1)},
    "int16": {"shape": (9, 10, 32), "channels": 24, "dtype": "int16"},
}


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U85])
@pytest.mark.parametrize("kind", KINDS)
def test_pruned_convolutions_are_exact_and_sparse(kind: str, npu: str) -> None:
    case = Case(f"pruned_{kind}", "conv", lambda rng: convolution(rng, pruned=True, **KINDS[kind]))
    equals_reference(case, npu, 3)
    graph = only_graph(partition_for_ethosu(import_relax(case.build()), npu))
    (operation,) = lower(graph, accelerator(npu)).program.operations
    assert is_sparse(operation.place(lambda _: (0, 0))) or kind == "1x1"  # whose maps take longer on a large NPU
