"""The QEMU runner: the board's CPU in QEMU, our NPU behind its real register addresses.

Invariant: the guest is stopped before every access to the NPU's page and the access is done by
`EthosURegisters`; the firmware needs to know nothing of it. A job reads the planned bytes
from the guest's memory and writes its results back there; nothing is kept elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from npu_memplan.files.owned_folder import scratch_folder
from npu_memplan.target_data import Board, board_names, load_board

from ..base import RunnerMissingError, RunOptions, RunOutputs
from ..firmware_build.build import Firmware, build, missing_compiler
from ..firmware_build.elf import Elf
from ..firmware_run import Stopwatch, image_with_inputs, outputs_of
from ..npu_model.spec.layout import Bytes
from ..process import child
from ..result import Array
from ..transcript import END_OF_TRANSMISSION
from .device import Device, pool_spans, reaching_memory
from .gdb import GdbClient
from .qemu_control import QemuError, Qmp, Qtest
from .register_page import Sabotage
from .trap import Trap

PROGRAM = "qemu-system-arm"
HINT = "apt-get install qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi"


def missing(options: RunOptions) -> str | None:
    """Why QEMU cannot run firmware here, or None."""
    if shutil.which(PROGRAM) is None:
        return f"the emulator {PROGRAM} is not on PATH; install it with: {HINT}"
    if options.board is not None and (board := load_board(options.board)).qemu is None:
        return _no_model(board)
    return missing_compiler()


def create(directory: Path, options: RunOptions) -> QemuRunner:
    """A QEMU runner for the artifact in `directory`; builds its firmware."""
    return QemuRunner(build(directory, options), options)


def _no_model(board: Board) -> str:
    others = [name for name in board_names() if load_board(name).qemu is not None]
    return f"QEMU has no model of board {board.name}; choose one that has: {', '.join(others)}"


_ROOM_BYTES = 256 << 20
_END = bytes([END_OF_TRANSMISSION])  # the firmware's last byte


class QemuRunner:
    """Runs firmware on QEMU. Every run is a new QEMU process."""

    name = "qemu"

    def __init__(self, firmware: Firmware, options: RunOptions, sabotage: frozenset[Sabotage] = frozenset()) -> None:
        if firmware.board.qemu is None:
            raise RunnerMissingError(_no_model(firmware.board))
        self.firmware = firmware
        self.trace: tuple[int, int] = (0, 0)  # register accesses and jobs of the last run
        self._options = options
        self._device = Device(firmware, options.checks, sabotage)

    def run(self, inputs: Sequence[Array]) -> RunOutputs:
        """Boot, run one inference, and read what came out. See `Runner.run`."""
        image = image_with_inputs(self.firmware, inputs)
        with scratch_folder("qemu", _fast_folder()) as folder:
            kernel = folder / "firmware.elf"
            kernel.write_bytes(image.image)
            with child(self._command(folder, kernel)) as process, contextlib.ExitStack() as stack:
                try:
                    machine = _QemuMachine(self.firmware, image, folder, stack, lambda: process.poll() is None)
                except QemuError as error:
                    process.kill()
                    said = process.communicate()[1].decode("utf-8", "replace").strip()
                    raise QemuError(f"QEMU did not start: {said or error}") from None
                return self._drive(process, machine)

    def _command(self, folder: Path, kernel: Path) -> list[str]:
        qemu = self.firmware.board.qemu
        assert qemu is not None
        command = [PROGRAM, "-M", qemu.machine, "-accel", "tcg", "-nodefaults", "-display", "none", "-monitor", "none"]
        command += ["-kernel", str(kernel), "-serial", "stdio", "-S"]
        for channel in ("gdb", "qmp", "qtest"):
            command += [f"-{channel}", f"unix:{folder / channel},server=on,wait=off"]
        return [*command, "-qtest-log", "/dev/null"]

    def _drive(self, process: subprocess.Popen[bytes], machine: _QemuMachine) -> RunOutputs:
        device = self._device.start(machine)
        device.connect_irq(machine.set_irq)
        trap = Trap(machine.gdb, self.firmware.board, device, machine.elf.read)
        trap.arm()
        with Stopwatch(self.name, self.firmware.artifact, self._options, device.jobs) as watch:
            uart = _until_end(process, machine.gdb, trap, watch)
            seconds = watch.seconds
        self.trace = (trap.count, len(device.jobs))
        pools = None
        if self._options.pools_after and END_OF_TRANSMISSION in uart:
            pools = tuple(machine.read(address, size) for address, size in pool_spans(self.firmware))
        return outputs_of(
            self.firmware,
            uart,
            messages=device.messages,
            notes=self._device.notes,
            pools=pools,
            version=machine.qmp.version,
            seconds=seconds,
        )


def _until_end(process: subprocess.Popen[bytes], gdb: GdbClient, trap: Trap, watch: Stopwatch) -> bytes:
    """Let the CPU run, serving its register accesses, until it prints its end mark or QEMU goes away."""
    assert process.stdout is not None
    assert process.stderr is not None
    uart, errors = bytearray(), bytearray()
    pipes = {process.stdout.fileno(): uart, process.stderr.fileno(): errors}
    debugger = gdb.fileno()
    gdb.resume()
    while not uart.endswith(_END):
        ready = select.select([*pipes, debugger], [], [], watch.left())[0]
        for pipe in [p for p in ready if p in pipes]:
            data = os.read(pipe, 1 << 16)
            pipes[pipe] += data
            if not data:
                pipes.pop(pipe)
                if pipe == process.stdout.fileno():
                    said = errors.decode("utf-8", "replace").strip().splitlines()
                    raise QemuError(f"QEMU ended before the firmware did: {said[-1] if said else 'without a word'}")
        if debugger in ready:
            reason = gdb.wait_stop(0.0)  # it may have been an acknowledgement alone
            if reason is not None:
                if "watch:" not in reason:
                    raise QemuError(f"QEMU stopped the firmware: {reason}")
                trap.handle()
                gdb.resume()
        watch.check(uart)
    return bytes(uart)


class _QemuMachine:
    """A running QEMU: its control channels, and its memory as the NPU sees it."""

    def __init__(
        self, firmware: Firmware, elf: Elf, folder: Path, stack: contextlib.ExitStack, alive: Callable[[], bool]
    ) -> None:
        self.elf = elf
        self._board = firmware.board
        self._dump = folder / "memory"
        self._fetched: list[tuple[int, Bytes, Bytes]] = []  # address, as it was, as the job leaves it
        self.qmp = Qmp(folder / "qmp", alive)
        stack.callback(self.qmp.close)
        self.qtest = Qtest(folder / "qtest", alive)
        stack.callback(self.qtest.close)
        self.gdb = GdbClient(folder / "gdb")
        stack.callback(self.gdb.close)

    def set_irq(self, level: bool) -> None:
        """Drive the NPU's interrupt line."""
        qemu = self._board.qemu
        assert qemu is not None
        self.qtest.set_line(qemu.irq_object, qemu.irq_name, qemu.irq_line, level)

    def read(self, address: int, size_bytes: int) -> Bytes:
        """Memory as it is now."""
        if not size_bytes:
            return np.zeros(0, np.uint8)
        data: Bytes = np.frombuffer(self.qmp.save_memory(address, size_bytes, self._dump), np.uint8)
        return data

    def reaches(self, address: int, size_bytes: int) -> bool:
        """See `GuestMemory.reaches`."""
        return reaching_memory(self._board, address, size_bytes) is not None

    def fetch(self, address: int, size_bytes: int) -> Bytes:
        """See `GuestMemory.fetch`: constants come from the ELF, everything else from the guest."""
        constant = self.elf.read_only(address, size_bytes)
        if constant is not None:
            read_only: Bytes = np.frombuffer(constant, np.uint8)
            return read_only
        before = self.read(address, size_bytes)
        after: Bytes = before.copy()
        self._fetched.append((address, before, after))
        return after

    def commit(self) -> None:
        """See `GuestMemory.commit`: only what changed is written back."""
        for address, before, after in self._fetched:
            changed = np.flatnonzero(before != after)
            if changed.size:
                for start, stop in _runs(changed):
                    self.qtest.write_memory(address + start, after[start:stop].tobytes())
        self._fetched.clear()


def _runs(changed: np.ndarray[tuple[int], np.dtype[np.intp]], gap: int = 4096) -> list[tuple[int, int]]:
    """Half-open ranges that cover the ascending indices, joined over gaps of up to `gap`."""
    breaks = np.flatnonzero(np.diff(changed) > gap)
    starts = changed[np.concatenate(([0], breaks + 1))]
    stops = changed[np.concatenate((breaks, [changed.size - 1]))] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _fast_folder() -> Path | None:
    """A folder in memory where there is a roomy one: the guest's memory passes through it."""
    folder = Path("/dev/shm")
    roomy = folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM_BYTES
    return folder if roomy else None
