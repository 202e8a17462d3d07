"""Strict reading of an operation's registers.

Invariant: a value leaves this module only after it was found set and legal; every error names
the operation, its stream offset and the register.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn

from npu_memplan.ethosu.stream.commands import Operation
from npu_memplan.ethosu.stream.isa import Op, Register

from ..errors import IllegalValueError, UnsetRegisterError


class Registers:
    """The register file of one operation; `index` is its position among the stream's operations."""

    __slots__ = ("index", "operation")

    def __init__(self, operation: Operation, index: int) -> None:
        self.operation = operation
        self.index = index

    @property
    def where(self) -> str:
        """For messages: `operation 3 (CONV at stream offset 0x1a4)`."""
        op = self.operation
        return f"operation {self.index} ({op.op.name} at stream offset {op.offset_bytes:#x})"

    def illegal(self, what: str) -> NoReturn:
        raise IllegalValueError(f"{self.where}: {what}")

    def raw(self, register: Register) -> int:
        """The unsigned value; `UnsetRegisterError` when the stream never set it."""
        try:
            return self.operation.registers[register]
        except KeyError:
            raise UnsetRegisterError(
                f"{self.where} needs register {register.name}, which the stream never set; "
                f"set {register.name} before the operation"
            ) from None

    def low(self, register: Register) -> int:
        """The 32-bit payload of a mode-1 register that has no bits above it."""
        value = self.raw(register)
        if value >> 32:
            self.illegal(f"{register.name} = {value:#x} has bits above 32 set")
        return value

    def one_of(self, register: Register, legal: Collection[int], value: int | None = None) -> int:
        """The register (or `value`, a field of it), which must be one of `legal`."""
        value = self.raw(register) if value is None else value
        if value not in legal:
            self.illegal(f"{register.name} = {value} is not one of {sorted(legal)}")
        return value

    def bits(self, register: Register, mask: int) -> int:
        """The register, in which no bit outside `mask` may be set."""
        value = self.raw(register)
        if value & ~mask:
            self.illegal(f"{register.name} = {value:#x} sets bits {value & ~mask:#x}, which mean nothing")
        return value

    def signed16(self, register: Register, signed: bool) -> int:
        """A 16-bit value, two's complement when the tensor it belongs to is signed."""
        value = self.raw(register)
        return value - 0x10000 if signed and value & 0x8000 else value

    def scale(self, register: Register) -> tuple[int, int]:
        """(multiplier, unsigned 32 bits; right shift, 0 to 63) of a scale register."""
        value = self.raw(register)
        shift = value >> 32
        if shift > 63:
            self.illegal(f"{register.name} has shift {shift}; at most 63 is possible")
        return value & 0xFFFFFFFF, shift

    def region(self, register: Register) -> int:
        return self.one_of(register, range(8))

    @property
    def op(self) -> Op:
        return self.operation.op
