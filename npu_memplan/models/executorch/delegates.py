"""Ethos-U delegates of an ExecuTorch program: their blocks, and their calls as networks of one NPU call each.

Invariant: blocks have known names and are inside the delegate's bytes; what is external was found by its key. Tensors
have the types of the method and the shapes that the stream sees, so their bytes are in its order; they are in the
scratch where the blocks say, which is where the runtime copies them. A block is a header of 32 bytes (name, size,
whether the data is a key of named data), then the data, padded to 16 bytes.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import NpuMemplanError
from ...ethosu.stream.encode import Payload, parse_payload
from ...sizes import count_text
from ..flatbuffer import NetworkError, read_file
from ..network import Network
from ..tensor import SIGNED, Tensor
from ..vela import NpuCall, uses_region
from .program import Delegate, DelegateCall, ExecutorchProgram, Method, read_named_data, read_program

BACKEND = "EthosUBackend"
ALIGNMENT = 16  # of a delegate's bytes, of its scratch, and of every block
_HEADER = struct.Struct("<16sIB11s")
_SLOT = struct.Struct("<9i")
_BEGIN, _END = "vela_bin_stream", "vela_end_stream"
_REQUIRED = ("cmd_data", "scratch_size")
_KNOWN = (_BEGIN, *_REQUIRED, "weight_data", "inputs", "outputs", _END)
_LARGEST_BYTES = 1 << 40  # of an input or output
SCRATCH_LIMIT_BYTES = (1 << 31) - 1  # of the scratch: a slot's offset is a signed word


@dataclass(frozen=True, slots=True)
class BlockSlot:
    """An input or output of a delegate, as the stream has it; the runtime ignores `region`: all are in the scratch."""

    shape: tuple[int, ...]
    element_bytes: int
    offset_bytes: int
    region: int

    @property
    def size_bytes(self) -> int:
        """Bytes that the stream reads or writes there."""
        size = self.element_bytes
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, slots=True, eq=False)
class EthosUBlocks:
    """The contents of the blocks of one delegate."""

    payload: Payload = field(repr=False)
    command_bytes: int
    constants: NDArray[np.uint8] = field(repr=False)  # region 0
    scratch_bytes: int  # region 1, from the runtime's temporary allocator
    inputs: tuple[BlockSlot, ...]
    outputs: tuple[BlockSlot, ...]
    external: tuple[str, ...] = ()  # blocks whose data is named data


def read_blocks(delegate: Delegate, named_data: Mapping[str, memoryview], what: str) -> EthosUBlocks:
    """The blocks of `delegate`, called `what` in messages; `NetworkError` says what is wrong with them."""
    try:
        blocks, external = _blocks(delegate.data, named_data)
        missing = [name for name in _REQUIRED if name not in blocks]
        if missing:
            raise NetworkError(f"it has no block {missing[0]}")
        if len(blocks["scratch_size"]) < 4:
            raise NetworkError(f"its scratch_size has {len(blocks['scratch_size'])} bytes, not 4")
        return EthosUBlocks(
            payload=parse_payload(bytes(blocks["cmd_data"])),
            command_bytes=len(blocks["cmd_data"]),
            constants=np.frombuffer(blocks.get("weight_data", b""), np.uint8),
            scratch_bytes=int.from_bytes(blocks["scratch_size"][:4], "little"),
            inputs=_slots(blocks.get("inputs", b""), "inputs"),
            outputs=_slots(blocks.get("outputs", b""), "outputs"),
            external=external,
        )
    except NpuMemplanError as error:
        raise NetworkError(f"{what}: {error}") from error


def build_blocks(blocks: Mapping[str, bytes]) -> bytes:
    """A delegate's bytes: `blocks` in their order, between those that begin and end."""
    found = b""
    for name, data in {_BEGIN: b"", **blocks, _END: b""}.items():
        found += _HEADER.pack(name.encode(), len(data), 0, bytes(11)) + data + bytes(-len(data) % ALIGNMENT)
    return found


