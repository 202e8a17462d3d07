"""Vela's container in a TFLite file: the `ethos-u` operator, whose inputs are a command stream, constants and scratch.

Invariant: addresses of arguments are in the address space of the stream, whichever container carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..ethosu.arch import Architecture
from ..ethosu.stream.encode import Payload, parse_payload
from ..ethosu.stream.fields import REGION_REGISTERS
from ..sizes import count_text
from .flatbuffer import NetworkError
from .tensor import Tensor

LEAST_STRUCTURE_BYTES = 452  # of TFLite Micro in the arena, beside one ethos-u operator; measured in Arm's firmware


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """The bytes of an argument that hold something before and after a call; `updated`: the call adds to them."""

    before: tuple[tuple[int, int], ...]
    after: tuple[tuple[int, int], ...]
    updated: bool


@dataclass(frozen=True, slots=True, eq=False)
class NpuCall:
    """One `ethos-u` operator: a command stream, its constants and its arguments."""

    index: int  # position in the operator list
    payload: Payload = field(repr=False)
    read_only: NDArray[np.uint8] = field(repr=False)  # region 0
    scratch_bytes: int  # region 1
    scratch_fast_bytes: int  # region 2; 0 when it is not a memory of its own
    inputs: tuple[int, ...]  # tensor indices, without the administrative ones
    outputs: tuple[int, ...]
    stream_tensor: int = -1  # tensor index of the payload; -1 in raw networks
    constants_tensor: int = -1  # tensor index; -1 in raw networks
    scratch_tensor: int = -1  # tensor index; -1 in raw networks
    scratch_fast_tensor: int = -1  # tensor index when it is a tensor of its own, else -1
    # (region, byte address) of inputs and outputs in the stream's address space
    input_addresses: tuple[tuple[int, int], ...] = ()
    output_addresses: tuple[tuple[int, int], ...] = ()
    parts: Mapping[int, HeldBytes] = field(default_factory=dict)  # of arguments that no file lists, by tensor index
    resident: NDArray[np.uint8] | None = field(default=None, repr=False)  # region 3: constants apart from the others

    @property
    def accelerator(self) -> Architecture:
        """The NPU the stream was made for."""
        return self.payload.accelerator

    @property
    def words(self) -> tuple[int, ...]:
        """The command stream."""
        return self.payload.words


def npu_call(
    index: int, inputs: tuple[int, ...], outputs: tuple[int, ...], tensors: tuple[Tensor, ...], name: str
) -> NpuCall:
    where = f"ethos-u operator {index} of {name}"
    if len(inputs) < 4 or -1 in inputs:
        raise NetworkError(
            f"{where} has {count_text(len(inputs), 'input')}; stream, constants and two scratch tensors are needed"
        )
    stream, constants, scratch, fast = (tensors[i] for i in inputs[:4])
    if stream.data is None:
        raise NetworkError(f"{where} has no command stream in tensor {stream.index} {stream.name!r}")
    payload = parse_payload(stream.data.tobytes())
    arguments, resident = inputs[4:], None
    if arguments and tensors[arguments[0]].data is not None and uses_region(payload.words, 3):
        resident, arguments = tensors[arguments[0]].data, arguments[1:]
    first_input = len(inputs) - len(arguments) - 1
    separate = payload.container.value == b"COP2"  # inputs and outputs then are regions of their own
    first_output = first_input + len(arguments)

    def address(position: int, tensor: int) -> tuple[int, int]:
        # Without a place in the arena (the runtime chooses one) only the argument's base pointer can reach it.
        offset = tensors[tensor].arena_offset
        return (position, 0) if separate or offset < 0 else (1, offset)

    return NpuCall(
        index=index,
        payload=payload,
        read_only=np.zeros(0, np.uint8) if constants.data is None else constants.data,
        scratch_bytes=scratch.size_bytes,
        # Without spilling the same memory is passed twice, and the stream never names region 2.
        scratch_fast_bytes=fast.size_bytes if fast.index != scratch.index and uses_region(payload.words, 2) else 0,
        inputs=arguments,
        outputs=outputs,
        stream_tensor=stream.index,
        constants_tensor=constants.index,
        scratch_tensor=scratch.index,
        scratch_fast_tensor=-1 if fast.index == scratch.index else fast.index,
        input_addresses=tuple(address(first_input + i, t) for i, t in enumerate(arguments)),
        output_addresses=tuple(address(first_output + i, t) for i, t in enumerate(outputs)),
        resident=None if resident is None else resident.reshape(-1).view(np.uint8),
    )


def check_scratch(call: NpuCall, name: str) -> None:
    """`NetworkError` for a call whose file gives it no scratch memory although its stream has operands there."""
    if not call.scratch_bytes and uses_region(call.words, 1):
        raise NetworkError(
            f"ethos-u operator {call.index} of {name} declares 0 bytes of scratch memory (tensor "
            f"{call.scratch_tensor}), but its stream has operands there (region 1): the file does not say how large "
            "its arena is, and a runtime that believes it would let the NPU write over other memory; compile the "
            "source model again"
        )


_REGION_OPCODES = frozenset(register.opcode for register in REGION_REGISTERS)


def uses_region(words: tuple[int, ...], region: int) -> bool:
    """Whether a stream sets any region register to `region`; decoding proper comes later."""
    position = 0
    while position < len(words):
        word = words[position]
        if word >> 16 == region and not word & 0xFC00 and word & 0x3FF in _REGION_OPCODES:
            return True
        position += 2 if word & 0x4000 else 1
    return False
