"""Register command stream words to operations.

Invariant: every word is accounted for; anything that is not a known command is a
`StreamError` that names the word's byte offset, so a damaged stream never decodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import NpuMemplanError
from ..arch.architecture import Language
from .commands import Command, Marker, Operation, Wait
from .isa import Op, Register
from .languages import OPS, REGISTERS

_OPERATIONS = frozenset((*(op for op in Op if op.is_kernel), Op.DMA_START))
_MODE1 = 1 << 10


class StreamError(NpuMemplanError):
    """A command stream is malformed."""


def decode_straight(words: Sequence[int], language: Language = Language.U55_U65) -> tuple[Command, ...]:
    """`decode`, for readers of commands in the order of the stream: `StreamError` for a stream that jumps."""
    commands = decode(words, language)
    for command in commands:
        if isinstance(command, Marker) and command.op is Op.BRANCH:
            raise StreamError(
                f"BRANCH at stream offset {command.offset_bytes:#x} goes on at offset {command.target:#x}: streams "
                "that jump (Vela's of TOSA's COND_IF and WHILE_LOOP) can be disassembled and simulated only"
            )
    return commands


def decode(words: Sequence[int], language: Language = Language.U55_U65) -> tuple[Command, ...]:
    """Decode a stream (without its COP1/COP2 container) up to and including STOP.

    Register values are raw: unsigned, and for wide registers (addresses, scales) the
    parameter's bits stand above the payload word: `param << 32 | payload`.
    """
    known, ops = REGISTERS[language], OPS[language]
    commands: list[Command] = []
    state: dict[Register, int] = {}
    position = 0
    while position < len(words):
        word = words[position]
        at = position * 4
        position += 1
        code, mode, parameter = word & 0x3FF, (word >> 14) & 0x3, word >> 16
        if mode > 1 or word & 0x3C00:
            raise StreamError(
                f"command word {word:#010x} at stream offset {at:#x} has payload mode {mode}: not a command"
            )
        if mode == 1:
            register = known.get(_MODE1 | code)
            if register is None and _MODE1 | code in ops:
                if position >= len(words):
                    raise StreamError(f"the stream ends inside a BRANCH at stream offset {at:#x}: it has no target")
                commands.append(Marker(ops[_MODE1 | code], parameter, at, words[position]))
                position += 1
                continue
            if register is None:
                raise StreamError(f"unknown register {code:#05x} (mode 1) at stream offset {at:#x}")
            if position >= len(words):
                raise StreamError(
                    f"the stream ends inside {register.name} at stream offset {at:#x}: its value is missing"
                )
            state[register] = parameter << 32 | words[position]
            position += 1
            continue
        if code in ops:
            op = ops[code]
            if op in _OPERATIONS:
                commands.append(Operation(op, parameter, dict(state), at, language))
            elif op in (Op.DMA_WAIT, Op.KERNEL_WAIT):
                commands.append(Wait(op, parameter, at))
            else:
                commands.append(Marker(op, parameter, at))
                if op is Op.STOP:
                    if position < len(words) and any(words[position:]):
                        raise StreamError(f"the stream goes on after its STOP at stream offset {at:#x}")
                    return tuple(commands)
            continue
        register = known.get(code)
        if register is None:
            raise StreamError(f"unknown command {code:#05x} (mode 0) at stream offset {at:#x}")
        state[register] = parameter
    raise StreamError(f"the stream has no STOP: it ends after {len(words) * 4} bytes and is truncated")
