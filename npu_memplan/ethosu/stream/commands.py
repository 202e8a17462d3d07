"""A command stream as data: operations with their complete register state, and waits.

Invariant: `Operation.registers` is the accumulated register file at the moment the
operation starts, so each operation can be read, checked, moved and re-encoded alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from ...errors import NpuMemplanError
from ..arch.architecture import Language
from .isa import ElementwiseMode, Op, Register


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
        """What an ELEMENTWISE does; `IllegalModeError` where that is none of the modes."""
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
        """What it says, but for some registers, wherever it stood: hashable, and equal where the order is, too."""
        names, values_of = _selection(tuple(self.registers), without)
        return self.op, self.parameter, names, values_of(self.registers), self.language

    @classmethod
    def of(cls, content: Content) -> Operation:
        """That says so."""
        op, parameter, names, values, language = content
        return cls(op, parameter, dict(zip(names, values, strict=True)), language=language)


Content = tuple[Op, int, tuple[Register, ...], tuple[int, ...], Language]


@lru_cache(1 << 10)  # operations have few sets of registers, and their contents are asked for often
def _selection(
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
