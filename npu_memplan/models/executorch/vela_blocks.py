"""The blocks of a delegate of `EthosUBackend`: Vela's stream and constants, and where inputs and outputs are.

Invariant: blocks have known names and are inside the delegate's bytes; what is external was found by its key. Blocks:
a header of 32 bytes (name, size, whether the data is a key of named data), then the data, padded to 16 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import NpuMemplanError
from ...ethosu.stream.container import Payload, parse_payload
from ..file import NetworkError
from .program import Delegate

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
    """What the blocks of one delegate say."""

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
            content = _named(name, content, named_data)
            external.append(name)
        found[name] = content
        at = start + -(-size // ALIGNMENT) * ALIGNMENT
    return found, tuple(external)


def _named(name: str, key: memoryview, named_data: Mapping[str, memoryview]) -> memoryview:
    text = bytes(key).rstrip(b"\0").decode("ascii", "replace")
    if text not in named_data:
        raise NetworkError(
            f"its {name} is external, data called {text[:64]!r}, which "
            "no file given has; give the .ptd file with --data"
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
