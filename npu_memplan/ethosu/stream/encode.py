"""Operations, waits and markers to register command stream words, and the driver containers COP1 and COP2 around them.

Invariant: `decode(encode(c))` yields operations with the same register file, waits and markers as `c`; the same
commands always give the same words. A register is written when its value changes, and around chains when a kernel
depends on it, which is what both of Vela's cores do, and in the order of `Register`. `parse_payload(build_payload(x))
== x`, and a payload that is not exactly one configuration and one stream is a `ContainerError` naming the byte offset
of the fault.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ...errors import NpuMemplanError
from ..arch import Architecture, accelerator_of_config
from ..arch.architecture import Language
from .decode import Command, Operation, Wait
from .fields import IFM, IFM2, OFM, AccumulatorWord, EncodeError, MapRegisters, MapWord
from .isa import BY_MAP, UNARY, AccumulatorInput, MapStorage, Op, Register

_PAYLOAD = 1 << 14  # mode 1: one payload word follows


def encode(commands: Iterable[Command]) -> tuple[int, ...]:
    """The words of a stream. A STOP is not added: it is a `Marker` of the commands."""
    words: list[int] = []
    state = RegisterState()
    for command in commands:
        if isinstance(command, Operation):
            for register in sorted(state.changes(command), key=_ORDER.__getitem__):
                words += _register(register, command.registers[register])
            words.append(_operation(command.op, command.parameter))
        elif isinstance(command, Wait):
            words.append(_operation(command.op, command.outstanding))
        else:
            words.append(_operation(command.op, command.parameter))
            if command.op.has_payload:
                words.append(command.target)
    return tuple(words)


# What must be written anew before and after a kernel of a chain. Source: regor's `ClearChainingRegisters`.
_NOT_KEPT = frozenset((*IFM.all, *IFM2.all, OFM.precision))


class RegisterState:
    """The registers that a stream has set so far, and which of them its next kernels need anew around chains."""

    def __init__(self) -> None:
        self._values: dict[Register, int] = {}
        self._stale: frozenset[Register] = frozenset()  # must be written before a kernel that depends on them

    def changes(self, op: Operation) -> list[Register]:
        """The registers that are written before `op`, which then has set them."""
        known, chained = self._values.get, bool(chained_maps(op))  # a list, since this is where much time goes
        found = [register for register, value in op.registers.items() if known(register) != value]
        stale = _NOT_KEPT if chained else self._stale
        if stale:
            changed = {*found}
            anew = needed_anew(op) & stale & op.registers.keys() - changed
            found += anew
            self._stale = _NOT_KEPT if chained else stale - anew - changed
        self._values.update(op.registers)
        return found


def kernel_maps(op: Operation) -> list[MapRegisters]:
    """The maps of an Ethos-U85 kernel: registers of a second input may be there that a kernel before left."""
    if op.op is Op.ELEMENTWISE:
        pair = op.parameter not in UNARY
    else:
        loads = AccumulatorWord.INPUT.value_in(op.get(Register.ACC_FORMAT)) == AccumulatorInput.IFM2
        pair = loads or (op.op is Op.CONV and bool(op.parameter & BY_MAP))
    return [IFM, IFM2, OFM] if pair else [IFM, OFM]


def chained_maps(op: Operation) -> list[MapRegisters]:
    """Operands and the result of an Ethos-U85 kernel that are in chaining buffers."""
    if op.language is not Language.U85 or op.op is Op.DMA_START:
        return []
    return [v for v in kernel_maps(op) if MapWord.STORAGE.value_in(op.get(v.precision)) == MapStorage.CHAINED]


def needed_anew(op: Operation) -> frozenset[Register]:
    """The registers that a kernel depends on, of those that have to be written anew around chains."""
    if op.op is Op.DMA_START:
        return frozenset()
    found = {OFM.precision}
    for view in kernel_maps(op)[:-1]:
        storage = MapWord.STORAGE.value_in(op.get(view.precision))
        found |= {view.precision, view.zero_point} if storage in (MapStorage.NONE, MapStorage.CHAINED) else view.all
        found |= {view.region} if storage == MapStorage.CHAINED else set()
    return frozenset(found)


_ORDER = {register: position for position, register in enumerate(Register)}


def _operation(op: Op, parameter: int) -> int:
    if not 0 <= parameter <= 0xFFFF:
        raise EncodeError(f"parameter {parameter} of {op.name} does not fit 16 bits")
    return op.opcode | (_PAYLOAD if op.has_payload else 0) | parameter << 16


def _register(register: Register, value: int) -> tuple[int, ...]:
    limit = 48 if register.has_payload else 16
    if not 0 <= value < 1 << limit:
        raise EncodeError(f"{register.name} = {value} does not fit its {limit} bits")
    if not register.has_payload:
        return (register.opcode | value << 16,)
    return (register.opcode | _PAYLOAD | (value >> 32) << 16, value & 0xFFFFFFFF)


class ContainerError(NpuMemplanError):
    """A driver payload is malformed."""


class ContainerFormat(Enum):
    """The driver container; the value is its magic."""

    COP1 = b"COP1"
    COP2 = b"COP2"


_OLDEST = 0x10066001  # the NPU id word: architecture 1.0.6


@dataclass(frozen=True, slots=True)
class Payload:
    """A command stream and the NPU it is for."""

    accelerator: Architecture
    words: tuple[int, ...]
    architecture_id: int = _OLDEST
    release: int = 0x10  # parameter of the COP1 configuration action: patch << 4 | release
    container: ContainerFormat = ContainerFormat.COP1
    scratch_bytes: int | None = None  # only COP2 carries it


def payload_of(accelerator: Architecture, words: tuple[int, ...]) -> Payload:
    """A new payload: for the oldest architecture that the stream's language has, as Vela does (U55 and U65: 1.0.6)."""
    same_major = accelerator.id_word >> 28 == _OLDEST >> 28
    return Payload(accelerator, words, _OLDEST if same_major else accelerator.id_word)


