"""`npu-memplan sweep`: many models on many targets, one table.

Invariant: on stdout nothing is printed but the summary. Exit codes: 0 all have a result, whatever it is; 1 a case that
no worker could try; 2 bad use or input.
"""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import command_line
from ..command_line import (
    FILE,
    FOLDER,
    PLACE,
    TIME,
    GroupedCommand,
    RunnerName,
    Verbosity,
    join_lists,
    option_group,
    show_progress,
    verbosity,
)
from ..ethosu.arch import ACCELERATORS
from ..names import split_names
from ..options import NO_NPU, CompileOptions
from ..sizes import count_text, parse_size
from ..sweep.case import SweepError
from ..target_data import board_names, load_board

if TYPE_CHECKING:
    from ..sweep import Swept
    from ..sweep.table import Table

_cases, _where, _limits = option_group("Models and targets"), option_group("Output and workers"), option_group("Limits")

_RARE = "--import --store --case-time --case-memory"  # options of --help-all alone


@click.command(cls=GroupedCommand, rare=_RARE,
               help="Compile every MODEL for every target, each once, and write sweep.html, sweep_table.json and "
               "sweep_table.csv. What DIR has is not computed again, so a sweep that was ended goes on.")  # fmt: skip
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", type=PLACE)
@_cases("--accelerator", "accelerators", multiple=True, callback=join_lists, metavar="NAME,NAME|all",
        shell_complete=command_line.accelerators, help="Such as u55-128,u65-256,none; may be repeated.")  # fmt: skip
@_cases("--boards", multiple=True, callback=join_lists, metavar="NAME,FILE.toml|all",
        shell_complete=command_line.boards,
        help="Their memories, with their own accelerators or those of --accelerator; may be repeated.")  # fmt: skip
@_cases("--option", "options", multiple=True, metavar="WORDS", help="Options of compile for a target, as "
        "in --option '--npu-compiler vela,Size' --option ''; repeat for more targets.")  # fmt: skip
@_cases("--run", "runner", type=RunnerName("local", "qemu", "unicorn"), help="Run each artifact there and "
        "compare it with its reference.")  # fmt: skip
@_cases("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Random inputs of --run.")
@_cases("--import", "plugins", multiple=True, type=FILE, metavar="FILE.py",
        help="Run this file before each case: own planners, own operators.")  # fmt: skip
@_where("-o", "--output", required=True, type=FOLDER, metavar="DIR", help="Folder of the sweep.")
@_where("--jobs", type=click.IntRange(1, 1000), metavar="N", help="Cases at a time; default: one for each core.")
@_where("--store", type=PLACE, metavar="FILE",
        help="File of results that several sweeps share; default: DIR/results.jsonl.")  # fmt: skip
@_limits("--case-time", type=TIME, default=300.0, show_default=True,
         metavar="SECONDS", help="Wall time of one case.")  # fmt: skip
@_limits(
    "--case-memory", default="4GiB", type=parse_size, show_default=True, metavar="SIZE", help="Memory of one case."
)
@verbosity
@option_group("Printed output")("--json", "as_json", is_flag=True, help="Print the JSON instead of text.")
def command(
    output: Path, jobs: int | None, store: Path | None, case_time: float, case_memory: int,
    models: tuple[Path, ...], runner: str | None, seeds: int, plugins: tuple[Path, ...],
    as_json: bool, verbosity: Verbosity, **wanted: Any,
) -> None:  # fmt: skip
    """Sweep MODELS."""
    from .. import sweep
    from ..files.paths import check_names, write_inside
    from ..sweep.table import csv_of, html_page, json_of

    every = sweep.cases(models, targets(**wanted), sweep.Verification(runner or "", seeds), plugins)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SweepError(f"cannot make {output}: {error.strerror}; choose another folder with -o") from None
    check_names(output, ("results.jsonl", "sweep.html", "sweep_table.json", "sweep_table.csv"))
    limits = sweep.CaseLimits(case_time, case_memory)
    with sweep.local_executor(jobs) as executor, show_progress("sweep", verbosity) as shown:
        place = store or output / "results.jsonl"
        swept = sweep.run(every, executor, store=place, limits=limits, progress=shown.show_part)
    table = swept.table()
    document = json_of(table)
    files = {
        "sweep.html": html_page(table).encode(),
        "sweep_table.json": document.encode(),
        "sweep_table.csv": csv_of(table).encode(),
    }
    written = [write_inside(output, name, content) for name, content in files.items()]
    text = "\n".join([report_text(swept, table), *(f"written: {path}" for path in written)])
    if as_json:
        click.echo(document, nl=False)
    else:
        click.echo(text.partition("\n")[0] if verbosity is Verbosity.QUIET else text)
    if swept.missing:
        raise click.exceptions.Exit(1)


