"""The Unicorn runner: the firmware's CPU in this process, the same NPU behind the same registers.

Invariant: the guest's memories are this process's memory, so the NPU model works on the planned
bytes themselves. Unicorn has no Cortex-M55 and no interrupt controller: firmware is built for
cortex-m33, and an interrupt's entry and return are done by hand as the architecture defines them.
Unicorn is an optional extra and is imported only when it is used.
"""

from __future__ import annotations

import importlib.util
import mmap
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from npu_memplan.target_data import BoardMemory

from ..base import FirmwareError, RunnerError, RunOptions
from ..firmware_build.build import Elf, Firmware, build, missing_compiler
from ..firmware_run import END_OF_TRANSMISSION, Stopwatch
from ..npu_model.spec.feature_maps import Bytes
from ..register_page import EthosURegisters
from .device import EmulatedRunner, End, Machine, reaching_memory
from .trap import instruction_length, next_it_state

CPU = "cortex-m33"
HINT = "pip install 'npu_memplan[unicorn]'"
_RETURN = 0x3FFFF000  # where a handler returns to: executable by the default memory map, and no board has memory there
_ADAPTER_VERSION, _ADAPTER_KNOWN = 0x38, 0x1117  # register and content of a timing adapter that the firmware takes
_SYSTEM, _SYSTEM_BYTES = 0xE0000000, 0x100000  # private peripherals
_NVIC_ENABLE, _VTOR = 0xE100, 0xED08  # offsets in them
_LOOK_S = 0.1  # between two looks at the clock
_PAGE = 0x1000


def missing(options: RunOptions) -> str | None:
    if importlib.util.find_spec("unicorn") is None:
        return f"the Python package unicorn is not installed; install it with: {HINT}"
    if options.cpu is not None and "m33" not in options.cpu:
        return f"Unicorn has no {options.cpu}; leave the CPU out (it is then {CPU})"
    return missing_compiler()


def create(directory: Path, options: RunOptions) -> UnicornRunner:
    """A Unicorn runner for the artifact in `directory`; builds its firmware for cortex-m33."""
    return UnicornRunner(build(directory, options, CPU), options)


class UnicornRunner(EmulatedRunner):
    name = "unicorn"

    def _machine(self, image: Elf) -> AbstractContextManager[Machine]:
        return nullcontext(_UnicornMachine(self.firmware, image))

    def _emulator_version(self) -> str:
        import unicorn

        return f"Unicorn {unicorn.__version__}, {CPU}"


