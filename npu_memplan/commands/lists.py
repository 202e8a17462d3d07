"""Commands that list what there is: accelerators, boards, operators.

Invariant: they print what `ethosu.arch`, `targets/accelerators.toml`, the board files and the operators' code say,
nothing else. `operators` of a model ends with exit code 0 when each can be run, 1 when one of them cannot.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import command_line
from ..command_line import FILE
from ..sizes import count_text

if TYPE_CHECKING:
    from ..exactness import Claim
    from ..frontend.tflite.description import Need


@click.command(help="List the NPU configurations: multipliers, what is assumed around each, and boards that have it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def accelerators_command(as_json: bool) -> None:
    rows = _rows()
    if as_json:
        click.echo(json.dumps({"accelerators": rows}))
        return
    from ..process.setup import terminal_console
    from ..report.text.memory_txt import table_of

    table = table_of()
    for heading in ("accelerator", "MACs", "MHz", "memory mode", "compiler", "boards"):
        right = heading in ("MACs", "MHz")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "boards")
    for row in rows:
        backends = ", ".join(row["npu_compilers"])
        table.add_row(row["name"], str(row["macs_per_cycle"]), f"{row['clock_hz'] / 1e6:,.0f}", row["memory_mode"],
                      backends, ", ".join(row["boards"]) or "-")  # fmt: skip
    terminal_console().print(table)
    click.echo("MACs: multipliers, so MACs a cycle. MHz, memory mode: assumed unless --board, --system-config or")
    click.echo("--memory-mode say another. compiler: values of --npu-compiler. none: everything runs on the host.")


def _rows() -> list[dict[str, Any]]:
    from ..ethosu.arch import ACCELERATORS
    from ..ethosu.time import load_system
    from ..target_data import accelerator_system, board_names, load_board

    boards = [load_board(name) for name in board_names()]
    rows = []
    for name, npu in ACCELERATORS.items():
        usual = accelerator_system(name)
        rows.append(
            {
                "name": name,
                "macs_per_cycle": npu.macs,
                "cores": npu.cores,
                "system_config": usual.system_config,
                "memory_mode": usual.memory_mode,
                "clock_hz": load_system(usual.system_config).clock_hz,
                "npu_compilers": ["vela", "tvm"],
                "boards": [board.name for board in boards if name in board.accelerators],
            }
        )
    return rows


@click.command(help="List boards, or say what is known of one, with sources.")
@click.argument("name", required=False, metavar="[NAME|FILE.toml]", shell_complete=command_line.boards)
def boards_command(name: str | None) -> None:
    from ..report.text.lists import board_text, print_boards
    from ..target_data import board_names, load_board

    if name is not None:
        for line in board_text(load_board(name)):
            click.echo(line)
        return
    print_boards([load_board(known) for known in board_names()])


@click.command(help="List the operators that there is code for, by type and reference; or those that MODEL (.tflite) "
               "needs, and what can run each.")  # fmt: skip
@click.argument("model", required=False, type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def operators_command(model: Path | None, as_json: bool) -> None:
    if model is None:
        _print_all(as_json)
        return
    from ..frontend.tflite.description import needs
    from ..models.flatbuffer import read_file
    from ..models.folding import fold_constants
    from ..models.tflite import read_network

    found = needs(read_network(fold_constants(read_file(model), model.name), model.name))
    if as_json:
        click.echo(json.dumps({"model": model.name, "operators": [_document(need) for need in found]}))
    else:
        _print(model.name, found)
    if any(need.runs_on == "nothing" for need in found):
        raise click.exceptions.Exit(1)


def _print_all(as_json: bool) -> None:
    from ..report.text.lists import LEGEND, operator_rows, without_code

    rows = list(operator_rows())
    if as_json:
        names = ("operator", "lifted", "lowered", "host")
        document = {"operators": [dict(zip(names, row, strict=True)) for row in rows], "without_code": without_code()}
        click.echo(json.dumps(document))
        return
    for kind, *cells in rows:
        click.echo(kind)
        for name, cell in zip(("NPU, lifted", "NPU, own", "host"), cells, strict=True):
            if cell:
                click.echo(f"  {name:<12} {cell}")
    click.echo(f"without code: {', '.join(without_code())}")
    click.echo(LEGEND)


POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
POOL_LIMITS = (
    "Of pools with padding, Vela takes strides up to 3 and averages of kernels up to 8 x 8; others stay on the CPU."
)


def _format_claim(known: Claim) -> str:
    return f"{known.exactness.value}{f' ({known.reference})' if known.reference else ''}"


def _document(need: Need) -> dict[str, Any]:
    sides = {"lifted": need.lifted, "lowered": need.lowered, "host": need.host}
    claims = {name: {"exactness": c.exactness.value, "reference": c.reference} for name, c in sides.items()}
    return {"kind": need.kind, "type": need.dtype, "count": need.count, "runs_on": need.runs_on,
            "refused": need.refused, **claims}  # fmt: skip


def _print(name: str, found: tuple[Need, ...]) -> None:
    from ..text_table import align_rows

    rows = [("operator", "type", "count", "who", "results on the host")]
    for need in found:
        results = "-" if need.refused else _format_claim(need.host)
        rows.append((need.kind, need.dtype, str(need.count), need.runs_on, results))
    click.echo(f"{name}: {count_text(sum(need.count for need in found), 'operator')}")
    click.echo("\n".join(align_rows(rows, right={2})))
    for need in found:
        if need.refused:
            click.echo(f"{need.kind} {need.dtype} has no host code: {need.refused}")
    if any(need.kind in POOLS for need in found):
        click.echo(POOL_LIMITS)
    click.echo("Other limits of shapes and strides are Vela's and ours: compile says why an operator is on the CPU.")
