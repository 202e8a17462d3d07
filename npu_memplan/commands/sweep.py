"""`npu-memplan sweep`: many models on many targets; `sweep report`, `sweep merge`.

Invariant: in a pipe nothing is printed but the summary. Exit codes: 0 all have a result, whatever it is; 1 a case that
no worker could try, and for `report --against` a regression; 2 bad use or input.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..command_line import completion
from ..command_line.groups import GroupedCommand, group
from ..command_line.progress import Verbosity, verbosity
from ..command_line.values import FILE, FOLDER, PLACE, RunnerName, names, several
from ..ethosu.arch import ACCELERATORS
from ..options import NO_NPU, CompileOptions
from ..sizes import counted, parse_size
from ..sweep.case import SweepError
from ..target_data import board_names, load_board

if TYPE_CHECKING:
    from ..sweep import Result, Swept
    from ..sweep.drive import Progress
    from ..sweep.table.against import Comparison
    from ..sweep.table.rows import Table


class _WithDefault(click.Group):
    """A group whose sub-command is `run` unless another is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_WithDefault, help="Compile many models for many targets, each once: sweep MODEL... -o DIR [OPTIONS] "
             "(sweep run --help lists them), sweep report DIR, sweep merge.")  # fmt: skip
def command() -> None:
    """Many models on many targets."""


_cases, _where, _limits = group("Models and targets"), group("Workers"), group("Limits")


_RARE = "--import --store --shard --case-time --case-memory"  # options of --help-all alone


@command.command("run", cls=GroupedCommand, rare=_RARE,
                 help="Compile every MODEL for every target. What DIR has is not "
                 "computed again, so a sweep that was ended goes on. The name `run` may be left out.")  # fmt: skip
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", type=PLACE)
@_cases("--accelerator", "accelerators", multiple=True, callback=several, metavar="NAME,NAME|all",
        shell_complete=completion.accelerators, help="Such as u55-128,u65-256,none; may be repeated.")  # fmt: skip
@_cases("--boards", multiple=True, callback=several, metavar="NAME,FILE.toml|all", shell_complete=completion.boards,
        help="Their memories, with their own accelerators or those of --accelerator; may be repeated.")  # fmt: skip
@_cases("--option", "options", multiple=True, metavar="WORDS", help="Options of compile for a target, as "
        "in --option '--optimise Size' --option ''; repeat for more targets.")  # fmt: skip
@_cases("--run", "runner", type=RunnerName("local", "qemu", "unicorn"), help="Run each artifact there and "
        "compare it with its reference.")  # fmt: skip
@_cases("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Random inputs of --run.")
@_cases("--import", "plugins", multiple=True, type=FILE, metavar="FILE.py",
        help="Run this file in each worker first: own planners, own operators.")  # fmt: skip
@_where("-o", "--output", required=True, type=FOLDER, metavar="DIR", help="Folder of the sweep.")
@_where("--store", type=FOLDER, metavar="DIR",
        help="Folder of results that several sweeps share; default: DIR/results.")  # fmt: skip
@_where("--executor", default="processes", show_default=True, metavar="SPEC", help="processes[:N] (default: all "
        "cores), dask://HOST:PORT, slurm[:JOBS,KEY=VALUE,...].")  # fmt: skip
@_where("--shard", metavar="K/N", help="Only part K of N, for CI matrices; see sweep merge.")
@_limits("--case-time", type=click.FloatRange(0, min_open=True), default=300.0, show_default=True,
         metavar="SECONDS", help="Wall time of one case.")  # fmt: skip
