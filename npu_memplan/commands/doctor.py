"""`npu-memplan doctor`: what is installed, what is missing, and the exact commands that install it.

Invariant: nothing is guessed: each line comes from looking for the tool itself, and a tool that is found but does not
answer counts as missing. Exit codes: 0 all that is needed is there, 1 something needed is missing. Needed is what
compiling and the local runner need; what only some users want (emulators, references, Arm's FVP, whose licence must be
read) is listed as absent and never counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

from ..errors import NpuMemplanError
from ..process.requirements import install_command, package_requirements


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked for; `hint` is the command that installs it, or how to get it."""

    name: str
    purpose: str
    found: str | None  # version or path; None: missing
    hint: str
    needed: bool = False


def _apt(packages: str) -> str:
    """The command line that installs system packages, with sudo where it is needed."""
    command = f"apt-get install -y {packages}"
    return f"sudo {command}" if os.geteuid() != 0 else command


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pip(extra: str = "", only: str = "") -> str:
    """The command that installs what our metadata requires, by the packages' names: of an extra, or of one."""
    listed = package_requirements(extra)
    return install_command(*([listed.get(only, only)] if only else listed.values() or [f".[{extra}]"]))


def _tool(*command: str) -> str | None:
    """First line that the tool prints, or None when it is not there or does not answer."""
    from fvp_runner import read_output

    try:
        return read_output(command).first_line or None
    except NpuMemplanError:  # it does not start
        return None


def _newlib() -> str | None:
    path = _tool("arm-none-eabi-gcc", "-print-file-name=libc.a")
    return str(Path(path).resolve()) if path and "/" in path else None


def _c_compiler() -> str | None:
    from ..c_compiler import compiler_command

    command = compiler_command()
    return None if command is None else _tool(*command, "--version")


def _fvps() -> Iterator[Finding]:
    """Arm's model of each board that names one."""
    from fvp_runner import HINT, RunOptions, find_binary

    from ..target_data import board_names, load_board

    boards = [board for name in board_names() if (board := load_board(name)).fvp is not None]
    for board in {board.fvp.binary: board for board in reversed(boards) if board.fvp}.values():
        assert board.fvp is not None
        path = find_binary(board, RunOptions())
        yield Finding(board.fvp.binary, f"run --on fvp, {board.name}", str(path) if path else None, HINT)


def look() -> tuple[Finding, ...]:
    """Look for everything, in the order of the report."""
    firmware = _apt("qemu-system-arm gcc-arm-none-eabi libnewlib-arm-none-eabi")
    return (
        Finding("apache-tvm", "compiling", _package("apache-tvm"), _pip(only="apache-tvm"), needed=True),
        Finding(
            "ethos-u-vela", "compiling for the NPU", _package("ethos-u-vela"), _pip(only="ethos-u-vela"), needed=True
        ),
        Finding("C compiler", "run --on local, planning well", _c_compiler(), _apt("gcc libc6-dev"), needed=True),
        Finding("tflite-micro", "reference results", _package("tflite-micro"), _pip("reference")),
        Finding("unicorn", "run --on unicorn", _package("unicorn"), _pip("unicorn")),
        Finding("arm-none-eabi-gcc", "firmware for every board", _tool("arm-none-eabi-gcc", "--version"), firmware),
        Finding("newlib for Arm", "firmware for every board", _newlib(), firmware),
        Finding("qemu-system-arm", "run --on qemu", _tool("qemu-system-arm", "--version"), firmware),
        Finding("LiteRT", "reference of uint8", _package("ai-edge-litert"), _pip("litert")),
        Finding("onnx", "compiling ONNX models", _package("onnx"), _pip("onnx")),
        *sorted(_fvps(), key=lambda finding: finding.purpose),
    )


def runners() -> dict[str, str | None]:
    """Runner -> why it cannot run here, None when it can; best first."""
    from fvp_runner import RUNNERS, missing

    return {name: missing(name) for name in RUNNERS}


@click.command(help="Say what is installed, what is missing and how to install it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(as_json: bool) -> None:
    findings = look()
    commands = list(dict.fromkeys(f.hint for f in findings if f.found is None and f.needed))
    usable = runners()
    if as_json:
        document = {"findings": [asdict(f) for f in findings], "runners": usable, "commands": commands}
        click.echo(json.dumps(document, indent=1))
    else:
        _print(findings, usable, commands)
    if commands:
        raise click.exceptions.Exit(1)


def _print(findings: tuple[Finding, ...], usable: dict[str, str | None], commands: list[str]) -> None:
    width = max(len(f.name) for f in findings)
    for f in findings:
        state, purpose = ("missing", "needed for") if f.needed else ("absent", "optional, for")
        click.echo(f"{'ok' if f.found else state:8} {f.name:{width}}  {f.found or f'{purpose} {f.purpose}'}")
    best = next((name for name, reason in usable.items() if reason is None), None)
    click.echo("")
    for name, reason in usable.items():
        note = "can run here" + (" (the automatic choice)" if name == best else "")
        why = (reason or "").partition("; ")[0]  # what to do about it is printed below
        click.echo(f"runner {name:8} {note if reason is None else f'cannot run: {why}'}")
    click.echo("")
    if commands:
        click.echo("To install what is missing:")
        for line in commands:
            click.echo(f"  {line}")
    else:
        click.echo("Everything needed is here.")
    absent = [f for f in findings if f.found is None and not f.needed]
    if absent:
        click.echo("Optional and absent:")
    for hint in dict.fromkeys(f.hint for f in absent):
        click.echo(f"  {'; '.join(f.name for f in absent if f.hint == hint)}: {hint}")