def with_blocks(delegate: Delegate, changed: Mapping[str, bytes]) -> bytes:
    """The bytes of a delegate, which were read, with the data of some blocks replaced; others stay as they are."""
    data, found, at = delegate.data, b"", 0
    while at < len(data):
        label, size, is_key, rest = _HEADER.unpack_from(data, at)
        name = label.split(b"\0", 1)[0].decode("ascii", "replace")
        content = bytes(data[at + _HEADER.size : at + _HEADER.size + size])
        at += _HEADER.size + -(-size // ALIGNMENT) * ALIGNMENT
        content, is_key = (changed[name], 0) if name in changed else (content, is_key)
        found += _HEADER.pack(label, len(content), is_key, rest) + content + bytes(-len(content) % ALIGNMENT)
        if name == _END:
            break
    return found


def slots_data(slots: Sequence[BlockSlot]) -> bytes:
    """The data of a block of inputs or outputs."""
    packed = (_SLOT.pack(*one.shape, one.element_bytes, one.offset_bytes, one.region) for one in slots)
    return len(slots).to_bytes(4, "little") + b"".join(packed)


def _blocks(data: memoryview, named_data: Mapping[str, memoryview]) -> tuple[dict[str, memoryview], tuple[str, ...]]:
    found: dict[str, memoryview] = {}
    external = []
    at, name = 0, ""
    while name != _END:
        if at + _HEADER.size > len(data):
            raise NetworkError(f"its blocks end at byte {at} of {len(data)} without {_END}: it is cut off")
        label, size, is_key, _ = _HEADER.unpack_from(data, at)
        name = label.split(b"\0", 1)[0].decode("ascii", "replace")
        if name not in _KNOWN:
            raise NetworkError(f"the block at byte {at} is called {name!r}; known are {', '.join(_KNOWN)}")
        if not found and name != _BEGIN:
            raise NetworkError(f"its first block is {name}, not {_BEGIN}")
        if name in found:
            raise NetworkError(f"the block {name} at byte {at} comes twice")
        start = at + _HEADER.size
        if start + size > len(data):
            raise NetworkError(f"the block {name} at byte {at} has {size} bytes and ends behind byte {len(data)}")
        content = data[start : start + size]
        if is_key:
            content = _named_bytes(name, content, named_data)
            external.append(name)
        found[name] = content
        at = start + -(-size // ALIGNMENT) * ALIGNMENT
    return found, tuple(external)


def _named_bytes(name: str, key: memoryview, named_data: Mapping[str, memoryview]) -> memoryview:
    text = bytes(key).rstrip(b"\0").decode("ascii", "replace")
    if text not in named_data:
        raise NetworkError(
            f"its {name} is external, data called {text[:64]!r}, which no file given has; give the .ptd file too"
        )
    return named_data[text]


def _slots(data: memoryview | bytes, what: str) -> tuple[BlockSlot, ...]:
    if not len(data):
        return ()
    count = int.from_bytes(data[:4], "little", signed=True)
    if len(data) < 4 or count < 0 or 4 + count * _SLOT.size > len(data):
        raise NetworkError(f"its block {what} of {len(data)} bytes lists {count}")
    found = []
    for number in range(count):
        *shape, element_bytes, offset, region = _SLOT.unpack_from(data, 4 + number * _SLOT.size)
        slot = BlockSlot(tuple(shape), element_bytes, offset, region)
        if min(shape) < 0 or element_bytes not in (1, 2, 4, 8) or offset < 0 or slot.size_bytes > _LARGEST_BYTES:
            raise NetworkError(
                f"{what} {number} has shape {list(shape)}, {element_bytes} bytes an element and offset {offset}"
            )
        found.append(slot)
    return tuple(found)


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
        """Whether the stream uses base pointer 2, for which the firmware has to give memory."""
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
            f"{count_text(len(blocks.inputs), 'input')} and {count_text(len(blocks.outputs), 'output')}"
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
    kinds = _UNSIGNED if tensor.dtype in ("bool", "uint8", "uint16") else SIGNED
    dtype = tensor.dtype if tensor.dtype == "bool" else kinds[slot.element_bytes]
    name = f"input{number}" if number < inputs else f"output{number - inputs}"
    if dtype == "bool" and slot.element_bytes != 1:
        raise NetworkError(f"{where}: {name} is bool, the delegate's has {slot.element_bytes} bytes an element")
    return Tensor(number, name, slot.shape, dtype, arena_offset=slot.offset_bytes)
