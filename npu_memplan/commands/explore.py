"""`npu-memplan explore`: the front of a model over bytes and cycles, as a table, CSV, JSON and a page.

Invariant: the output directory appears complete or not at all; what is printed is what is in the files.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import command_line
from ..cache import program_cache
from ..command_line import GroupedCommand, Verbosity, option_group, show_progress, verbosity
from ..files.folders import staged_directory
from ..options import CompileOptions, options_from
from ..process.incidents import gather_incidents
from ..sizes import count_text, parse_size, percent_text

if TYPE_CHECKING:
    from ..cache import ProgramCache
    from ..stages import Planned
    from ..tuning.pareto import ParetoFront


_target = option_group("Target")


@click.command(cls=GroupedCommand,
               help="Find the fastest program for several memory limits, compared with Vela's two modes.")  # fmt: skip
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), required=True,
              help="Directory for front.html, front.csv and front.json.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a non-empty output directory.")
@_target("--board", default="", metavar="NAME|FILE.toml", shell_complete=command_line.boards, help="As for compile.")
@_target("--accelerator", default="", metavar="NAME", shell_complete=command_line.accelerators, help="As for compile.")
@_target("--system-config", default="", metavar="NAME", help="As for compile.")
@_target("--memory-mode", default="", metavar="NAME", shell_complete=command_line.memory_modes, help="As for compile.")
@click.option("--sizes", metavar="SIZE,SIZE", help="Limits of the pool; default: shares of Vela's own arena.")
@click.option("--run", "run_too", is_flag=True, help="Compile every point into points/ and run it on the host against "
              "the model's reference.")  # fmt: skip
@verbosity
def command(
    model: Path, output: Path, force: bool, board: str, accelerator: str, system_config: str, memory_mode: str,
    sizes: str | None, run_too: bool, verbosity: Verbosity,
) -> None:  # fmt: skip
    """Explore MODEL."""
    from ..report.page.tables import front_page

    target = {"board": board, "accelerator": accelerator, "system_config": system_config, "memory_mode": memory_mode}
    options = options_from(target)
    limits = [parse_size(size) for size in sizes.split(",")] if sizes else ()
    cache = program_cache()
    with staged_directory(output, force) as folder:  # where it cannot be written, nothing is compiled
        with show_progress(f"exploring {model.name}", verbosity) as shown, gather_incidents() as incidents:
            front = _explore_front(model, options, limits, shown.show_part, cache)
        document = front.to_dict()
        sink = io.StringIO()
        rows = csv.DictWriter(sink, list(document["points"][0]), lineterminator="\n")
        rows.writeheader()
        rows.writerows([*document["points"], *document["vela"], *([document["default"]] if front.default else [])])
        (folder / "front.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        (folder / "front.csv").write_text(sink.getvalue(), encoding="utf-8")
        (folder / "front.html").write_text(front_page(front), encoding="utf-8")
        limits = [point.limit_bytes for point in front.points]
        wrong = _run(model, options, folder / "points", limits, front.pool, cache) if run_too else []
    click.echo(_verdict(front))
    default = () if front.default is None else (replace(front.default, backend=f"default: {front.default.backend}"),)
    for point in (*front.points, *front.vela, *default) if verbosity > Verbosity.QUIET else ():
        gap = "" if point.over_port is None else f", NPU {1 + point.over_port:.2f} times its constants' reads"
        gap += f", CPU {percent_text(point.host_cycles, point.cycles)}" if point.host_cycles else ""
        row = f"{point.bytes:>10,} bytes {point.cycles:>12,} cycles  {point.backend}{gap}  {point.flags}"
        click.echo(row.rstrip())
    if not run_too:
        click.echo("results not checked: --run compiles every point and compares it with the model's reference")
    if verbosity > Verbosity.QUIET:
        click.echo(f"written to {output}")
    for line in incidents.lines:
        click.echo(f"npu-memplan: {line}", err=True)
    if wrong:
        places = ", ".join(str(output / "points" / str(limit)) for limit in wrong)
        click.echo(f"npu-memplan: NOT bit-exact, or stopped: {places}", err=True)
        raise click.exceptions.Exit(1)


def _explore_front(
    model: Path,
    options: CompileOptions,
    limits: Sequence[int],
    report_progress: Callable[[str, int, int], None],
    cache: ProgramCache | None,
) -> ParetoFront:
    """The front, from `cache` if it is known there; the programs of its points are kept for later compiles."""
    from ..compiler import model_loader
    from ..pipeline import build
    from ..tuning.pareto import ParetoFront, explore

    def search() -> ParetoFront:
        def keep(planned: Planned) -> None:
            if cache is not None and not incidents.lines:  # what a compile would keep
                cache.keep_program(model, planned.extracted.loaded.request.options, lambda: build(planned))

        with gather_incidents() as incidents:
            return explore(model, options, model_loader(model), limits, report_progress, keep)

    return search() if cache is None else cache.get_front(model, options, limits, ParetoFront, search)


def _verdict(front: ParetoFront) -> str:
    """The first line: the points with the fewest bytes and the fewest cycles."""
    least, fastest = front.points[0], front.points[-1]
    if len(front.points) == 1:
        return f"{front.model}: {least.bytes:,} bytes of {front.pool} in {least.time_text} (estimated); 1 point"
    return (
        f"{front.model}: from {least.bytes:,} bytes of {front.pool} in {least.time_text} to {fastest.bytes:,} bytes "
        f"in {fastest.time_text} (estimated); {count_text(len(front.points), 'point')}"
    )


def _run(
    model: Path, options: CompileOptions, output: Path, limits: list[int], pool: str, cache: ProgramCache | None
) -> list[int]:
    """Every point as an artifact, run bit by bit against the reference; the limits of those that differ."""
    from ..commands.run import command as run
    from ..compiler import compile_model
    from ..options import AUTO

    output.mkdir()
    wrong = []
    for limit in limits:
        folder = output / str(limit)
        compile_model(model, replace(options, npu_compiler=AUTO, pools={pool: limit}), folder, cache=cache)
        if run.main([str(folder), "--on", "local", "--reference", str(model)], standalone_mode=False):
            wrong.append(limit)
    return wrong
