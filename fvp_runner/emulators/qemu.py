"""The QEMU runner: the board's CPU in QEMU, our NPU behind its real register addresses.

Invariant: the guest is stopped before every access to the NPU's page and the access is done by
`EthosURegisters`; the firmware needs to know nothing of it. A job reads the planned bytes
from the guest's memory and writes its results back there; nothing is kept elsewhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from npu_memplan.target_data import Board, board_names, load_board

from ..base import RunnerMissingError, RunOptions, RunOutputs
from ..firmware_build.build import Firmware, build, missing_compiler
from ..firmware_run import image_with_inputs, outputs_of, stopwatch
from ..result import Array
from ..transcript import END_OF_TRANSMISSION
from .device import Device, NpuSetup, pool_spans
from .qemu_machine import PROGRAM, booted
from .register_page import Sabotage

HINT = "apt-get install qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi"


def missing(options: RunOptions) -> str | None:
    if (reason := missing_emulator()) is not None:
        return reason
    if options.board is not None and (board := load_board(options.board)).qemu is None:
        return no_model(board)
    return missing_compiler()


def missing_emulator() -> str | None:
    """Why there is no QEMU here, or None."""
    if shutil.which(PROGRAM) is None:
        return f"the emulator {PROGRAM} is not on PATH; install it with: {HINT}"
    return None


def create(directory: Path, options: RunOptions) -> QemuRunner:
    return QemuRunner(build(directory, options), options)


def no_model(board: Board) -> str:
    """That QEMU has no such board, and which it has."""
    others = [name for name in board_names() if load_board(name).qemu is not None]
    return f"QEMU has no model of board {board.name}; choose one that has: {', '.join(others)}"


class QemuRunner:
    """Runs firmware on QEMU. Every run is a new QEMU process."""

    name = "qemu"

    def __init__(self, firmware: Firmware, options: RunOptions, sabotage: frozenset[Sabotage] = frozenset()) -> None:
        if firmware.board.qemu is None:
            raise RunnerMissingError(no_model(firmware.board))
        self.firmware = firmware
        self.trace: tuple[int, int] = (0, 0)  # register accesses and jobs of the last run
        self._options = options
        self._device = Device(NpuSetup.of_firmware(firmware, options.checks, sabotage))

    def run(self, inputs: Sequence[Array]) -> RunOutputs:
        image = image_with_inputs(self.firmware, inputs)
        with booted(self.firmware.board, image) as machine:
            device = self._device.start(machine)
            with stopwatch(self.name, self.firmware.artifact, self._options, device.jobs) as watch:
                end = machine.run(device, watch)
                seconds = watch.seconds
            self.trace = (len(end.accesses), len(device.jobs))
            pools = None
            if self._options.pools_after and END_OF_TRANSMISSION in end.uart:
                pools = tuple(machine.read(address, size) for address, size in pool_spans(self.firmware))
            return outputs_of(
                self.firmware,
                end.uart,
                messages=device.messages,
                notes=self._device.notes,
                pools=pools,
                version=machine.version,
                seconds=seconds,
            )