@_limits(
    "--case-memory", default="4GiB", type=parse_size, show_default=True, metavar="SIZE", help="Memory of one case."
)
@verbosity
@group("Printed output")("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def run(
    output: Path, executor: str, shard: str | None, store: Path | None, case_time: float, case_memory: int,
    models: tuple[Path, ...], runner: str | None, seeds: int, plugins: tuple[Path, ...], as_json: bool,
    verbosity: Verbosity, **wanted: Any,
) -> None:  # fmt: skip
    from .. import sweep
    from ..sweep.folder import RESULTS, write_request

    part = every = sweep.cases(models, targets(**wanted), sweep.Verification(runner or "", seeds), plugins)
    if shard is not None:
        number, _, parts = shard.partition("/")
        if not (number.isdecimal() and parts.isdecimal()):
            raise SweepError(f"--shard {shard}: give K/N, as in 3/16")
        part = sweep.shard(every, int(number), int(parts))
    limits = sweep.CaseLimits(case_time, case_memory)
    write_request(output, every)
    with shown(verbosity) as progress:
        swept = sweep.run(part, executor, store=store or output / RESULTS, limits=limits, progress=progress)
    if swept.unreadable:
        click.echo(f"npu-memplan: {swept.unreadable}", err=True)
    text = json.dumps(_summary(swept)) if as_json else _text(swept, output)
    click.echo(text.partition("\n")[0] if verbosity is Verbosity.QUIET else text)
    if swept.missing:
        raise click.exceptions.Exit(1)


def targets(accelerators: str, boards: str, options: Sequence[str]) -> list[CompileOptions]:
    """The options of every target: every board or accelerator with every set of further options. `accelerators` and
    `boards`: names with commas between them, or "all"; `options`: arguments of `compile`, one text a set. No option is
    a sweep's own, so that what `compile` learns, sweeps can do."""
    from .compile import parse_options

    npus = accelerator_names(accelerators)
    if boards:
        on = board_names() if boards == "all" else names(boards)
        found = {board: _on_board(board, npus) for board in on}
        left_out = [board for board, arguments in found.items() if not arguments]
        if left_out and (boards != "all" or len(left_out) == len(on)):
            has = "; ".join(f"{board} has {', '.join(load_board(board).accelerators)}" for board in left_out)
            raise SweepError(
                f"--boards {','.join(left_out)} cannot have --accelerator {','.join(npus)}: {has}; leave them out, add "
                "one of theirs to --accelerator, or give --boards all for those that have one"
            )
        first = [arguments for each in found.values() for arguments in each]
    else:
        first = [("--accelerator", name) for name in npus] or [()]
    sets = [tuple(shlex.split(text)) for text in options or [""]]
    return [parse_options((*arguments, *more)) for arguments, more in itertools.product(first, sets)]


def accelerator_names(text: str) -> list[str]:
    """`u55-128,none` or `all`: full names; what is unknown is left for `compile` to refuse."""
    if text == "all":
        return list(ACCELERATORS)
    return [name if name == NO_NPU or name.startswith("ethos-") else f"ethos-{name}" for name in names(text.lower())]


def _on_board(board: str, accelerators: Sequence[str]) -> list[tuple[str, ...]]:
    """The command lines of a board: with its own accelerator, or with each of `accelerators` that it can have."""
    known = load_board(board).accelerators
    chosen = [("--accelerator", name) for name in accelerators if name in known]
    return [("--board", board, *arguments) for arguments in (chosen if accelerators else [()])]


def _summary(swept: Swept) -> dict[str, Any]:
    results = swept.results.values()
    from ..sweep import Outcome

    return {
        "cases": len(swept.cases),
        "results": len(results),
        "computed": swept.computed,
        "outcomes": dict(Counter(result.outcome.value for result in results)),
        "faults": sum(result.faulty for result in results),
        "not_run": sum(r.outcome is Outcome.FITS and r.runs is None for r in results),
        "not_exact": sum(r.runs is not None and (r.runs.exact < r.runs.seeds or bool(r.runs.stopped)) for r in results),
    }


_NOT_RUN = "results of {:,} are claims, not checked: --run local compares them with their references"
_SHOWN, _CHEAPEST, _TABLE = 20, 5, 40  # of the cases that failed, of the targets that fit all, of the rows


