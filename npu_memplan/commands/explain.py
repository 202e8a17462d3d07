"""`npu-memplan explain`: where the peak is, or where one buffer is and why.

Invariant: reads the artifact only; prints text, or the same facts as one JSON object.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..command_line import PLACE
from .report import open_artifact


@click.command(help="Say where the peak is, with the memory map, or where one buffer lies and why.")
@click.argument("directory", metavar="DIRECTORY|MODEL.pte", type=PLACE)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def command(directory: Path, name: str | None, as_json: bool) -> None:
    from ..report.text.explain import explain_name, explain_peak

    artifact = open_artifact(directory)
    answer = explain_peak(artifact, directory) if name is None else explain_name(artifact, name, directory)
    click.echo(json.dumps(answer.to_dict()) if as_json else answer.to_text(), nl=as_json)
    if name is None and not as_json:
        from ..report.text.memory_txt import print_maps

        click.echo()
        print_maps(artifact)
