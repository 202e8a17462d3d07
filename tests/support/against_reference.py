"""What the lowering makes of a single-operator model, held against its reference.

Invariant: every element of every output is compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import FEW_BYTES, LoweringTarget, lower
from npu_memplan.ethosu.relax.partition import host_operators, npu_functions, partition_for_ethosu
from npu_memplan.ethosu.stream.isa import Op
from tests.support.on_model import npu_graph, only_graph, random_inputs, run_program
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case, all_cases


def equals_reference(case: Case, npu: str, seed: int, wanted: LoweringTarget = FEW_BYTES) -> list[Op]:
    """The whole model is on the NPU and equals the reference; the operations that it takes."""
    model = case.build()
    module = partition_for_ethosu(import_relax(model), npu)
    assert host_operators(module) == ()
    graph = only_graph(module)
    lowered = lower(graph, accelerator(npu), wanted)
    inputs = random_inputs(graph, seed)
    found = run_program(lowered, inputs)
    given = [inputs[str(p.name)] for p in module["main"].params]
    for ours, theirs in zip(found, TFLiteReference(model, case.name).run(given), strict=True):
        assert np.array_equal(ours.reshape(-1), theirs.reshape(-1))
    return [operation.op for operation in lowered.program.operations]


def operations_of(case: Case, npu: str) -> list[Op]:
    """What the NPU runs of the whole model."""
    graph = npu_graph(case.build(), npu)
    return [operation.op for operation in lower(graph, accelerator(npu)).program.operations]


def stays_on_the_host(name: str, reasons: Mapping[str, str]) -> None:
    """Nothing of the case is on the NPU, and `reasons[name]` is in what is said about it."""
    (case,) = (c for c in all_cases() if c.name == name)
    module = partition_for_ethosu(import_relax(case.build()))
    assert not npu_functions(module)
    assert any(reasons[name] in o.reason for o in host_operators(module)), host_operators(module)
