"""The steps of a network as one IRModule, in which TFLite Micro's operators only say what they touch.

Invariant: such an operator touches all it reads and all it writes at one point of time, so what it writes never
overlaps what it reads; what it needs besides is TFLite Micro's to find around the plan. A reshape of TFLite Micro
copies nothing when both its tensors are the same bytes, so they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..frontend.host_ops.tir import Function, cast, const, first_of
from ..frontend.tflite.described import network_attributes
from ..frontend.tflite.main_builder import MainBuilder
from ..models.network import CpuOperator, Network
from ..models.tensor import Tensor
from ..models.vela import NpuCall
from .parts import Divided, NpuPart, as_network


def step_name(number: int) -> str:
    """The function of a step."""
    return f"step{number}"


def as_module(divided: Divided) -> Any:
    """The module; function `step_name(i)` is step i, but for reshapes, which are none."""
    from tvm import relax

    network = as_network(divided)
    builder = MainBuilder(network)
    builder.one_value_a_state()

    def emit(step: NpuCall | CpuOperator) -> None:
        part = divided.steps[step.index]
        inputs = [builder.value(i) for i in step.inputs]
        if isinstance(part, NpuPart):
            if part.constants:
                inputs.append(relax.const(np.frombuffer(part.constants, np.uint8)))
            updated = {tensor: step.inputs.index(tensor) for tensor in part.updates}
            builder.call(part.primfunc, step_name(step.index), inputs, part.writes, updated)
        elif _is_view(network, part, step.inputs):
            target = step.outputs[0]
            builder.bind(target, relax.op.reshape(inputs[0], network.tensors[target].shape or (1,)))
        elif step.outputs:
            tensors = ([network.tensors[i] for i in indices] for indices in (step.inputs, step.outputs))
            builder.call(_touching(*tensors), step_name(step.index), inputs, step.outputs)

    return builder.build(emit, network_attributes(network, builder.states, ()))


def _is_view(network: Network, operator: CpuOperator, inputs: Sequence[int]) -> bool:
    """Whether the planned inputs are the one tensor that a reshape sees in another shape."""
    alone = operator.name == "RESHAPE" and operator.inputs and tuple(inputs) == operator.inputs[:1]
    return bool(alone) and network.keeps_bytes(operator)


def _touching(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
    """A PrimFunc that reads of every input and writes to every output, in one statement."""
    function = Function()
    sources = [function.buffer(f"input{i}", t.shape, t.dtype) for i, t in enumerate(inputs)]
    targets = [function.buffer(f"output{i}", t.shape, t.dtype) for i, t in enumerate(outputs)]
    with function.loop(2):
        for target in targets:
            dtype = str(target.dtype)
            value = cast(0, "int32")
            for source in sources:
                value = value + cast(first_of(source), "int32")
            function.store(target, cast(value, dtype), *[const(0)] * len(target.shape))
    return function.finish([*sources, *targets], "cpu")