_CONFIG, _STREAM, _NOP = 1, 2, 5  # driver actions of COP1
_STREAM_ALIGNMENT_WORDS = 4  # the stream starts 16-byte aligned in its payload
_MAX_STREAM_WORDS = (1 << 24) - 1
_COP2_HEADER_WORDS = 16
_COP2_CHUNK = 24  # byte offset from which the chunk size counts


def build_payload(payload: Payload) -> bytes:
    """The payload's bytes (a multiple of 4); `ContainerError` when the stream is too long."""
    words = payload.words
    if len(words) > _MAX_STREAM_WORDS:
        raise ContainerError(
            f"a stream of {len(words)} words does not fit a driver payload: at most {_MAX_STREAM_WORDS} do"
        )
    config = payload.accelerator.config_word
    if payload.container is ContainerFormat.COP2:
        size = (_COP2_HEADER_WORDS + len(words)) * 4
        header = [_tag_word(b"COP2"), 1, size - 16, 0, 1, size - _COP2_CHUNK, 0x24, _tag_word(b"VEUM"), 1, 0x14]
        header += [config, payload.architecture_id, 2, payload.scratch_bytes or 0, 0, 0xFFFFFFFF]
    else:
        header = [_tag_word(b"COP1"), _CONFIG | payload.release << 16, config, payload.architecture_id]
        while (len(header) + 1) % _STREAM_ALIGNMENT_WORDS:
            header.append(_NOP)
        header.append(_STREAM | (len(words) >> 16) << 8 | (len(words) & 0xFFFF) << 16)
    return struct.pack(f"<{len(header) + len(words)}I", *header, *words)


def parse_payload(data: bytes) -> Payload:
    """The command stream in a driver payload, with trailing padding left out."""
    if len(data) < 16 or len(data) % 4:
        raise ContainerError(
            f"a driver payload of {len(data)} bytes is truncated: it must be at least 16 bytes and a multiple of 4"
        )
    words = struct.unpack(f"<{len(data) // 4}I", data)
    magic = data[:4]
    if magic == b"COP1":
        return _parse_cop1(words)
    if magic == b"COP2":
        return _parse_cop2(words)
    raise ContainerError(f"a driver payload must begin with COP1 or COP2, this one begins with {magic!r}")


def _parse_cop1(words: Sequence[int]) -> Payload:
    position = 1
    config: tuple[int, int, int] | None = None
    while position < len(words):
        at, word = position * 4, words[position]
        action, reserved, parameter = word & 0xFF, word >> 8 & 0xFF, word >> 16
        position += 1
        if action == _NOP:
            continue
        if action == _CONFIG:
            if position + 2 > len(words):
                raise ContainerError(f"COP1: the configuration at offset {at:#x} is cut off")
            config = (words[position], words[position + 1], parameter)
            position += 2
        elif action == _STREAM:
            length = reserved << 16 | parameter
            if config is None:
                raise ContainerError(f"COP1: the command stream at offset {at:#x} comes before the configuration")
            if position + length > len(words):
                raise ContainerError(
                    f"COP1: the command stream at offset {at:#x} says {length} words, "
                    f"but the payload has {len(words) - position} left: it is truncated"
                )
            stream = tuple(words[position : position + length])
            return Payload(accelerator_of_config(config[0]), stream, config[1], config[2])
        else:
            raise ContainerError(f"COP1: unknown driver action {action} at offset {at:#x}")
    raise ContainerError("COP1: the payload has no command stream")


def _parse_cop2(words: Sequence[int]) -> Payload:
    if len(words) <= _COP2_HEADER_WORDS:
        raise ContainerError(f"COP2: a payload of {len(words) * 4} bytes is truncated inside its header")
    end = words[5] + _COP2_CHUNK
    if words[1] != 1 or end % 4 or not _COP2_HEADER_WORDS * 4 < end <= len(words) * 4:
        raise ContainerError(
            f"COP2: version {words[1]} with a stream that ends at byte {end} is not readable: "
            f"version 1 and at most {len(words) * 4} bytes are expected"
        )
    if words[7] != _tag_word(b"VEUM"):
        raise ContainerError(f"COP2: the chunk at offset 0x1c is {words[7]:#010x}, not VEUM")
    return Payload(
        accelerator_of_config(words[10]),
        tuple(words[_COP2_HEADER_WORDS : end // 4]),
        words[11],
        container=ContainerFormat.COP2,
        scratch_bytes=words[13],
    )


def _tag_word(tag: bytes) -> int:
    return int.from_bytes(tag, "little")
