"""`npu-memplan new-firmware`: a firmware project for a board, for those who have the wheel alone.

Invariant: the folder appears complete or not at all; what is in it builds without this package.
"""

from __future__ import annotations

from pathlib import Path

import click

from .. import command_line
from ..command_line import PLACE


@click.command(help="Write a firmware project for a board into DIR: CMake, linker script, driver, main.c and a "
               "compiled model.")  # fmt: skip
@click.argument("directory", metavar="DIR", type=PLACE)
@click.option("--board", required=True, metavar="NAME|FILE.toml", shell_complete=command_line.boards, help="The board "
              "it is for.")  # fmt: skip
@click.option("--model", type=PLACE, metavar="FILE|DIR", help="The model to compile into it, or the directory of a "
              "compiled model of this board; default: a small network that comes with npu-memplan.")  # fmt: skip
@click.option("--cmsis-pack", is_flag=True, help="Describe the project as a CMSIS-Pack too.")
def command(directory: Path, board: str, model: Path | None, cmsis_pack: bool) -> None:
    from fvp_runner.firmware_build.build import runnable_board
    from fvp_runner.firmware_build.project import build_commands, write_project

    from ..api import compile
    from ..artifact import Artifact
    from ..evidence.gather import networks
    from ..files.folders import PROJECT, staged_directory
    from ..files.paths import copy_folder

    found = runnable_board(board)
    source = model or next(networks(["digits"])).path
    with staged_directory(directory, kind=PROJECT) as folder:
        if source.is_dir():
            Artifact.load(source)
            copy_folder(source, folder / "model")
        else:
            compile(source, folder / "model", board=board)
        artifact = write_project(folder, found, cmsis_pack)
    click.echo(f"{directory}: firmware of {artifact.name} for {found.name}; build and run it with:")
    click.echo(f"  cd {directory}")
    for line in build_commands(found):
        click.echo(f"  {line}")
    if not found.qemu:
        click.echo(f"no emulator here runs {found.name}: load build/firmware.elf with your debugger")