def _text(swept: Swept, output: Path) -> str:
    from ..sweep import Outcome
    from ..sweep.table.rows import CaseLabel, table_of

    facts = _summary(swept)
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(facts["outcomes"].items()))
    lines = [f"{counted(facts['cases'], 'case')}: {counts or 'none'}; {facts['computed']:,} computed now"]
    if facts["not_exact"]:
        lines.append(f"{facts['not_exact']:,} NOT exact against their reference")
    if facts["not_run"]:
        lines.append(_NOT_RUN.format(facts["not_run"]))
    if facts["faults"]:
        lines.append(f"{facts['faults']:,} with an internal fault")
    quiet = (Outcome.FITS, Outcome.NO_ROOM)
    found = swept.results
    failed = [c for c in swept.cases if found[c.key].outcome not in quiet or found[c.key].incidents]
    for case in failed[:_SHOWN]:
        result = found[case.key]
        reason = "; ".join((*result.reason.splitlines()[:1], *result.incidents))
        lines.append(f"  {case.network} on {case.target}: {result.outcome.value}: {reason}")
    if len(failed) > _SHOWN:
        lines.append(f"  and {len(failed) - _SHOWN:,} more")
    lines += _rows(table_of([CaseLabel.of(case) for case in swept.cases], found, {}))
    return "\n".join([*lines, f"as pages, CSV and JSON: npu-memplan sweep report {output}"])


def _rows(table: Table) -> list[str]:
    """The table as text: a line a network and target that fits, or nearly."""
    from ..sweep import Outcome
    from ..text_table import align

    rows: list[tuple[str, ...]] = [("network", "target", "SRAM", "flash", "NPU ms", "host calls", "results")]
    shown = [row for row in table.rows if row.result.outcome in (Outcome.FITS, Outcome.NO_ROOM)]
    for row in shown[:_TABLE]:
        figures = (row.sram_bytes, row.flash_bytes, row.milliseconds, row.result.host_operations if row.fits else None)
        texts = ["-" if f is None else f"{f:.3f}" if isinstance(f, float) else f"{f:,}" for f in figures]
        results = row.exactness if row.fits else row.result.outcome.value
        rows.append((row.label.network, row.label.target, *texts, results))
    if not shown:
        return []
    more = [f"  and {len(shown) - _TABLE:,} more"] if len(shown) > _TABLE else []
    return [*align(rows, right={2, 3, 4, 5}), *more]


@command.command("report", help="Write sweep.html, sweep_table.json and sweep_table.csv of the sweep in DIR.")
@click.argument("directory", metavar="DIR", type=FOLDER)
@click.option("-o", "--output", type=FOLDER, metavar="DIR", help="Where to; default: DIR.")
@click.option("--against", type=FOLDER, metavar="OLD",
              help="An earlier sweep: changes; exit code 1 where bytes, cycles or exactness are worse.")  # fmt: skip
@click.option("--deadline", type=click.FloatRange(0, min_open=True), metavar="MS",
              help="Name the cheapest target that fits all networks at MS estimated milliseconds.")  # fmt: skip
@click.option("--store", type=FOLDER, metavar="DIR", help="As for the sweep.")
@click.option("--parquet", is_flag=True, help="Also sweep_table.parquet (needs pyarrow).")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON instead of text.")
def report(
    directory: Path,
    output: Path | None,
    against: Path | None,
    deadline: float | None,
    store: Path | None,
    parquet: bool,
    as_json: bool,
) -> None:
    from ..files.whole_file import write_whole
    from ..sweep.folder import read_table
    from ..sweep.table.against import compare
    from ..sweep.table.export import csv_of, json_of, parquet_of
    from ..sweep.table.page import html_page

    table = read_table(directory, store)
    if table.unreadable:
        click.echo(f"npu-memplan: {table.unreadable}", err=True)
    changes = None if against is None else compare(read_table(against, None), table)
    target = output or directory
    document = json_of(table, changes, deadline)
    files = {
        "sweep.html": html_page(table, changes, deadline).encode(),
        "sweep_table.json": document.encode(),
        "sweep_table.csv": csv_of(table).encode(),
        **({"sweep_table.parquet": parquet_of(table)} if parquet else {}),
    }
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SweepError(f"cannot make {target}: {error.strerror}; choose another folder with -o") from None
    written = [write_whole(target / name, content) for name, content in files.items()]
    if as_json:
        click.echo(document, nl=False)
    else:
        click.echo("\n".join([report_text(table, changes, deadline), *(f"written: {path}" for path in written)]))
    if changes is not None and changes.regressions:
        raise click.exceptions.Exit(1)


