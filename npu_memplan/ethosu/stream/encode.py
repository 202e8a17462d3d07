"""Operations, waits and markers to register command stream words.

Invariant: `decode(encode(c))` yields operations with the same register file, waits and markers as `c`;
the same commands always give the same words. A register is written only when its value changes,
which is what both of Vela's cores do, and in the order of `Register`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..arch.architecture import Language
from .commands import Command, Operation, Wait
from .fields import EncodeError
from .fields_u85 import MapWord
from .groups import IFM, IFM2, OFM, MapRegisters
from .isa import UNARY, Op, Register
from .isa_u85 import MapStorage

_PAYLOAD = 1 << 14  # mode 1: one payload word follows


def encode(commands: Iterable[Command]) -> tuple[int, ...]:
    """The words of a stream. A STOP is not added: it is a `Marker` of the commands."""
    words: list[int] = []
    state: dict[Register, int] = {}
    for command in commands:
        if isinstance(command, Operation):
            chained = chained_maps(command)
            if chained:
                _forget(state)
            for register in sorted(command.registers, key=_ORDER.__getitem__):
                value = command.registers[register]
                if state.get(register) != value:
                    words += _register(register, value)
                    state[register] = value
            words.append(_operation(command.op, command.parameter))
            if chained:
                _forget(state)
        elif isinstance(command, Wait):
            words.append(_operation(command.op, command.outstanding))
        else:
            words.append(_operation(command.op, command.parameter))
            if command.op.has_payload:
                words.append(command.target)
    return tuple(words)


# What must be written anew before and after a kernel of a chain. Source: regor's `ClearChainingRegisters`.
_NOT_KEPT = frozenset((*IFM.all, *IFM2.all, OFM.precision))


def _forget(state: dict[Register, int]) -> None:
    for register in _NOT_KEPT:
        state.pop(register, None)


def chained_maps(op: Operation) -> list[MapRegisters]:
    """Operands and the result of an Ethos-U85 kernel that are in chaining buffers."""
    if op.language is not Language.U85 or op.op is Op.DMA_START:
        return []
    return [v for v in (IFM, IFM2, OFM) if MapWord.STORAGE.of(op.get(v.precision)) == MapStorage.CHAINED]


def needed_anew(op: Operation) -> frozenset[Register]:
    """Of the registers that have to be written anew around chains, those that a kernel depends on."""
    if op.op is Op.DMA_START:
        return frozenset()
    found = {OFM.precision}
    unary = op.op is Op.ELEMENTWISE and op.parameter in UNARY
    for view in (IFM,) if unary or op.op is not Op.ELEMENTWISE else (IFM, IFM2):
        storage = MapWord.STORAGE.of(op.get(view.precision))
        found |= {view.precision, view.zero_point} if storage == MapStorage.NONE else view.all
        if storage == MapStorage.CHAINED:
            found -= view.all - {view.precision, view.zero_point, view.region}
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
