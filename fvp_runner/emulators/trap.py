"""Loads and stores of the NPU's register page in a machine that a debugger can stop, caught and finished by hand.

Invariant: each stop is exactly one load or store that has not happened yet; `Trap.handle_access` performs it on the
device and leaves the CPU as if the instruction had run, including write-back of the base register and the state of an
IT block. `decode_access` looks only at the opcode and the registers before the access; what is no load or store of core
registers is refused. Capstone decodes; what an access means is from the Armv8-M Architecture Reference Manual (DDI
0553).
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from npu_memplan.target_data import Board

from ..base import RunnerError
from ..register_page import EthosURegisters
from .gdb import XPSR, GdbClient

_PC = 15
_REGISTER, _MEMORY = 1, 3  # Capstone's types of operands
_ACCESS = re.compile(r"(?:(?P<load>ld)|st)(?:[ral](?P<signed>s?)(?P<size>[bhd]?)t?|m(?P<before>db)?)")
_BYTES = {"b": 1, "h": 2}


class DecodeError(RunnerError):
    """The instruction is no load or store that this decoder has."""


@dataclass(frozen=True, slots=True)
class RegisterTransfer:
    """One element: register `register`, `size_bytes` bytes at `address`."""

    register: int
    address: int
    size_bytes: int
    signed: bool = False

    def extend_value(self, value: int) -> int:
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


@functools.cache
def _load_capstone() -> tuple[Any, dict[int, int]]:
    """The disassembler, and the number of each core register by Capstone's."""
    import capstone
    from capstone import arm_const as c

    engine = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS | capstone.CS_MODE_V8)
    engine.detail = True
    core = [*(c.ARM_REG_R0 + i for i in range(13)), c.ARM_REG_SP, c.ARM_REG_LR, c.ARM_REG_PC]
    return engine, {register: number for number, register in enumerate(core)}


def decode_access(first: int, second: int, registers: Sequence[int]) -> LoadStore:
    """Decode the instruction of half-words `first`, `second` with r0..r15 as they are before it.

    `registers[15]` is the instruction's own address. `DecodeError` for anything else than a
    load or store of core registers.
    """
    engine, numbers = _load_capstone()
    found = next(engine.disasm(struct.pack("<2H", first, second), 0, 1), None)
    access = None if found is None else _ACCESS.fullmatch(found.insn_name())
    if found is None or access is None:
        text = f"{first:04x}" + (f" {second:04x}" if instruction_length(first) == 4 else "")
        raise DecodeError(
            f"the driver touched the NPU's registers with instruction {text}, which is no load or store of core "
            "registers that can be emulated; build the driver so that it uses plain 32-bit volatile accesses"
        )
    moved = [numbers[operand.reg] for operand in found.operands if operand.type == _REGISTER]
    size, post_index = _BYTES.get(access["size"] or "", 4), found.post_index
    if access["size"] is None:  # a multiple, whose first register is the base
        base, *moved = moved
        offset = 4 * len(moved) * (-1 if access["before"] else 1)
        post_index = not access["before"]
    else:
        memory = next(operand for operand in found.operands if operand.type == _MEMORY)
        base = numbers[memory.mem.base]
        offset = found.operands[-1].imm if post_index else memory.mem.disp
        if memory.mem.index:
            offset += registers[numbers[memory.mem.index]] << memory.shift.value
    origin = registers[base] if base != _PC else (registers[_PC] + 4) & ~3
    start, after = origin if post_index else origin + offset, origin + offset & 0xFFFFFFFF
    transfers = tuple(
        RegisterTransfer(number, start + size * place & 0xFFFFFFFF, size, bool(access["signed"]))
        for place, number in enumerate(moved)
    )
    return LoadStore(bool(access["load"]), transfers, found.size, (base, after) if found.writeback else None)


class RegisterAccess(NamedTuple):
    """One access to the NPU's page: byte offset, value of as many bits as the access had."""

    writes: bool
    offset: int
    value: int


class Trap:
    """The register page of `board`'s NPU, at all its addresses."""

    def __init__(
        self, gdb: GdbClient, board: Board, device: EthosURegisters, code: Callable[[int, int], Sequence[int] | None]
    ) -> None:
        """`code(address, size)` gives the program's bytes where they are known without asking the machine."""
        self._gdb = gdb
        self._device = device
        self._code = code
        self._pages = tuple((base, board.npu.size_bytes) for base in (board.npu.base, *board.npu.aliases))
        self.accesses: list[RegisterAccess] = []

    def arm_watch(self) -> None:
        for base, size in self._pages:
            self._gdb.watch_range(base, size)

    def handle_access(self) -> None:
        """Perform the access that the CPU is stopped at."""
        gdb = self._gdb
        registers = gdb.read_registers()
        pc = registers[_PC]
        code = self._code(pc, 4) or gdb.read(pc, 4)
        access = decode_access(code[0] | code[1] << 8, code[2] | code[3] << 8, registers)
        loaded: dict[int, int] = {}
        for transfer in access.transfers:
            if access.is_load:
                loaded[transfer.register] = transfer.extend_value(
                    self._read_register(transfer.address, transfer.size_bytes)
                )
            else:
                self._write_register(transfer.address, transfer.size_bytes, registers[transfer.register])
        if access.write_back is not None and access.write_back[0] not in loaded:
            gdb.set_register(*access.write_back)
        next_pc = pc + access.length_bytes
        for register, value in loaded.items():
            if register == _PC:
                next_pc = value & ~1
            else:
                gdb.set_register(register, value)
        state = gdb.read_register(XPSR)
        if next_it_state(state) != state:
            gdb.set_register(XPSR, next_it_state(state))
        gdb.set_register(_PC, next_pc)

    def _register_offset(self, address: int) -> int | None:
        for base, size in self._pages:
            if base <= address < base + size:
                return address - base
        return None

    def _read_register(self, address: int, size: int) -> int:
        offset = self._register_offset(address)
        if offset is None:  # one instruction may touch the page and what is next to it
            return int.from_bytes(self._gdb.read(address, size), "little")
        value = self._device.read_word(offset) >> 8 * (offset & 3) & (1 << 8 * size) - 1
        self.accesses.append(RegisterAccess(False, offset, value))
        return value

    def _write_register(self, address: int, size: int, value: int) -> None:
        offset = self._register_offset(address)
        value &= (1 << 8 * size) - 1
        if offset is None:
            self._gdb.write(address, value.to_bytes(size, "little"))
        else:  # the bus carries whole words; bytes next to the written ones read as zero
            self.accesses.append(RegisterAccess(True, offset, value))
            self._device.write_word(offset, value << 8 * (offset & 3))
