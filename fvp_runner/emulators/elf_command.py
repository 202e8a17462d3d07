"""`npu-memplan run --elf`: a user's own firmware, what it prints and what its NPU jobs did.

Invariant: exit codes are those of every command: 0 right, 1 the program or an NPU job failed, 2 bad use, or no end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from npu_memplan.files.whole_file import write_whole
from npu_memplan.sizes import counted

from ..base import RunOptions
from .own_elf import ElfRun, run_elf
from .qemu_machine import Semihosting


def run_own_elf(
    elf: Path, board: str, npu: str, semihosting: bool, trace: Path | None, options: RunOptions, as_json: bool
) -> None:
    """Run `elf` and print what came of it; leaves by click's `Exit` with 1 where it failed."""
    allowed = Semihosting() if semihosting else None
    ran = run_elf(elf, board, options, npu, allowed, None if as_json else _console)
    if trace is not None:
        write_whole(trace, ran.trace().encode())
    if as_json:
        click.echo(json.dumps(summary(ran)))
    else:
        if ran.console and not ran.console.endswith("\n"):
            click.echo()
        click.echo("\n".join(_lines(ran, board)))
    if not ran.right:
        raise click.exceptions.Exit(1)


def _console(data: bytes) -> None:
    sys.stdout.write(data.replace(b"\x04", b"").replace(b"\r\n", b"\n").decode("utf-8", "replace"))
    sys.stdout.flush()


def summary(ran: ElfRun) -> dict[str, Any]:
    return {
        "elf": ran.name,
        "runner": "qemu",
        "version": ran.version,
        "accelerator": ran.accelerator.name,
        "right": ran.right,
        "exit_code": ran.exit_code,
        "npu_jobs": len(ran.jobs),
        "failed_jobs": list(ran.failed_jobs),
        "estimated_cycles": sum(job.cycles for job in ran.jobs),
        "register_accesses": len(ran.accesses),
        "notes": list(ran.notes),
        "seconds": round(ran.seconds, 3),
        "console": ran.console,
    }


def _lines(ran: ElfRun, board: str) -> list[str]:
    code = "ended without an exit code" if ran.exit_code is None else f"exit code {ran.exit_code}"
    lines = [
        f"-- {ran.name} on {board}, {ran.version}, {ran.accelerator.name} of our model: {code}, {ran.seconds:.1f} s"
    ]
    lines += [f"note: {note}" for note in ran.notes]
    cycles, accesses = sum(job.cycles for job in ran.jobs), f"{len(ran.accesses)} accesses to its registers"
    failed = f", {len(ran.failed_jobs)} failed" if ran.failed_jobs else ""
    jobs = f"{counted(len(ran.jobs), 'job')}{failed}, {cycles:,} estimated cycles" if ran.jobs else "no job was started"
    lines.append(f"NPU: {jobs}, {accesses}")
    return [*lines, *(f"NPU job failed: {reason}" for reason in ran.failed_jobs)]
