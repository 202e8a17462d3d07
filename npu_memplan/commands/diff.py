"""`npu-memplan diff`: what changed between two compiled models.

Invariant: exit code 0, also when the plans differ; with --exit-code 1 when they differ, as git diff does.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..command_line import PLACE
from .report import open_artifact


@click.command(help="Compare the plans of two compiled models, or of two ExecuTorch programs (.pte).")
@click.argument("before", type=PLACE)
@click.argument("after", type=PLACE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when the plans differ.")
def command(before: Path, after: Path, as_json: bool, exit_code: bool) -> None:
    from ..report.text.diff import diff

    answer = diff(open_artifact(before), open_artifact(after), (before, after))
    click.echo(json.dumps(answer.to_dict()) if as_json else answer.to_text(), nl=as_json)
    if exit_code and not answer.same:
        raise click.exceptions.Exit(1)
