"""`npu-memplan boards`: the boards that come with npu_memplan, or all that is known of one.

Invariant: it prints what board files say, nothing else.
"""

from __future__ import annotations

import click

from ... import command_line


@click.command(help="List boards, or say what is known of one, with sources.")
@click.argument("name", required=False, metavar="[NAME|FILE.toml]", shell_complete=command_line.boards)
def command(name: str | None) -> None:
    from ...report.text.lists import board_text, print_boards
    from ...target_data import board_names, load_board

    if name is not None:
        for line in board_text(load_board(name)):
            click.echo(line)
        return
    print_boards([load_board(known) for known in board_names()])
