"""Decode the Thumb load or store that touched a trapped register, and finish it by hand.

Invariant: `decode` looks only at the opcode and the registers before the access; applying
`LoadStore.complete` leaves the CPU as if the instruction had run, including write-back of the
base register and the state of an IT block. What it does not know it refuses by name; it
never guesses. Source: Armv8-M Architecture Reference Manual (DDI 0553), Thumb encodings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base import RunnerError

SP, PC = 13, 15


class DecodeError(RunnerError):
    """The instruction is no load or store that this decoder knows."""


@dataclass(frozen=True, slots=True)
class RegisterTransfer:
    """One element: register `register`, `size_bytes` bytes at `address`."""

    register: int
    address: int
    size_bytes: int
    signed: bool = False

    def extend(self, value: int) -> int:
        """`value` as the 32-bit register content a load leaves."""
        value &= (1 << 8 * self.size_bytes) - 1
        if self.signed and value >> 8 * self.size_bytes - 1:
            value |= -1 << 8 * self.size_bytes
        return value & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class LoadStore:
    """A load or store: its elements in order, and what else the instruction changes."""

    is_load: bool
    transfers: tuple[RegisterTransfer, ...]
    length_bytes: int
    write_back: tuple[int, int] | None = None  # (register, new value)


def instruction_length(first: int) -> int:
    """Bytes of the instruction whose first half-word is `first`."""
    return 4 if first >> 11 in (0b11101, 0b11110, 0b11111) else 2


def next_it_state(xpsr: int) -> int:
    """The program status register after one instruction: an IT block moves on by one."""
    it = (xpsr >> 25 & 3) | (xpsr >> 10 & 0x3F) << 2
    if not it & 0xF:
        return xpsr
    it = 0 if not it & 7 else (it & 0xE0) | (it << 1 & 0x1F)
    return xpsr & ~(3 << 25 | 0x3F << 10) | (it & 3) << 25 | (it >> 2) << 10


def decode(first: int, second: int, registers: Sequence[int]) -> LoadStore:
    """Decode the instruction of half-words `first`, `second` with r0..r15 as they are before it.

    `registers[15]` is the instruction's own address. `DecodeError` for anything else than a
    load or store of core registers.
    """
    if instruction_length(first) == 2:
        return _decode16(first, registers)
    top = first >> 9
    if top == 0b1110100:
        if not first >> 6 & 1:
            return _multiple32(first, second, registers)
        return _dual(first, second, registers)
    if top == 0b1111100:
        return _single32(first, second, registers)
    raise _unknown(first, second)


def _unknown(first: int, second: int | None = None) -> DecodeError:
    text = f"{first:04x}" + ("" if second is None else f" {second:04x}")
    return DecodeError(
        f"the driver touched the NPU's registers with instruction {text}, which is no load or store of core "
        "registers that can be emulated; build the driver so that it uses plain 32-bit volatile accesses"
    )


def _one(
    is_load: bool,
    register: int,
    address: int,
    size: int,
    length: int,
    *,
    signed: bool = False,
    back: tuple[int, int] | None = None,
) -> LoadStore:
    return LoadStore(is_load, (RegisterTransfer(register, address & 0xFFFFFFFF, size, signed),), length, back)


def _decode16(op: int, r: Sequence[int]) -> LoadStore:
    if op >> 12 == 0b0101:  # register offset
        kind, rm, rn, rt = op >> 9 & 7, op >> 6 & 7, op >> 3 & 7, op & 7
        is_load, size, signed = (
            (False, 4, False),
            (False, 2, False),
            (False, 1, False),
            (True, 1, True),
            (True, 4, False),
            (True, 2, False),
            (True, 1, False),
            (True, 2, True),
        )[kind]
        return _one(is_load, rt, r[rn] + r[rm], size, 2, signed=signed)
    if op >> 13 == 0b011:  # word or byte, 5-bit offset
        size = 1 if op >> 12 & 1 else 4
        return _one(bool(op >> 11 & 1), op & 7, r[op >> 3 & 7] + (op >> 6 & 31) * size, size, 2)
    if op >> 12 == 0b1000:  # half-word, 5-bit offset
        return _one(bool(op >> 11 & 1), op & 7, r[op >> 3 & 7] + (op >> 6 & 31) * 2, 2, 2)
    if op >> 12 == 0b1001:  # stack pointer relative
        return _one(bool(op >> 11 & 1), op >> 8 & 7, r[SP] + (op & 0xFF) * 4, 4, 2)
    if op >> 12 == 0b1100:  # load/store multiple, increment after
        is_load, rn, mask = bool(op >> 11 & 1), op >> 8 & 7, op & 0xFF
        back = None if is_load and mask >> rn & 1 else (rn, r[rn] + 4 * mask.bit_count())
        return _multiple(is_load, mask, r[rn], 2, back)
    raise _unknown(op)


def _multiple(is_load: bool, mask: int, base: int, length: int, back: tuple[int, int] | None) -> LoadStore:
    numbers = [n for n in range(16) if mask >> n & 1]
    transfers = tuple(RegisterTransfer(n, (base + 4 * i) & 0xFFFFFFFF, 4) for i, n in enumerate(numbers))
    if back is not None:
        back = (back[0], back[1] & 0xFFFFFFFF)
    return LoadStore(is_load, transfers, length, back)


def _multiple32(first: int, second: int, r: Sequence[int]) -> LoadStore:
    mode, write_back, is_load, rn = first >> 7 & 3, first >> 5 & 1, bool(first >> 4 & 1), first & 15
    if mode not in (1, 2):
        raise _unknown(first, second)
    size = 4 * second.bit_count()
    start = r[rn] if mode == 1 else r[rn] - size
    end = r[rn] + size if mode == 1 else start
    return _multiple(is_load, second, start, 4, (rn, end) if write_back else None)


def _dual(first: int, second: int, r: Sequence[int]) -> LoadStore:
    before, add, write_back, is_load = first >> 8 & 1, first >> 7 & 1, first >> 5 & 1, bool(first >> 4 & 1)
    rn, rt, rt2 = first & 15, second >> 12, second >> 8 & 15
    if not before and not write_back:
        return _ordered(first, second, r)
    base = r[rn] if rn != PC else (r[PC] + 4) & ~3
    moved = base + (second & 0xFF) * (4 if add else -4)
    address = moved if before else base
    transfers = (RegisterTransfer(rt, address & 0xFFFFFFFF, 4), RegisterTransfer(rt2, (address + 4) & 0xFFFFFFFF, 4))
    return LoadStore(is_load, transfers, 4, (rn, moved & 0xFFFFFFFF) if write_back else None)


def _ordered(first: int, second: int, r: Sequence[int]) -> LoadStore:
    """LDA/STL and their narrow forms; the exclusive ones make no sense on a device."""
    size = {0b1000: 1, 0b1001: 2, 0b1010: 4}.get(second >> 4 & 15)
    if first >> 5 != 0b11101000110 or size is None:
        raise _unknown(first, second)
    return _one(bool(first >> 4 & 1), second >> 12, r[first & 15], size, 4)


def _single32(first: int, second: int, r: Sequence[int]) -> LoadStore:
    signed, wide_offset, size_code, is_load = bool(first >> 8 & 1), first >> 7 & 1, first >> 5 & 3, bool(first >> 4 & 1)
    rn, rt = first & 15, second >> 12
    if size_code == 3 or (signed and (not is_load or size_code == 2)):
        raise _unknown(first, second)
    size = 1 << size_code
    if is_load and rt == PC and size != 4:  # preload hints live here
        raise _unknown(first, second)
    if rn == PC:  # literal; the bit that widens the offset elsewhere is its sign here
        if not is_load:
            raise _unknown(first, second)
        offset = (second & 0xFFF) * (1 if wide_offset else -1)
        return _one(True, rt, ((r[PC] + 4) & ~3) + offset, size, 4, signed=signed)
    if wide_offset:
        return _one(is_load, rt, r[rn] + (second & 0xFFF), size, 4, signed=signed)
    if not second >> 11 & 1:
        if second >> 6 & 31:
            raise _unknown(first, second)
        return _one(is_load, rt, r[rn] + (r[second & 15] << (second >> 4 & 3)), size, 4, signed=signed)
    before, add, write_back = second >> 10 & 1, second >> 9 & 1, second >> 8 & 1
    moved = r[rn] + (second & 0xFF) * (1 if add else -1)
    if not before and not write_back:
        raise _unknown(first, second)
    back = (rn, moved & 0xFFFFFFFF) if write_back else None
    return _one(is_load, rt, moved if before else r[rn], size, 4, signed=signed, back=back)
