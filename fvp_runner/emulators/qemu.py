"""The QEMU runner: the board's CPU in QEMU, our NPU behind its real register addresses.

Invariant: the guest is stopped before every access to the NPU's page and the access is done by
`EthosURegisters`; the firmware needs to know nothing of it. A job reads the planned bytes
from the guest's memory and writes its results back there; nothing is kept elsewhere.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from npu_memplan.target_data import Board, board_names, load_board

from ..base import RunnerMissingError, RunOptions
from ..firmware_build.build import Firmware, build, missing_compiler
from ..firmware_build.elf import Elf
from .device import EmulatedRunner, Machine
from .qemu_machine import PROGRAM, booted, version

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


class QemuRunner(EmulatedRunner):
    name = "qemu"

    def __init__(self, firmware: Firmware, options: RunOptions) -> None:
        if firmware.board.qemu is None:
            raise RunnerMissingError(no_model(firmware.board))
        super().__init__(firmware, options)

    def _machine(self, image: Elf) -> AbstractContextManager[Machine]:
        return booted(self.firmware.board, image)

    def _version(self) -> str:
        return version()