def targets(accelerators: str, boards: str, options: Sequence[str]) -> list[CompileOptions]:
    """The options of every target: every board or accelerator with every set of further options. `accelerators` and
    `boards`: names with commas between them, or "all"; `options`: arguments of `compile`, one text a set. A sweep has
    no options of its own here, so it takes every option of `compile`.
    """
    from .compile import parse_options

    npus = accelerator_names(accelerators)
    if boards:
        on = board_names() if boards == "all" else split_names(boards)
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
    return [
        name if name == NO_NPU or name.startswith("ethos-") else f"ethos-{name}" for name in split_names(text.lower())
    ]


def _on_board(board: str, accelerators: Sequence[str]) -> list[tuple[str, ...]]:
    """The command lines of a board: with its own accelerator, or with each of `accelerators` that it can have."""
    known = load_board(board).accelerators
    chosen = [("--accelerator", name) for name in accelerators if name in known]
    return [("--board", board, *arguments) for arguments in (chosen if accelerators else [()])]


_NOT_RUN = "results of {:,} are claims, not checked: --run local compares them with their references"
_SHOWN, _TABLE = 20, 40  # of the cases that failed, of the rows


def report_text(swept: Swept, table: Table) -> str:
    """The text to print: counts, failures, the table."""
    from ..sweep import Outcome

    counts = Counter(row.result.outcome.value for row in table.rows)
    ends = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counts.items()))
    lines = [f"{count_text(len(table.rows), 'case')}: {ends or 'none'}; {swept.computed:,} computed now"]
    wrong = sum(row.exact is False for row in table.rows)
    if wrong:
        lines.append(f"{wrong:,} NOT exact against their reference")
    if table.not_run:
        lines.append(_NOT_RUN.format(table.not_run))
    faults = sum(row.result.faulty for row in table.rows)
    if faults:
        lines.append(f"{faults:,} with an internal fault")
    quiet = (Outcome.FITS, Outcome.NO_ROOM)
    failed = [row for row in table.rows if row.result.outcome not in quiet or row.result.incidents]
    for row in failed[:_SHOWN]:
        reason = "; ".join((*row.result.reason.splitlines()[:1], *row.result.incidents))
        lines.append(f"  {row.label.network} on {row.label.target}: {row.result.outcome.value}: {reason}")
    if len(failed) > _SHOWN:
        lines.append(f"  and {len(failed) - _SHOWN:,} more")
    return "\n".join([*lines, *_rows(table)])


def _rows(table: Table) -> list[str]:
    """The table as text: a line a network and target that fits, or nearly."""
    from ..sweep import Outcome
    from ..text_table import align_rows

    rows: list[tuple[str, ...]] = [("network", "target", "SRAM", "flash", "ms", "host calls", "results")]
    shown = [row for row in table.rows if row.result.outcome in (Outcome.FITS, Outcome.NO_ROOM)]
    for row in shown[:_TABLE]:
        figures = (row.sram_bytes, row.flash_bytes, row.result.host_operations if row.fits else None)
        texts = ["-" if figure is None else f"{figure:,}" for figure in figures]
        texts.insert(2, row.range_text)
        results = row.exactness if row.fits else row.result.outcome.value
        rows.append((row.label.network, row.label.target, *texts, results))
    if not shown:
        return []
    more = [f"  and {len(shown) - _TABLE:,} more"] if len(shown) > _TABLE else []
    return [*align_rows(rows, right={2, 3, 4, 5}), *more]
