"""Operations, waits and markers to register command stream words.

Invariant: `decode(encode(c))` yields operations with the same register file, waits and markers as `c`;
the same commands always give the same words. A register is written only when its value changes,
which is what both of Vela's cores do, and in the order of `Register`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import NpuMemplanError
from .commands import Command, Operation, Wait
from .isa import Op, Register

_PAYLOAD = 1 << 14  # mode 1: one payload word follows
_OPCODE = 0x3FF


class EncodeError(NpuMemplanError):
    """A value does not fit its register."""


def encode(commands: Iterable[Command]) -> tuple[int, ...]:
    """The words of a stream. A STOP is not added: it is a `Marker` of the commands."""
    words: list[int] = []
    state: dict[Register, int] = {}
    for command in commands:
        if isinstance(command, Operation):
            for register in sorted(command.registers, key=_ORDER.__getitem__):
                value = command.registers[register]
                if state.get(register) != value:
                    words += _register(register, value)
                    state[register] = value
            words.append(_operation(command.op, command.parameter))
        elif isinstance(command, Wait):
            words.append(_operation(command.op, command.outstanding))
        else:
            words.append(_operation(command.op, command.parameter))
            if command.op.has_payload:
                words.append(command.target)
    return tuple(words)


_ORDER = {register: position for position, register in enumerate(Register)}


def _operation(op: Op, parameter: int) -> int:
    if not 0 <= parameter <= 0xFFFF:
        raise EncodeError(f"parameter {parameter} of {op.name} does not fit 16 bits")
    return op.value & _OPCODE | (_PAYLOAD if op.has_payload else 0) | parameter << 16


def _register(register: Register, value: int) -> tuple[int, ...]:
    limit = 48 if register.has_payload else 16
    if not 0 <= value < 1 << limit:
        raise EncodeError(f"{register.name} = {value} does not fit its {limit} bits")
    if not register.has_payload:
        return (register.opcode | value << 16,)
    return (register.opcode | _PAYLOAD | (value >> 32) << 16, value & 0xFFFFFFFF)
