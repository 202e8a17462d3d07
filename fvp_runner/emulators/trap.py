"""Stand in for the NPU's register page of a machine that a debugger can stop.

Invariant: each stop is exactly one load or store that has not happened yet; `handle` performs
it on the device and leaves the CPU after the instruction, as if hardware had answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from npu_memplan.target_data import Board

from ..register_page import EthosURegisters
from .armdecode import decode, next_it_state
from .gdb import XPSR, GdbClient

_PC = 15


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

    def arm(self) -> None:
        for base, size in self._pages:
            self._gdb.watch(base, size)

    def handle(self) -> None:
        """Perform the access that the CPU is stopped at."""
        gdb = self._gdb
        registers = gdb.registers()
        pc = registers[_PC]
        code = self._code(pc, 4) or gdb.read(pc, 4)
        access = decode(code[0] | code[1] << 8, code[2] | code[3] << 8, registers)
        loaded: dict[int, int] = {}
        for transfer in access.transfers:
            if access.is_load:
                loaded[transfer.register] = transfer.extend(self._read(transfer.address, transfer.size_bytes))
            else:
                self._write(transfer.address, transfer.size_bytes, registers[transfer.register])
        if access.write_back is not None and access.write_back[0] not in loaded:
            gdb.set_register(*access.write_back)
        next_pc = pc + access.length_bytes
        for register, value in loaded.items():
            if register == _PC:
                next_pc = value & ~1
            else:
                gdb.set_register(register, value)
        state = gdb.register(XPSR)
        if next_it_state(state) != state:
            gdb.set_register(XPSR, next_it_state(state))
        gdb.set_register(_PC, next_pc)

    def _offset(self, address: int) -> int | None:
        for base, size in self._pages:
            if base <= address < base + size:
                return address - base
        return None

    def _read(self, address: int, size: int) -> int:
        offset = self._offset(address)
        if offset is None:  # one instruction may touch the page and what is next to it
            return int.from_bytes(self._gdb.read(address, size), "little")
        value = self._device.read(offset) >> 8 * (offset & 3) & (1 << 8 * size) - 1
        self.accesses.append(RegisterAccess(False, offset, value))
        return value

    def _write(self, address: int, size: int, value: int) -> None:
        offset = self._offset(address)
        value &= (1 << 8 * size) - 1
        if offset is None:
            self._gdb.write(address, value.to_bytes(size, "little"))
        else:  # the bus carries whole words; bytes next to the written ones read as zero
            self.accesses.append(RegisterAccess(True, offset, value))
            self._device.write(offset, value << 8 * (offset & 3))
