"""What the lowering makes of a model, held against its reference.

Invariant: every element of every output is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lower.operands import LayerTensor
from npu_memplan.ethosu.lowering import FEW_BYTES, Lowered, LoweringTarget, lower
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.frontend.tflite.lowered import NpuGroup
from tests.support.on_model import function_graph, npu_graph, partition_model, random_inputs, run_program
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

Model = Case | ModelBuilder | bytes
Draw = Callable[[np.random.Generator, LayerTensor], np.ndarray]


@dataclass(frozen=True)
class Run:
    """A model on the NPU, and its outputs, which are the reference's."""

    lowered: Lowered
    outputs: list[np.ndarray]

    @property
    def operations(self) -> list[Op]:
        return [operation.op for operation in self.lowered.program.operations]


def file_of(model: Model) -> bytes:
    if isinstance(model, bytes):
        return model
    return model.build() if isinstance(model, Case) else model.finish()


def equals_reference(
    model: Model,
    npu: str,
    seed: int = 5,
    wanted: LoweringTarget = FEW_BYTES,
    *,
    draw: Draw | None = None,
    given: Sequence[np.ndarray] | None = None,
    scheduled: bool = False,
) -> Run:
    """The whole model is on the NPU and equals the reference for random inputs, drawn ones, or those `given`.

    `scheduled`: with the waits of a compile.
    """
    data = file_of(model)
    parts = partition_model(data, npu)
    assert not parts.left
    graph, rng = function_graph(parts), np.random.default_rng(seed)
    names = [parts.names[index] for index in parts.network.inputs]
    if given is not None:
        inputs = dict(zip(names, given, strict=True))
    elif draw is not None:
        inputs = {name: draw(rng, graph.tensors[name]) for name in graph.inputs}
    else:
        inputs = random_inputs(graph, seed)
    lowered = lower(graph, accelerator(npu), wanted)
    found = run_program(lowered, inputs, scheduled)
    reference = TFLiteReference(data, model.name if isinstance(model, Case) else "model")
    expected = reference.run([inputs[name] for name in names])
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours.reshape(-1), theirs.reshape(-1))
    return Run(lowered, found)


def operations_of(model: Model, npu: str) -> list[Op]:
    """What the NPU runs of the whole model."""
    graph = npu_graph(file_of(model), npu)
    return [operation.op for operation in lower(graph, accelerator(npu)).program.operations]


def host_reasons(model: Model, npu: str = "ethos-u55-256") -> list[str]:
    """Why each operator of a model stays on the host, as all do."""
    parts = partition_model(file_of(model), npu)
    assert not any(isinstance(step, NpuGroup) for step in parts.steps())
    return [parts.left[operator.index] for operator in parts.network.cpu_operators if operator.index in parts.left]
