"""A lowered program on the NPU model without any planner: buffers one after another, a wait after each operation.

Invariant: nothing here shares code with planning, rewriting or scheduling, so a wrong result is the lowering's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lower.layer import LayerGraph
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.program import BufferRole, NpuBuffer
from npu_memplan.ethosu.stream.decode import Command, Marker, Wait
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.frontend.tflite.lowered import NpuGroup, Partitioned, partition_network
from npu_memplan.models.tflite import read_network


def run_program(lowered: Lowered, inputs: Mapping[str, np.ndarray], scheduled: bool = False) -> list[np.ndarray]:
    """Outputs of the program; `inputs` in the graph's order, states among them are updated in place.

    Reading a byte that was never written raises. `scheduled`: with the waits and block dependencies of a compile, which
    the model checks, in place of a wait after each operation.
    """
    program = lowered.program
    places: dict[str, tuple[int, int]] = {}
    size = 0
    for buffer in program.buffers:
        if buffer.role is BufferRole.CONSTANTS:
            places[buffer.name] = (0, 0)
        elif buffer.role is BufferRole.LUT:
            places[buffer.name] = (buffer.original_region, buffer.original_offset)
        else:
            places[buffer.name] = (1, size)
            size += -(-buffer.size_bytes // 16) * 16 + 16
    commands: list[Command] = []
    placed = [program.place(index, places.__getitem__) for index in range(len(program.operations))]
    for operation in placed:
        if operation.op is not Op.DMA_START:
            operation = operation.with_registers({Register.BLOCKDEP: 0})
        commands += [operation, Wait(Op.KERNEL_WAIT, 0), Wait(Op.DMA_WAIT, 0)]
    commands.append(Marker(Op.STOP, 0xFFFF))
    if scheduled:
        commands = list(schedule(placed, program.accelerator))
    arena, defined = np.full(size, 0xAA, np.uint8), np.zeros(size, bool)
    given = [b for b in program.buffers if b.role in (BufferRole.INPUT, BufferRole.STATE)]
    for buffer, values in zip(given, inputs.values(), strict=True):
        start = places[buffer.name][1]
        arena[start : start + values.nbytes] = np.frombuffer(values.tobytes(), np.uint8)
        defined[start : start + values.nbytes] = True
    constants = np.frombuffer(lowered.constants, np.uint8).copy() if lowered.constants else None
    known = None if constants is None else np.ones(len(constants), bool)
    NpuModel(program.accelerator).run(encode(commands), [constants, arena], [known, defined])

    def content(buffer: NpuBuffer) -> np.ndarray:
        start = places[buffer.name][1]
        return arena[start : start + buffer.size_bytes].copy().view(buffer.dtype).reshape(buffer.shape)

    for buffer, values in zip(given, inputs.values(), strict=True):
        if buffer.role is BufferRole.STATE:
            values[...] = content(buffer)
    return [content(b) for b in program.buffers if b.role is BufferRole.OUTPUT]


def random_inputs(graph: LayerGraph, seed: int = 0) -> dict[str, np.ndarray]:
    """Every value of the type is equally likely; states are at their zero point."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if name in graph.states:
            inputs[name] = np.full(tensor.shape, tensor.zero_point, tensor.dtype)
        else:
            raw = rng.integers(0, 1 << 8 * tensor.element_bytes, tensor.shape)
            inputs[name] = raw.astype(f"uint{8 * tensor.element_bytes}").view(tensor.dtype)
    return inputs


def only_graph(partitioned: Any) -> LayerGraph:
    """The graph of a module that is one function for the NPU."""
    from npu_memplan.ethosu.relax.lowering import build_graph
    from npu_memplan.ethosu.relax.partition import npu_functions

    (function,) = npu_functions(partitioned).values()
    return build_graph(function, "npu")


def import_relax(model: bytes) -> Any:
    """The IRModule that TVM's own frontend makes of a TFLite flatbuffer, as users of BYOC have it."""
    import tflite
    from tvm.relax.frontend.tflite import from_tflite

    return from_tflite(tflite.Model.GetRootAsModel(model, 0))


def partition_model(model: bytes, npu: str = "ethos-u55-256") -> Partitioned:
    """A TFLite model in parts, nothing of which is kept on the host."""
    return partition_network(read_network(model), accelerator(npu), {})


def npu_graph(model: bytes, npu: str = "ethos-u55-256") -> LayerGraph:
    """The layers of a TFLite model that is one function for the NPU."""
    return function_graph(partition_model(model, npu))


def function_graph(parts: Partitioned) -> LayerGraph:
    """The layers of a network in parts that is one function for the NPU."""
    (step,) = parts.steps()
    assert isinstance(step, NpuGroup)
    return step.graph


__all__ = [
    "function_graph", "import_relax", "lower", "npu_graph", "only_graph", "partition_model", "random_inputs",
    "run_program",
]  # fmt: skip
