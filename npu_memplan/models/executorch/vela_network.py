"""The calls of Ethos-U delegates in an ExecuTorch program, each as a network of one NPU call.

Invariant: tensors have the types of the method and the shapes that the stream sees, so their bytes are in its order;
they are in the scratch where the delegate's blocks say, which is where the runtime copies them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...sizes import counted
from ..file import NetworkError, read_file
from ..network import Network
from ..tensor import Tensor
from ..vela import NpuCall, uses_region
from .program import DelegateCall, ExecutorchProgram, Method
from .reading import read_program
from .segments import is_program, read_named_data
from .vela_blocks import BACKEND, BlockSlot, EthosUBlocks, read_blocks

__all__ = ["EthosUCall", "blocks_of", "is_program", "npu_calls", "open_program", "require_npu_calls"]

_SIGNED = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
_UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_SCRATCH, _FAST = 1, 2  # regions


@dataclass(frozen=True, slots=True, eq=False)
class EthosUCall:
    """One call of an Ethos-U delegate."""

    method: Method
    position: int  # of the instruction
    delegate: int
    blocks: EthosUBlocks = field(repr=False)
    arguments: tuple[int, ...]  # tensors of the method: the inputs, then the outputs
    network: Network = field(repr=False)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The method's values that are copied into the scratch."""
        return self.arguments[: len(self.blocks.inputs)]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The method's values that are copied out of it."""
        return self.arguments[len(self.blocks.inputs) :]

    @property
    def call(self) -> NpuCall:
        """The NPU's side."""
        return self.network.npu_calls[0]

    @property
    def uses_fast_scratch(self) -> bool:
        """Whether the firmware has to give memory for base pointer 2."""
        return uses_region(self.call.words, _FAST)


def open_program(name: str, data: bytes, external: Iterable[Path] = ()) -> ExecutorchProgram:
    """The program in `data`, called `name`, with the `.ptd` files `external`; `NetworkError` for what is none."""
    return read_program(data, name, read_named_data([(path.name, read_file(path)) for path in external]))


def blocks_of(program: ExecutorchProgram, method: Method) -> Mapping[int, EthosUBlocks]:
    """The blocks of each Ethos-U delegate of a method, by its number; `NetworkError` where they are damaged."""
    return {
        number: read_blocks(delegate, program.named_data, f"{program.name}: delegate {number} of {method.name!r}")
        for number, delegate in enumerate(method.delegates)
        if delegate.backend == BACKEND
    }


@functools.lru_cache(maxsize=2)
def npu_calls(program: ExecutorchProgram) -> tuple[EthosUCall, ...]:
    """All calls of Ethos-U delegates, method by method, in the order of the instructions."""
    found = []
    for method in program.methods:
        blocks = blocks_of(program, method)
        for position, instruction in enumerate(method.instructions):
            if isinstance(instruction, DelegateCall) and instruction.delegate in blocks:
                found.append(_call(program, method, position, instruction, blocks[instruction.delegate]))
    return tuple(found)


def require_npu_calls(program: ExecutorchProgram) -> None:
    """`NetworkError` for a program without an Ethos-U delegate."""
    if not npu_calls(program):
        backends = sorted({delegate.backend for method in program.methods for delegate in method.delegates})
        others = f"its delegates are of {', '.join(backends)}" if backends else "it has no delegate"
        raise NetworkError(
            f"{program.name} calls no delegate of {BACKEND}: {others}; lower the model with EthosUPartitioner first"
        )


def _call(
    program: ExecutorchProgram, method: Method, position: int, instruction: DelegateCall, blocks: EthosUBlocks
) -> EthosUCall:
    where = f"{program.name}: instruction {position} of {method.name!r}"
    arguments = tuple(tensor for value in instruction.arguments for tensor in method.tensors_in(value))
    slots = (*blocks.inputs, *blocks.outputs)
    # A list of outputs may repeat what the arguments name one by one.
    arguments = tuple(dict.fromkeys(arguments)) if len(arguments) != len(slots) else arguments
    if len(arguments) != len(slots):
        raise NetworkError(
            f"{where} gives delegate {instruction.delegate} {len(arguments)} tensors, its blocks list "
            f"{counted(len(blocks.inputs), 'input')} and {counted(len(blocks.outputs), 'output')}"
        )
    tensors = []
    for number, (index, slot) in enumerate(zip(arguments, slots, strict=True)):
        tensors.append(_tensor(method, index, slot, number, len(blocks.inputs), where))
    inputs = tuple(range(len(blocks.inputs)))
    outputs = tuple(range(len(inputs), len(slots)))
    addresses = tuple((_SCRATCH, slot.offset_bytes) for slot in slots)  # the runtime ignores the region
    call = NpuCall(
        index=position,
        payload=blocks.payload,
        read_only=blocks.constants,
        scratch_bytes=blocks.scratch_bytes,
        scratch_fast_bytes=0,
        inputs=inputs,
        outputs=outputs,
        input_addresses=addresses[: len(inputs)],
        output_addresses=addresses[len(inputs) :],
    )
    network = Network(f"{program.name}:{method.name}:{position}", tuple(tensors), (call,), inputs, outputs, True)
    return EthosUCall(method, position, instruction.delegate, blocks, arguments, network)


def _tensor(method: Method, index: int, slot: BlockSlot, number: int, inputs: int, where: str) -> Tensor:
    tensor = method.tensor(index)
    assert tensor is not None
    kinds = _UNSIGNED if tensor.dtype in ("bool", "uint8", "uint16") else _SIGNED
    dtype = tensor.dtype if tensor.dtype == "bool" else kinds[slot.element_bytes]
    name = f"input{number}" if number < inputs else f"output{number - inputs}"
    if dtype == "bool" and slot.element_bytes != 1:
        raise NetworkError(f"{where}: {name} is bool, the delegate's has {slot.element_bytes} bytes an element")
    return Tensor(number, name, slot.shape, dtype, arena_offset=slot.offset_bytes)
