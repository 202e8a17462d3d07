"""A user's own firmware on QEMU, with our NPU behind its registers.

Invariant: nothing is known of the program but its ELF file: no symbol and no line of its console is required. What is
reported of the NPU is what its registers were given and what its model found.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_memplan.ethosu.arch import AcceleratorError, Architecture, accelerator, accelerator_of_config
from npu_memplan.target_data import Board, load_board

from ..base import RunnerError, RunnerMissingError, RunOptions
from ..firmware_build.elf import Elf
from ..firmware_run import Stopwatch
from ..npu_model.network.trace import trace_of
from ..register_page import NO_FAULT, JobOutcome
from ..transcript import END_OF_TRANSMISSION
from .device import Device, known_objects
from .qemu import missing_emulator, no_model
from .qemu_machine import Semihosting, booted, version
from .trap import RegisterAccess

ENDS = (bytes([END_OF_TRANSMISSION]), b"EXITTHESIM\n", b"EXITTHESIM\r\n")
_CODES = (re.compile(r"^EXIT:([0-9a-fA-F]{8})\s*$", re.M), re.compile(r"Application exit code: (-?\d+)\."))
_PAYLOAD = re.compile(rb"COP1\x01\x00..(....)", re.S)  # the configuration that a driver payload begins with


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """Memory beside a program: (address, bytes) to load before it runs, (address, size) to read when it has ended."""

    loads: tuple[tuple[int, bytes], ...] = ()
    reads: tuple[tuple[int, int], ...] = ()


NO_FILES = MemoryFiles()


@dataclass(frozen=True, slots=True)
class ElfRun:
    """What a program did. `exit_code` is None where it ended without saying one."""

    name: str
    console: str
    exit_code: int | None
    jobs: tuple[JobOutcome, ...]
    notes: tuple[str, ...]  # what the NPU model remarked
    accelerator: Architecture
    streams: tuple[tuple[int, ...], ...]
    accesses: tuple[RegisterAccess, ...]
    seconds: float
    version: str
    contents: tuple[bytes, ...] = ()  # of the memory that was to be read when it ended

    @property
    def failed_jobs(self) -> tuple[str, ...]:
        """Why NPU jobs failed, one sentence each."""
        return tuple(job.message or f"STATUS {job.faults!r}" for job in self.jobs if job.faults != NO_FAULT)

    @property
    def right(self) -> bool:
        """Whether the program ended well and no job failed."""
        return not self.exit_code and not self.failed_jobs

    def trace(self) -> str:
        """The NPU's operations job by job in Chrome's format, and every access to its registers."""
        calls = [(index, words, self.accelerator) for index, words in enumerate(self.streams)]
        document: dict[str, Any] = trace_of(self.name, calls)
        document["registers"] = [
            {"write": access.writes, "offset": f"{access.offset:#05x}", "value": f"{access.value:#010x}"}
            for access in self.accesses
        ]
        return json.dumps(document)


def run_elf(
    path: Path,
    board: str | Path | Board,
    options: RunOptions,
    npu: str = "",
    semihosting: Semihosting | None = None,
    console: Callable[[bytes], None] | None = None,
    memory: MemoryFiles = NO_FILES,
    ends: tuple[bytes, ...] = ENDS,
) -> ElfRun:
    """Boot the program at `path` and wait for its end; `console` is given what it prints, as it comes.

    `npu` names the accelerator; empty: the one that a driver payload in the file is for, or else the board's largest.
    With `semihosting` the program may exit by it, and read and write files. `memory` says what else is loaded before
    it runs, and what is read back when it has ended. Printing one of `ends` ends it. `RunTimeoutError` when it goes on.
    """
    description = board if isinstance(board, Board) else load_board(board)
    if description.qemu is None:
        raise RunnerMissingError(no_model(description))
    if (reason := missing_emulator()) is not None:
        raise RunnerMissingError(reason)
    try:
        elf = Elf.load(path)
    except OSError as error:
        raise RunnerError(f"cannot read {path}: {error.strerror or error}") from None
    for address, content in memory.loads:
        elf = elf.with_segment(address, content)
    architecture = _accelerator(elf, description, npu)
    device = Device(description, elf, architecture, known_objects(description, elf), options.checks)
    with booted(description, elf, semihosting) as machine:
        registers = device.start(machine)
        with Stopwatch(f"{path.name} on QEMU", options, registers.jobs) as watch:
            end = machine.run(registers, watch, console, ends)
            seconds = watch.seconds
        contents = tuple(machine.read(address, size).tobytes() for address, size in memory.reads)
        text = end.uart.decode("utf-8", "replace").replace(chr(END_OF_TRANSMISSION), "")
        code = end.exit_code if end.exit_code is not None else _printed_code(text)
        return ElfRun(
            path.name, text, code, tuple(registers.jobs), device.notes, architecture,
            tuple(device.jobs.streams),
            tuple(end.accesses), seconds, version(), contents,
        )  # fmt: skip


def _accelerator(elf: Elf, board: Board, name: str) -> Architecture:
    if name:
        found = accelerator(name)
        if found.name not in board.accelerators:
            raise RunnerError(f"board {board.name} has no {name}; it has: {', '.join(board.accelerators)}")
        return found
    for match in _PAYLOAD.finditer(elf.image):
        with contextlib.suppress(AcceleratorError):
            return accelerator_of_config(int.from_bytes(match[1], "little"))
    return accelerator(board.accelerators[-1])


def _printed_code(text: str) -> int | None:
    for base, pattern in zip((16, 10), _CODES, strict=True):
        found = pattern.findall(text)
        if found:
            return int(found[-1], base)
    return None
