"""Register command stream words to operations with their complete register state, and waits.

Invariant: every word is accounted for; anything that is not a known command is a `StreamError` that names the word's
byte offset, so a damaged stream never decodes. `Operation.registers` is the accumulated register file at the moment the
operation starts, so each operation can be read, checked, moved and re-encoded alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from ...errors import NpuMemplanError
from ..arch.architecture import Language
from .isa import OPS, REGISTERS, ElementwiseMode, Op, Register


class MissingRegisterError(NpuMemplanError, KeyError):
    """An operation depends on a register that its stream never set."""

    def __str__(self) -> str:
        return str(self.args[0])


class IllegalModeError(NpuMemplanError):
    """An operation has a parameter that means nothing."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A kernel or a DMA. `parameter` is the command word's parameter (e.g. the pool mode)."""

    op: Op
    parameter: int
    registers: Mapping[Register, int]
    offset_bytes: int = -1  # of its command word in the stream it was decoded from
    language: Language = Language.U55_U65  # what its registers mean

    def __getitem__(self, register: Register) -> int:
        """Raw (unsigned) value of a register; `MissingRegisterError` when the stream never set it."""
        try:
            return self.registers[register]
        except KeyError:
            raise MissingRegisterError(
                f"{self.op.name} at stream offset {self.offset_bytes:#x} needs register {register.name}, "
                "which the stream never set"
            ) from None

    def get(self, register: Register, default: int = 0) -> int:
        """Raw value of a register, or `default` when the stream never set it."""
        return self.registers.get(register, default)

    @property
    def elementwise(self) -> ElementwiseMode:
        """The kind of an ELEMENTWISE; `IllegalModeError` where that is none of the modes."""
        try:
            return ElementwiseMode(self.parameter)
        except ValueError:
            raise IllegalModeError(
                f"ELEMENTWISE at stream offset {self.offset_bytes:#x} has mode {self.parameter}, none of 0 (MUL) to "
                f"{max(ElementwiseMode):d} ({max(ElementwiseMode).name})"
            ) from None

    def with_registers(self, changes: Mapping[Register, int]) -> Operation:
        return Operation(self.op, self.parameter, {**self.registers, **changes}, self.offset_bytes, self.language)

    def content(self, without: frozenset[Register] = frozenset()) -> Content:
        """The content of the operation, but for some registers, wherever it stood: hashable, equal where order is."""
        names, values_of = _register_selection(tuple(self.registers), without)
        return self.op, self.parameter, names, values_of(self.registers), self.language

    @classmethod
    def from_content(cls, content: Content) -> Operation:
        """An operation that says so."""
        op, parameter, names, values, language = content
        return cls(op, parameter, dict(zip(names, values, strict=True)), language=language)


Content = tuple[Op, int, tuple[Register, ...], tuple[int, ...], Language]


@lru_cache(1 << 10)  # operations have few sets of registers, and their contents are asked for often
def _register_selection(
    names: tuple[Register, ...], without: frozenset[Register]
) -> tuple[tuple[Register, ...], Callable[[Mapping[Register, int]], tuple[int, ...]]]:
    """The `names` that are not in `without`, and what reads their values."""
    kept = tuple(name for name in names if name not in without)
    if len(kept) > 1:
        return kept, itemgetter(*kept)
    return kept, lambda registers: tuple(registers[name] for name in kept)


@dataclass(frozen=True, slots=True)
class Wait:
    """DMA_WAIT or KERNEL_WAIT: go on when at most `outstanding` of that kind are unfinished."""

    op: Op
    outstanding: int
    offset_bytes: int = -1


@dataclass(frozen=True, slots=True)
class Marker:
    """STOP, IRQ, PMU_MASK or BRANCH, with its parameter."""

    op: Op
    parameter: int
    offset_bytes: int = -1
    target: int = 0  # of a BRANCH: byte offset in the stream


Command = Operation | Wait | Marker


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
