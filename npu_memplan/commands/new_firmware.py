"""`npu-memplan new-firmware`: a firmware project for a board, for those who have the wheel alone.

Invariant: the folder appears complete or not at all; what is in it builds without this package.
"""

from __future__ import annotations

from pathlib import Path

import click

from ..command_line import completion
from ..command_line.values import FILE, PLACE


@click.command(help="Write a firmware project for a board into DIR: CMake, linker script, driver, main.c and a "
               "compiled model.")  # fmt: skip
@click.argument("directory", metavar="DIR", type=PLACE)
@click.option("--board", required=True, metavar="NAME|FILE.toml", shell_complete=completion.boards, help="The board "
              "it is for.")  # fmt: skip
@click.option("--model", type=FILE, metavar="FILE", help="The model to compile into it; default: a small network "
              "that comes with npu-memplan, to be replaced by yours.")  # fmt: skip
def command(directory: Path, board: str, model: Path | None) -> None:
    from fvp_runner.firmware_build.build import runnable_board
    from fvp_runner.firmware_build.project import commands, write_project

    from ..api import compile
    from ..evidence.networks import networks
    from ..files.manifest import PROJECT
    from ..files.staging import staged_directory

    found = runnable_board(board)
    source = model or next(networks(["digits"])).path
    with staged_directory(directory, kind=PROJECT) as folder:
        compile(source, folder / "model", board=board)
        artifact = write_project(folder, found)
    click.echo(f"{directory}: firmware of {artifact.name} for {found.name}; build and run it with:")
    click.echo(f"  cd {directory}")
    for line in commands(found):
        click.echo(f"  {line}")
    if not found.qemu:
        click.echo(f"no emulator here runs {found.name}: load build/firmware.elf with your debugger")
