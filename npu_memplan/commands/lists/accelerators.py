"""`npu-memplan accelerators`: the NPU configurations that programs can be compiled for.

Invariant: it prints what `ethosu.arch`, `targets/accelerators.toml` and the board files say, nothing else.
"""

from __future__ import annotations

import json
from typing import Any

import click


@click.command(help="List the NPU configurations: multipliers, what is assumed around each, and boards that have it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(as_json: bool) -> None:
    rows = _rows()
    if as_json:
        click.echo(json.dumps({"accelerators": rows}))
        return
    from ...process.setup import terminal
    from ...report.text.memory_txt import table_of

    table = table_of()
    for heading in ("accelerator", "MACs", "MHz", "memory mode", "compiler", "boards"):
        right = heading in ("MACs", "MHz")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "boards")
    for row in rows:
        backends = ", ".join(row["npu_compilers"])
        table.add_row(row["name"], str(row["macs_per_cycle"]), f"{row['clock_hz'] / 1e6:,.0f}", row["memory_mode"],
                      backends, ", ".join(row["boards"]) or "-")  # fmt: skip
    terminal().print(table)
    click.echo("MACs: multipliers, so MACs a cycle. MHz, memory mode: assumed unless --board, --system-config or")
    click.echo("--memory-mode say another. compiler: values of --npu-compiler. none: everything runs on the host.")


def _rows() -> list[dict[str, Any]]:
    from ...ethosu.arch import ACCELERATORS
    from ...ethosu.time import load_system
    from ...target_data import accelerator_system, board_names, load_board

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
