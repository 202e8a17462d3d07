"""`npu-memplan doctor`: what is installed, what is missing, and the exact commands that install it.

Invariant: nothing is guessed: each line comes from looking for the thing itself, and a tool
that is found but does not answer counts as missing. Exit codes: 0 all that is needed is there, 1
something needed is missing. What only some users want (Arm's FVP, whose licence must be read; ONNX
models; PNG maps) is listed as absent and never counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked for. `fix` is the key of the command that installs it; empty for what is optional, whose
    `hint` says how to get it."""

    name: str
    purpose: str
    found: str | None  # version or path; None: missing
    fix: str = ""
    hint: str = ""


# What each command installs; packages are joined so that three commands are always enough.
_COMMANDS = {
    "host": "apt-get install -y gcc libc6-dev",
    "firmware": "apt-get install -y qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "python": "pip install 'npu_memplan[reference,unicorn]'",
}


def command_for(fix: str) -> str:
    """The command line that installs what `fix` stands for, with sudo where it is needed."""
    command = _COMMANDS[fix]
    needs_root = command.startswith("apt-get") and hasattr(os, "geteuid") and os.geteuid() != 0
    return f"sudo {command}" if needs_root else command


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _tool(*command: str) -> str | None:
    """First line that the tool prints, or None when it is not there or does not answer."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def _newlib() -> str | None:
    path = _tool("arm-none-eabi-gcc", "-print-file-name=libc.a")
    return str(Path(path).resolve()) if path and "/" in path else None


def _c_compiler() -> str | None:
    return next((line for name in ("cc", "gcc", "clang") if (line := _tool(name, "--version"))), None)


def _fvp(board: str) -> Callable[[], str | None]:
    def find() -> str | None:
        from fvp_runner.fvp import find_binary
        from fvp_runner.runner import RunOptions

        from ..target_data import load_board

        path = find_binary(load_board(board), RunOptions())
        return str(path) if path else None

    return find


def look() -> tuple[Finding, ...]:
    """Look for everything, in the order of the report."""
    from fvp_runner.fvp import HINT as FVP_HINT

    python = "python"
    return (
        Finding("apache-tvm", "compiling", _package("apache-tvm"), python),
        Finding("ethos-u-vela", "compiling for the NPU", _package("ethos-u-vela"), python),
        Finding("numba", "planning and the NPU model, fast", _package("numba"), python),
        Finding("tflite-micro", "reference results", _package("tflite-micro"), python),
        Finding("unicorn", "run --on unicorn", _package("unicorn"), python),
        Finding("C compiler", "run --on host", _c_compiler(), "host"),
        Finding("arm-none-eabi-gcc", "firmware for every board", _tool("arm-none-eabi-gcc", "--version"), "firmware"),
        Finding("newlib for Arm", "firmware for every board", _newlib(), "firmware"),
        Finding("qemu-system-arm", "run --on qemu", _tool("qemu-system-arm", "--version"), "firmware"),
        Finding("LiteRT", "reference of uint8", _package("ai-edge-litert"), hint="pip install 'npu_memplan[litert]'"),
        Finding("onnx", "compiling ONNX models", _package("onnx"), hint="pip install 'npu_memplan[onnx]'"),
        Finding("matplotlib", "report --png", _package("matplotlib"), hint="pip install 'npu_memplan[plots]'"),
        Finding("FVP, Ethos-U55", "run --on fvp", _fvp("corstone-300-u55")(), hint=FVP_HINT),
        Finding("FVP, Ethos-U65", "run --on fvp", _fvp("corstone-300-u65")(), hint=FVP_HINT),
    )


def runners() -> dict[str, str | None]:
    """Runner -> why it cannot run here, None when it can; best first."""
    from fvp_runner.runner import RUNNERS, missing

    return {name: missing(name) for name in RUNNERS}


@click.command(help="Say what is installed, what is missing and how to install it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(as_json: bool) -> None:
    """Print the findings, the runners that work, and the commands that fix the rest."""
    findings = look()
    fixes = list(dict.fromkeys(f.fix for f in findings if f.found is None and f.fix))
    commands = [command_for(fix) for fix in fixes]
    usable = runners()
    if as_json:
        document: dict[str, Any] = {
            "findings": [asdict(f) for f in findings],
            "runners": usable,
            "commands": commands,
        }
        click.echo(json.dumps(document, indent=1))
    else:
        _print(findings, usable, commands)
    if commands:
        raise click.exceptions.Exit(1)


def _print(findings: tuple[Finding, ...], usable: dict[str, str | None], commands: list[str]) -> None:
    width = max(len(f.name) for f in findings)
    for f in findings:
        state, purpose = ("missing", "needed for") if f.fix else ("absent", "optional, for")
        click.echo(f"{'ok' if f.found else state:8} {f.name:{width}}  {f.found or f'{purpose} {f.purpose}'}")
    best = next((name for name, reason in usable.items() if reason is None), None)
    click.echo("")
    for name, reason in usable.items():
        note = "can run here" + (" (the automatic choice)" if name == best else "")
        why = (reason or "").partition("; ")[0]  # what to do about it stands below
        click.echo(f"runner {name:8} {note if reason is None else f'cannot run: {why}'}")
    click.echo("")
    if commands:
        click.echo("To install what is missing:")
        for line in commands:
            click.echo(f"  {line}")
    else:
        click.echo("Everything needed is here.")
    absent = [f for f in findings if f.found is None and not f.fix]
    if absent:
        click.echo("Optional and absent:")
    for hint in dict.fromkeys(f.hint for f in absent):
        click.echo(f"  {'; '.join(f.name for f in absent if f.hint == hint)}: {hint}")