@command.command("merge", help="One sweep of the parts that --shard made.")
@click.argument("parts", nargs=-1, required=True, metavar="DIR...", type=FOLDER)
@click.option("-o", "--output", required=True, type=FOLDER, metavar="DIR")
def merge(parts: tuple[Path, ...], output: Path) -> None:
    from ..sweep.folder import merge as merged
    from ..sweep.folder import read_table

    found = merged(parts, output)
    cases = {row.label.key for row in read_table(output).rows}
    click.echo(f"{found:,} of {len(cases):,} results in {output}")
    if found < len(cases):
        raise click.exceptions.Exit(1)


@contextlib.contextmanager
def shown(verbosity: Verbosity = Verbosity.USUAL) -> Iterator[Progress | None]:
    """A progress bar on stderr, where that is a terminal, or a line a case; None where nothing is to be printed."""
    from ..sweep import Outcome

    if verbosity is Verbosity.VERBOSE:
        yield lambda done, total, newest: click.echo(f"{done} of {total}: {newest.outcome.value}", err=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, markup=False)
    if verbosity is Verbosity.QUIET or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("sweep", total=None)
        failed = 0

        def say(done: int, total: int, newest: Result) -> None:
            nonlocal failed
            failed += newest.outcome not in (Outcome.FITS, Outcome.NO_ROOM)
            text = f"sweep, {failed} failed" if failed else "sweep"
            bars.update(bar, completed=done, total=total, description=text)

        yield say


def report_text(table: Table, changes: Comparison | None, deadline_ms: float | None) -> str:
    """What `sweep report` prints: counts, the cheapest targets for all networks, differences."""
    counts = Counter(row.result.outcome.value for row in table.rows)
    ends = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counts.items()))
    lines = [f"{counted(len(table.networks), 'network')} on {counted(len(table.targets), 'target')}: {ends}"]
    wrong = sum(row.exact is False for row in table.rows)
    if wrong:
        lines.append(f"{wrong:,} NOT exact against their reference")
    if table.not_run:
        lines.append(_NOT_RUN.format(table.not_run))
    faults = sum(row.result.faulty for row in table.rows)
    if faults:
        lines.append(f"{faults:,} with an internal fault")
    lines += [*_rows(table), *_cheapest(table, deadline_ms)]
    if changes is not None:
        lines.append(changes.to_text())
    return "\n".join(lines)


def _cheapest(table: Table, deadline_ms: float | None) -> list[str]:
    from ..sweep.table.rows import cheapest
    from ..text_table import align

    within = "" if deadline_ms is None else f" at {deadline_ms:g} ms"
    found = cheapest(table, deadline_ms)
    if not found:
        return [f"no target fits all networks{within}"]
    rows = [("SRAM", "flash of all", "slowest, ms", "host calls", "target")]
    for c in found[:_CHEAPEST]:
        time = "unknown" if c.milliseconds is None else f"{c.milliseconds:.3f}"
        sizes = (f"{c.sram_bytes:,}", f"{c.flash_bytes:,}", time, f"{c.host_operations:,}")
        rows.append((*sizes, c.target))
    more = f", {len(found) - _CHEAPEST:,} more" if len(found) > _CHEAPEST else ""
    head = f"the cheapest targets that fit all networks{within} (the NPU's time, estimated){more}:"
    return [head, *("  " + row for row in align(rows, right={0, 1, 2, 3}))]
