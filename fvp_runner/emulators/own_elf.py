"""A user's own firmware on QEMU, with our NPU behind its registers: `npu-memplan run --elf`.

Invariant: nothing is known of the program but its ELF file: no symbol and no line of its console is required. What is
reported of the NPU is what its registers were given and what its model found. Exit codes are those of every command: 0
right, 1 the program or an NPU job failed, 2 bad use, or no end.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from npu_memplan.ethosu.arch import AcceleratorError, Architecture, accelerator, accelerator_of_config
from npu_memplan.files.paths import write_whole
from npu_memplan.sizes import count_text
from npu_memplan.target_data import Board, load_board

from ..base import RunnerError, RunnerMissingError, RunOptions
from ..firmware_build.build import Elf
from ..firmware_run import END_OF_TRANSMISSION, Stopwatch
from ..npu_model.network import trace_of
from ..register_page import NO_FAULT, JobOutcome
from .device import Device, known_objects
from .qemu import Semihosting, boot_machine, missing_emulator, no_model, qemu_version
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
    """The run of a program. `exit_code` is None where it ended without saying one."""

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
    def is_right(self) -> bool:
        """Whether the program ended well and no job failed."""
        return not self.exit_code and not self.failed_jobs

    def trace_json(self) -> str:
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
    architecture = _elf_accelerator(elf, description, npu)
    device = Device(description, elf, architecture, known_objects(description, elf), options.checks)
    with boot_machine(description, elf, semihosting) as machine:
        registers = device.attach_npu(machine)
        with Stopwatch(f"{path.name} on QEMU", options, registers.jobs) as watch:
            end = machine.run(registers, watch, console, ends)
            seconds = watch.limit_s
        contents = tuple(machine.read(address, size).tobytes() for address, size in memory.reads)
        text = end.uart.decode("utf-8", "replace").replace(chr(END_OF_TRANSMISSION), "")
        code = end.exit_code if end.exit_code is not None else _printed_code(text)
        return ElfRun(
            path.name, text, code, tuple(registers.jobs), device.job_notes, architecture,
            tuple(device.jobs.streams),
            tuple(end.accesses), seconds, qemu_version(), contents,
        )  # fmt: skip


def _elf_accelerator(elf: Elf, board: Board, name: str) -> Architecture:
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


def run_own_elf(
    elf: Path, board: str, npu: str, semihosting: bool, trace: Path | None, options: RunOptions, as_json: bool
) -> None:
    """Run `elf` and print what came of it; leaves by click's `Exit` with 1 where it failed."""
    allowed = Semihosting() if semihosting else None
    ran = run_elf(elf, board, options, npu, allowed, None if as_json else _print_console)
    if trace is not None:
        write_whole(trace, ran.trace_json().encode())
    if as_json:
        click.echo(json.dumps(run_summary(ran)))
    else:
        if ran.console and not ran.console.endswith("\n"):
            click.echo()
        click.echo("\n".join(_run_lines(ran, board)))
    if not ran.is_right:
        raise click.exceptions.Exit(1)


def _print_console(data: bytes) -> None:
    sys.stdout.write(data.replace(b"\x04", b"").replace(b"\r\n", b"\n").decode("utf-8", "replace"))
    sys.stdout.flush()


def run_summary(ran: ElfRun) -> dict[str, Any]:
    return {
        "elf": ran.name,
        "runner": "qemu",
        "version": ran.version,
        "accelerator": ran.accelerator.name,
        "right": ran.is_right,
        "exit_code": ran.exit_code,
        "npu_jobs": len(ran.jobs),
        "failed_jobs": list(ran.failed_jobs),
        "estimated_cycles": sum(job.cycles for job in ran.jobs),
        "register_accesses": len(ran.accesses),
        "notes": list(ran.notes),
        "seconds": round(ran.seconds, 3),
        "console": ran.console,
    }


def _run_lines(ran: ElfRun, board: str) -> list[str]:
    code = "ended without an exit code" if ran.exit_code is None else f"exit code {ran.exit_code}"
    lines = [
        f"-- {ran.name} on {board}, {ran.version}, {ran.accelerator.name} of our model: {code}, {ran.seconds:.1f} s"
    ]
    lines += [f"note: {note}" for note in ran.notes]
    cycles, accesses = sum(job.cycles for job in ran.jobs), f"{len(ran.accesses)} accesses to its registers"
    failed = f", {len(ran.failed_jobs)} failed" if ran.failed_jobs else ""
    jobs = (
        f"{count_text(len(ran.jobs), 'job')}{failed}, {cycles:,} estimated cycles" if ran.jobs else "no job was started"
    )
    lines.append(f"NPU: {jobs}, {accesses}")
    return [*lines, *(f"NPU job failed: {reason}" for reason in ran.failed_jobs)]
