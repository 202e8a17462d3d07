"""`npu-memplan evidence`: a fixed set of programs on a runner, as one JSON and one page that can be sent.

Invariant: the output directory appears complete or not at all. Exit codes: 0 all programs are right, 1 one is not,
2 bad use, or a runner that cannot run here.
"""

from __future__ import annotations

from pathlib import Path

import click

from .. import command_line
from ..command_line import FOLDER, PLACE, GroupedCommand, RunnerName, Verbosity, group, names, progress, verbosity
from ..files.folders import check_place, staged_directory

_what, _where = group("Program and runner"), group("Output files")


@click.command(cls=GroupedCommand, help="Run a fixed set of small networks and write a record that you can send: "
               "results, NPU counters beside the estimate, hazards, versions, digests.")  # fmt: skip
@_what("--on", "runner", required=True, type=RunnerName("fvp", "qemu", "unicorn", "local"), help="What runs them.")
@_what("--accelerator", default="ethos-u55-128", show_default=True, metavar="NAME",
       shell_complete=command_line.accelerators, help="The NPU.")  # fmt: skip
@_what("--board", metavar="NAME|FILE.toml", shell_complete=command_line.boards, help="Board of the firmware; default: "
       "the accelerator's.")  # fmt: skip
@_what("--fvp-path", type=PLACE, metavar="PATH", help="Arm's FVP, or the folder it was "
       "installed in; default: FVP_PATH, then PATH.")  # fmt: skip
@_what("--only", default="", type=names, metavar="NAME,NAME", help="These networks alone.")
@_what("--timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, metavar="SECONDS",
       help="Wall time of one program.")  # fmt: skip
@_where("-o", "--output", required=True, type=FOLDER, metavar="DIR", help="Folder for evidence.json and evidence.html.")
@_where("--force", is_flag=True, help="Replace a non-empty output directory.")
@verbosity
@group("Printed output")("--json", "as_json", is_flag=True, help="Print the record instead of text.")
def command(
    runner: str,
    accelerator: str,
    board: str | None,
    fvp_path: Path | None,
    only: tuple[str, ...],
    timeout: float,
    output: Path,
    force: bool,
    verbosity: Verbosity,
    as_json: bool,
) -> None:
    from fvp_runner.base import RunOptions

    from ..evidence.gather import gather
    from ..evidence.record import page, verdict_of

    check_place(output, force)
    options = RunOptions(board=board, timeout_s=timeout, fvp_path=fvp_path)
    with progress("evidence", verbosity) as shown:
        record = gather(runner, accelerator, options, only, shown.part)
    with staged_directory(output, force) as folder:
        (folder / "evidence.json").write_bytes(record.to_json())
        (folder / "evidence.html").write_text(page(record), encoding="utf-8")
    if as_json:
        click.echo(record.to_json(), nl=False)
    else:
        click.echo(record.verdict())
        for run in record.runs if verbosity is not Verbosity.QUIET else ():
            click.echo(f"  {run.network:24} {run.program:13} {verdict_of(run)}")
        if verbosity is not Verbosity.QUIET:
            click.echo(f"written to {output}: send evidence.json and evidence.html")
    if any(run.exact is False for run in record.runs):
        raise click.exceptions.Exit(1)
