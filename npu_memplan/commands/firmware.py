"""`npu-memplan new-firmware`, `fvp` and `evidence`: a firmware project, programs without an FVP, a record to send.

Invariant: a folder appears complete or not at all; the firmware in it builds without this package. Everything behind
the FVP's name is the FVP's own command line. `evidence` ends with exit code 0 when all programs are right, 1 when one
is not, 2 after bad use or with a runner that cannot run here.
"""

from __future__ import annotations

from pathlib import Path

import click

from .. import command_line
from ..command_line import (
    FOLDER,
    PLACE,
    TIME,
    GroupedCommand,
    RunnerName,
    Verbosity,
    option_group,
    show_progress,
    verbosity,
)
from ..files.arrays import InputError
from ..files.folders import staged_directory
from ..names import split_names


@click.command(help="Write a firmware project for a board into DIR: CMake, linker script, driver, main.c and a "
               "compiled model.")  # fmt: skip
@click.argument("directory", metavar="DIR", type=PLACE)
@click.option("--board", required=True, metavar="NAME|FILE.toml", shell_complete=command_line.boards, help="The board "
              "it is for.")  # fmt: skip
@click.option("--model", type=PLACE, metavar="FILE|DIR", help="The model to compile into it, or the directory of a "
              "compiled model of this board; default: a small network that comes with npu-memplan.")  # fmt: skip
def new_firmware_command(directory: Path, board: str, model: Path | None) -> None:
    from fvp_runner import build_commands, steps_to_do, write_project

    from ..api import compile
    from ..artifact import Artifact
    from ..evidence.gather import listed_networks
    from ..files.folders import PROJECT
    from ..files.paths import copy_folder
    from ..target_data import load_board

    found = load_board(board)
    source = model or next(listed_networks(["digits"])).path
    with staged_directory(directory, kind=PROJECT) as folder:
        if source.is_dir():
            Artifact.load(source)
            copy_folder(source, folder / "model")
        else:
            compile(source, folder / "model", board=board)
        artifact = write_project(folder, found)
    if to_do := steps_to_do(found):
        click.echo(f"to do first: {to_do}")
    steps = "build and run" if found.qemu else "build"
    click.echo(f"{directory}: firmware of {artifact.name} for {found.name}; {steps} it with:")
    click.echo(f"  cd {directory}")
    for line in build_commands(found):
        click.echo(f"  {line}")
    if not found.qemu:
        click.echo(f"no emulator here runs {found.name}: load build/firmware.elf with your debugger")


@click.command(
    help="Run a program as an FVP of Arm's would: `fvp FVP_Corstone_SSE-300_Ethos-U55 -a PROGRAM.elf ...` takes the "
    "FVP's options; `fvp install DIR` writes programs with the FVPs' names. QEMU runs the CPU, our model the NPU.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("name", metavar="FVP|install")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def fvp_command(name: str, arguments: tuple[str, ...]) -> None:
    from fvp_runner import install_models, run_model

    if name != "install":
        raise click.exceptions.Exit(run_model(name, arguments))
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise InputError("fvp install takes one folder: npu-memplan fvp install DIR")
    folder = Path(arguments[0])
    paths = install_models(folder)
    click.echo(f"{len(paths)} executables in {folder}; for MLIA: mlia backend install corstone-300 --path {folder}")


_what, _where = option_group("Program and runner"), option_group("Output files")


@click.command(cls=GroupedCommand, help="Run a fixed set of small networks and write a record that you can send: "
               "results, NPU counters beside the estimate, hazards, versions, digests.")  # fmt: skip
@_what("--on", "runner", required=True, type=RunnerName("fvp", "qemu", "unicorn", "local", "arm-runner"),
       help="What runs them; arm-runner: Arm's own compiled firmware, on QEMU.")  # fmt: skip
@_what("--accelerator", default="ethos-u55-128", show_default=True, metavar="NAME",
       shell_complete=command_line.accelerators, help="The NPU.")  # fmt: skip
@_what("--board", metavar="NAME|FILE.toml", shell_complete=command_line.boards, help="Board of the firmware; default: "
       "the accelerator's.")  # fmt: skip
@_what("--fvp-path", type=PLACE, metavar="PATH", help="Arm's FVP, or the folder it was "
       "installed in; default: FVP_PATH, then PATH.")  # fmt: skip
@_what("--only", default="", type=split_names, metavar="NAME,NAME", help="These networks alone.")
@_what("--timeout", type=TIME, default=900.0, show_default=True, metavar="SECONDS",
       help="Wall time of one program.")  # fmt: skip
@_where("-o", "--output", required=True, type=FOLDER, metavar="DIR", help="Folder for evidence.json and evidence.html.")
@_where("--force", is_flag=True, help="Replace a non-empty output directory.")
@verbosity
@option_group("Printed output")("--json", "as_json", is_flag=True, help="Print the record instead of text.")
def evidence_command(
    runner: str,
    accelerator: str,
    board: str | None,
    fvp_path: Path | None,
    only: tuple[str, ...],
    timeout: float,
    output: Path,
    force: bool,
    verbosity: Verbosity,
    as_json: bool,
) -> None:
    from fvp_runner import RunOptions

    from ..evidence.gather import gather_record
    from ..evidence.record import record_page, verdict_of

    options = RunOptions(board=board, timeout_s=timeout, fvp_path=fvp_path)
    with staged_directory(output, force) as folder:  # where it cannot be written, nothing runs
        with show_progress("evidence", verbosity) as shown:
            record = gather_record(runner, accelerator, options, only, shown.show_part)
        (folder / "evidence.json").write_bytes(record.to_json())
        (folder / "evidence.html").write_text(record_page(record), encoding="utf-8")
    if as_json:
        click.echo(record.to_json(), nl=False)
    else:
        click.echo(record.verdict_text())
        for run in record.runs if verbosity is not Verbosity.QUIET else ():
            click.echo(f"  {run.network:24} {run.program:13} {verdict_of(run)}")
        if verbosity is not Verbosity.QUIET:
            click.echo(f"written to {output}: send evidence.json and evidence.html")
    if any(run.exact is False for run in record.runs):
        raise click.exceptions.Exit(1)
