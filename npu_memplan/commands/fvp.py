"""`npu-memplan fvp`: programs for Arm's FVPs of Corstone, run without one.

Invariant: everything behind the FVP's name is the FVP's own command line, which is not ours to check.
"""

from __future__ import annotations

from pathlib import Path

import click

from ..files.arrays import InputError


@click.command(
    help="Run a program as an FVP of Arm's would: `fvp FVP_Corstone_SSE-300_Ethos-U55 -a PROGRAM.elf ...` takes the "
    "FVP's options; `fvp install DIR` writes programs with the FVPs' names. QEMU runs the CPU, our model the NPU.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("name", metavar="FVP|install")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(name: str, arguments: tuple[str, ...]) -> None:
    from fvp_runner.emulators.fvp_command import install_models, run_model

    if name != "install":
        raise click.exceptions.Exit(run_model(name, arguments))
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise InputError("fvp install takes one folder: npu-memplan fvp install DIR")
    folder = Path(arguments[0])
    paths = install_models(folder)
    click.echo(f"{len(paths)} executables in {folder}; for MLIA: mlia backend install corstone-300 --path {folder}")