class _UnicornMachine:
    """One board in Unicorn; also its memory as the NPU sees it."""

    def __init__(self, firmware: Firmware, elf: Elf) -> None:
        import unicorn
        from unicorn import arm_const

        self._board = board = firmware.board
        self._elf = elf
        self._regs: Any = arm_const
        self._error: type[Exception] = unicorn.UcError
        self.uart = bytearray()
        self.ended = False
        self._system: dict[int, int] = {}
        self._stopped_in_store = False
        self._given_up = False
        self._uc: Any = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self._uc.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M33)
        self._memories: dict[str, Bytes] = {}
        self._buffers: list[mmap.mmap] = []
        for memory in board.memories:
            self._map_memory(memory)
        self._uc.mmio_map(board.uart.base & -_PAGE, _PAGE, self._uart_read, board, self._uart_write, board)
        self._uc.mmio_map(_SYSTEM, _SYSTEM_BYTES, self._system_read, None, self._system_write, None)
        self._uc.mem_map(_RETURN, _PAGE)
        for page in {adapter.base & -_PAGE for adapter in board.timing_adapters}:
            self._uc.mem_map(page, _PAGE)
        for adapter in board.timing_adapters:  # registers that keep what is written, and change no time
            self._uc.mem_write(adapter.base + _ADAPTER_VERSION, _ADAPTER_KNOWN.to_bytes(4, "little"))
        for s in elf.segments:
            if s.file_bytes:
                self._uc.mem_write(s.physical, elf.image[s.offset : s.offset + s.file_bytes])

    def _map_memory(self, memory: BoardMemory) -> None:
        buffer = mmap.mmap(-1, memory.size_bytes)
        self._buffers.append(buffer)
        data: Bytes = np.frombuffer(buffer, np.uint8)
        self._memories[memory.name] = data
        for base in (memory.base, *memory.aliases):
            self._uc.mem_map_ptr(base, memory.size_bytes, 7, data.ctypes.data)

    def run(self, device: EthosURegisters, watch: Stopwatch) -> End:
        """Run from reset until the firmware's end mark; `RunTimeoutError` when it does not come.

        The CPU runs in a thread of its own, because a stop from outside may make it repeat the store
        it is in: only a run that is given up is ever stopped that way. This thread keeps the time.
        """
        failure: list[BaseException] = []
        done = threading.Event()  # a join that is interrupted may take a running thread for ended

        def run_cpu() -> None:
            try:
                self._emulate_cpu(device)
            except BaseException as error:  # handed to the caller's thread
                failure.append(error)
            finally:
                done.set()

        threading.Thread(target=run_cpu, daemon=True).start()
        try:
            while not done.wait(_LOOK_S):
                watch.check_limit(self.uart)
        finally:
            while not done.is_set():  # time is up, or Ctrl-C
                self._given_up = True
                self._uc.emu_stop()
                done.wait(_LOOK_S)
        if failure:
            raise failure[0]
        return End(bytes(self.uart))

    def _emulate_cpu(self, device: EthosURegisters) -> None:
        uc, regs = self._uc, self._regs
        for base in (self._board.npu.base, *self._board.npu.aliases):
            uc.mmio_map(base, self._board.npu.size_bytes, self._npu_read, device, self._npu_write, device)
        code = self._board.memory(self._board.firmware.code)
        stack, pc = (int.from_bytes(uc.mem_read(code.base + 4 * i, 4), "little") for i in range(2))
        uc.reg_write(regs.UC_ARM_REG_SP, stack)
        interrupted: list[dict[int, int]] = []
        while not self.ended and not self._given_up:
            try:
                uc.emu_start(pc | 1, _RETURN)
            except self._error as error:
                pc = uc.reg_read(regs.UC_ARM_REG_PC)
                raise FirmwareError(f"the firmware's CPU stopped at {pc:#010x}: {error}") from None
            pc = uc.reg_read(regs.UC_ARM_REG_PC) & ~1
            if self._stopped_in_store:  # the store has been done; Unicorn would do it again
                self._stopped_in_store = False
                pc += instruction_length(int.from_bytes(uc.mem_read(pc, 2), "little"))
                uc.reg_write(regs.UC_ARM_REG_XPSR, next_it_state(uc.reg_read(regs.UC_ARM_REG_XPSR)))
            if pc == _RETURN and interrupted:
                pc = self._leave_handler(interrupted.pop())
            if device.irq and not interrupted and self._interrupts_enabled():
                interrupted.append(self._enter_handler(pc))
                pc = self._handler_address()

    def _interrupts_enabled(self) -> bool:
        irq = self._board.npu.irq
        word = self._system.get(_NVIC_ENABLE + 4 * (irq // 32), 0)
        return bool(word >> irq % 32 & 1) and not self._uc.reg_read(self._regs.UC_ARM_REG_PRIMASK) & 1

    def _saved_registers(self) -> list[int]:
        r = self._regs
        core = [r.UC_ARM_REG_R0, r.UC_ARM_REG_R1, r.UC_ARM_REG_R2, r.UC_ARM_REG_R3, r.UC_ARM_REG_R12]
        core += [r.UC_ARM_REG_LR, r.UC_ARM_REG_SP, r.UC_ARM_REG_XPSR, r.UC_ARM_REG_FPSCR]
        return core + [r.UC_ARM_REG_S0 + i for i in range(16)]

    def _enter_handler(self, pc: int) -> dict[int, int]:
        """Stack what exception entry stacks; the handler returns to `_RETURN`."""
        frame = {register: self._uc.reg_read(register) for register in self._saved_registers()}
        frame[self._regs.UC_ARM_REG_PC] = pc
        self._uc.reg_write(self._regs.UC_ARM_REG_LR, _RETURN | 1)
        no_it_block = frame[self._regs.UC_ARM_REG_XPSR] & ~(3 << 25 | 0x3F << 10)
        self._uc.reg_write(self._regs.UC_ARM_REG_XPSR, no_it_block)
        return frame

    def _leave_handler(self, frame: dict[int, int]) -> int:
        pc = frame.pop(self._regs.UC_ARM_REG_PC)
        for register, value in frame.items():
            self._uc.reg_write(register, value)
        return pc

    def _handler_address(self) -> int:
        table = self._system.get(_VTOR, self._board.memory(self._board.firmware.code).base)
        handler = self._uc.mem_read(table + 4 * (16 + self._board.npu.irq), 4)
        return int.from_bytes(handler, "little") & ~1

    def _npu_read(self, _uc: Any, offset: int, size: int, device: EthosURegisters) -> int:
        return device.read_word(offset) >> 8 * (offset & 3) & (1 << 8 * size) - 1

    def _npu_write(self, uc: Any, offset: int, size: int, value: int, device: EthosURegisters) -> None:
        device.write_word(offset, (value & (1 << 8 * size) - 1) << 8 * (offset & 3))
        if device.irq and self._interrupts_enabled():
            self._stopped_in_store = True
            uc.emu_stop()

    def _uart_read(self, _uc: Any, offset: int, _size: int, _board: Any) -> int:
        return 0  # never full

    def _uart_write(self, uc: Any, offset: int, _size: int, value: int, _board: Any) -> None:
        if offset == self._board.uart.base & (_PAGE - 1):
            self.uart.append(value & 0xFF)
            if value & 0xFF == END_OF_TRANSMISSION:
                self.ended = True
                uc.emu_stop()

    def _system_read(self, _uc: Any, offset: int, _size: int, _data: Any) -> int:
        return self._system.get(offset & ~3, 0)

    def _system_write(self, _uc: Any, offset: int, _size: int, value: int, _data: Any) -> None:
        if _NVIC_ENABLE <= offset < _NVIC_ENABLE + 0x40:
            value |= self._system.get(offset, 0)
        elif _NVIC_ENABLE + 0x80 <= offset < _NVIC_ENABLE + 0xC0:
            offset -= 0x80
            value = self._system.get(offset, 0) & ~value
        self._system[offset & ~3] = value

    def guest_bytes(self, address: int, size_bytes: int) -> Bytes:
        """The guest's bytes themselves; `RunnerError` where the board has no memory."""
        for memory in self._board.memories:
            offset = memory.offset_of(address)
            if offset is not None and offset + size_bytes <= memory.size_bytes:
                return self._memories[memory.name][offset : offset + size_bytes]
        raise RunnerError(f"board {self._board.name} has no memory at {address:#010x}")

    def read(self, address: int, size_bytes: int) -> Bytes:
        data: Bytes = self.guest_bytes(address, size_bytes).copy()
        return data

    def can_access(self, address: int, size_bytes: int) -> bool:
        return reaching_memory(self._board, address, size_bytes) is not None

    def fetch_bytes(self, address: int, size_bytes: int) -> Bytes:
        """See `GuestMemory.fetch_bytes`: no copy is made."""
        data = self.guest_bytes(address, size_bytes)
        if self._elf.read_only(address, size_bytes) is not None:
            data.flags.writeable = False
        return data

    def commit_writes(self) -> None:
        """See `GuestMemory.commit_writes`: the job wrote to the guest's memory directly."""
