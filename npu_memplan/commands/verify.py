"""`npu-memplan verify`: is this plan right for this problem?

Invariant: exit code 0 means that every constraint was checked and holds, 1 that one is broken,
2 that a file is unusable.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import msgspec

from ..artifact.files import read_plan, read_problem, with_capacities
from ..command_line import PLACE
from ..problem import used_bytes
from ..sizes import format_size
from ..verify import Violation, verify


@click.command("verify")
@click.argument("problem", type=PLACE)
@click.argument("plan", type=PLACE)
@click.option("--capacity", multiple=True, metavar="[POOL=]SIZE", help="Hard size of the first pool, or of a named "
              "one; e.g. 96KiB, sram=96KiB.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the violations as JSON.")
def command(problem: Path, plan: Path, capacity: tuple[str, ...], as_json: bool) -> None:
    """Check PLAN (.csv with a column offset, or .json) against PROBLEM (.csv or .json);
    plan.json of a compiled model is both."""
    given = with_capacities(read_problem(problem), capacity)
    answer = read_plan(plan, given)
    violations = verify(given, answer)
    if as_json:
        click.echo(json.dumps({"valid": not violations, "violations": msgspec.to_builtins(violations)}))
    elif violations:
        _show(violations)
    else:
        heights = used_bytes(given, answer.placements)
        uses = ", ".join(f"{name} {format_size(height)}" for name, height in heights.items())
        click.echo(f"valid: {len(answer.placements)} placements; {uses}")
    if violations:
        sys.exit(1)


def _show(violations: tuple[Violation, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..process.setup import terminal

    table = Table(
        "constraint", "what", title=f"{len(violations)} violated constraint{'s' if len(violations) != 1 else ''}"
    )
    for violation in violations[:50]:
        table.add_row(violation.constraint.value, Text(violation.message))
    console = terminal()
    console.print(table)
    if len(violations) > 50:
        console.print(f"and {len(violations) - 50} more")
