"""`npu-memplan check`: why a Vela-compiled network will not run on a board.

Invariant: every check is made, whatever one before it found. Exit codes: 0 nothing wrong, 1 something is, 2 bad use
or a file that is no network.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..command_line import completion
from ..command_line.values import FILE, PLACE, names
from ..files.arrays import check_unused, read_inputs
from ..models.executorch.segments import is_program
from ..sizes import parse_named_size, parse_size

if TYPE_CHECKING:
    from fvp_runner.vela_check.remark import Remark

    from ..target_data import Board


@click.command(help="Say why a .tflite or .pte of Vela's will not run on a board: accelerator, versions, alignment, "
               "operators to register, regions, arena, memory, hazards; then run it on the NPU model.")  # fmt: skip
@click.argument("network", type=PLACE)
@click.option("--board", required=True, metavar="NAME|FILE.toml", shell_complete=completion.boards, help="The board it "
              "is for.")  # fmt: skip
@click.option("--registered", default="", type=names, metavar="OP,OP", help="Operators that the firmware registers; "
              "default: all that TFLite Micro has.")  # fmt: skip
@click.option("--arena", type=parse_size, metavar="SIZE", help="Bytes of the firmware's arena; KiB, MiB.")
@click.option("--pool", "pools", multiple=True, type=parse_named_size, metavar="NAME=SIZE", help="Bytes of a pool of "
              "the firmware, for a .pte: planned (planned2 for the second buffer), temp, fast.")  # fmt: skip
@click.option("--data", "external", multiple=True, type=FILE, metavar="FILE.ptd", help="External data of a .pte.")
@click.option("--reference", type=FILE, metavar="MODEL.tflite",
              help="The network before Vela: compare outputs, and name the first layer that differs.")  # fmt: skip
@click.option("--input", "inputs", multiple=True, metavar="FILE.npy|random:SEED", help="For the run; default: "
              "random:0.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(
    network: Path,
    board: str,
    registered: tuple[str, ...],
    arena: int | None,
    pools: tuple[tuple[str, int], ...],
    external: tuple[Path, ...],
    reference: Path | None,
    inputs: tuple[str, ...],
    as_json: bool,
) -> None:
    from fvp_runner.vela_check.remark import Level

    from ..models.file import read_file
    from ..target_data import load_board

    data, description = read_file(network), load_board(board)
    if is_program(data):
        check_unused(network.name, "a .pte", {"--arena": arena, "--reference": reference})
        remarks = _program_remarks(network.name, data, description, (registered, dict(pools)), external, inputs)
    else:
        check_unused(network.name, "no .pte", {"--pool": pools, "--data": external})
        remarks = _network_remarks(network.name, data, description, (registered, arena, reference), inputs)
    wrong = sum(remark.level is Level.WRONG for remark in remarks)
    if as_json:
        rows = [remark.to_dict() for remark in remarks]
        click.echo(json.dumps({"network": network.name, "board": description.name, "wrong": wrong, "findings": rows}))
    else:
        verdict = f"{wrong} wrong" if wrong else "nothing wrong was found"
        click.echo(f"{network.name} on {description.name}: {verdict}")
        for remark in remarks:
            click.echo(f"{remark.level.value:5}  {remark.topic:11}  {remark.text}")
    if wrong:
        raise click.exceptions.Exit(1)


def _network_remarks(
    name: str, data: bytes, board: Board, verbosity: tuple[Any, Any, Path | None], inputs: tuple[str, ...]
) -> list[Remark]:
    from fvp_runner.vela_check.check import FirmwareFacts, check_network

    from ..models.file import read_file
    from ..models.tflite import read_network

    parsed = read_network(data, name)
    values = read_inputs(parsed.name, [parsed.tensors[i] for i in parsed.inputs], inputs)
    registered, arena, reference = verbosity
    requested = FirmwareFacts(registered, arena, None if reference is None else read_file(reference))
    return check_network(parsed, data, board, requested, values)


def _program_remarks(
    name: str,
    data: bytes,
    board: Board,
    verbosity: tuple[Any, Any],
    external: tuple[Path, ...],
    inputs: tuple[str, ...],
) -> list[Remark]:
    from fvp_runner.executorch.check import FirmwarePools, check_program

    from ..models.executorch.vela_network import open_program

    program = open_program(name, data, external)
    return check_program(
        program, board, FirmwarePools(*verbosity), lambda what, wanted: read_inputs(what, wanted, inputs)
    )
