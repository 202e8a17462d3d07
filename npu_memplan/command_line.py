"""Options that all commands share: groups, completion of names, callbacks that read words, verbosity and progress.

Invariant: every option is shown once by `--help-all`, and those that most users want by `--help`; the heading is part
of the option, headings come in the order of the options, those without one last. A value is read where its option is
declared, so that a command is given what it works with. Progress goes to stderr, and without --verbose only where that
is a terminal, and is gone when the command ends; stdout has results alone. Nothing heavy is imported for completion,
and a name that is not there is no error of it: the option's reader reports it. The shell switches it on by `eval
"$(_NPU_MEMPLAN_COMPLETE=bash_source npu-memplan)"`.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from .errors import NpuMemplanError
from .ethosu.arch import ACCELERATORS
from .names import split_names
from .options import NO_NPU
from .process.incidents import listen_to_phases
from .process.setup import terminal_console
from .target_data import board_names, memory_mode_names

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _complete_names(names: Callable[[], Iterable[str]], files: bool = False) -> Completer:
    """Completes one of `names`, also the last of several with commas between; with `files`, paths where none fits."""

    def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        found = [CompletionItem(before + comma + name) for name in names() if name.startswith(last)]
        return found or ([CompletionItem(incomplete, type="file")] if files else [])

    return complete_name


def _planner_names() -> Iterable[str]:
    from .planners import planner_names

    return ("auto", *planner_names())


accelerators = _complete_names(lambda: (*ACCELERATORS, NO_NPU))
boards = _complete_names(board_names, files=True)
memory_modes = _complete_names(memory_mode_names)
planners = _complete_names(_planner_names)
files = _complete_names(tuple, files=True)


def choices(names: Sequence[str]) -> Completer:
    """Completes one of a few words."""
    return _complete_names(lambda: names)


class _Grouped(click.Option):
    """An option of the section `group` of --help."""

    def __init__(self, *declarations: Any, group: str = "", **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.group = group


def _print_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_ALL = f"{__name__}.all"


class GroupedCommand(click.Command):
    """A command whose --help has the options under their headings; `rare` ones, by their flags, in --help-all alone."""

    def __init__(
        self, *arguments: Any, rare: str = "", removed: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self.removed = removed or {}  # options of earlier versions and of Vela, with what takes their place
        self.rare = frozenset(rare.split())
        if self.rare:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_print_all,
                    help="Show the options for special cases too, and exit.",
                )
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in self.removed:
                raise
            raise click.UsageError(
                f"{error.option_name} is no option: {self.removed[error.option_name]}", ctx
            ) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if self.rare & {*parameter.opts} and not ctx.meta.get(_ALL):
                continue
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "group", ""), []).append(record)
        for heading in sorted(sections, key=lambda name: not name):
            with formatter.section(heading or "Options"):
                formatter.write_dl(sections[heading])


def option_group(heading: str) -> Callable[..., Callable[[Any], Any]]:
    """`click.option` for options of the section `heading`."""

    def add_option(*declarations: str, **settings: Any) -> Callable[[Any], Any]:
        return click.option(*declarations, cls=_Grouped, group=heading, **settings)

    return add_option


class Verbosity(IntEnum):
    """How much is printed in addition to the result."""

    QUIET = 0  # errors, and of the result the verdict alone
    USUAL = 1
    VERBOSE = 2  # every phase with its seconds, in a pipe too


def verbosity(command: Any) -> Any:
    """Adds --verbose and --quiet, which the command gets as `verbosity`; of both, the last counts."""

    def with_verbosity(*, verbose: bool | None, **requested: Any) -> Any:
        verbosity = {None: Verbosity.USUAL, True: Verbosity.VERBOSE, False: Verbosity.QUIET}[verbose]
        try:
            return command(verbosity=verbosity, **requested)
        except NpuMemplanError as error:
            if verbosity is Verbosity.VERBOSE and error.details:
                click.echo(error.details, err=True)
            raise

    text = "Also every phase on stderr, with its seconds; -q: print the verdict alone, show no progress."
    option = option_group("Printed output")("-v/-q", "--verbose/--quiet", "verbose", default=None, help=text)
    return option(functools.update_wrapper(with_verbosity, command))


class Shown:
    """The handle of `show_progress`, to say which part of the work has begun, and how much of it is done."""

    def __init__(self, tell: Callable[[str, int, int], None]) -> None:
        self._tell = tell
        self._part = ""
        self._done = self._of = 0

    def show_part(self, text: str, done: int = 0, of: int = 0) -> None:
        """`text` has begun after `done` of `of` parts; `of` 0: their number is not known."""
        self._part, self._done, self._of = text, done, of
        self._tell(text, done, of)

    def show_phase(self, text: str) -> None:
        self._tell(f"{self._part}: {text}" if self._part else text, self._done, self._of)


@contextmanager
def show_progress(what: str, verbosity: Verbosity = Verbosity.USUAL) -> Iterator[Shown]:
    """Show what `what` is doing, and every phase that is entered inside."""
    if verbosity is Verbosity.VERBOSE:
        with _phase_lines() as shown, listen_to_phases(shown.show_phase):
            yield shown
        return
    console = terminal_console(sys.stderr, highlight=True)
    if verbosity is Verbosity.QUIET:
        yield Shown(lambda *_: None)
        return
    if not console.is_terminal:
        yield Shown(_count_parts(what))
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(what, total=None)

        def tell_phase(text: str, done: int, of: int) -> None:
            counted = f" ({min(done + 1, of)} of {of})" if of else ""
            bars.update(bar, description=f"{what}{counted}: {text}")

        shown = Shown(tell_phase)
        with listen_to_phases(shown.show_phase):
            yield shown


LINE_SECONDS = 10  # between two lines of a pipe


def _count_parts(what: str) -> Callable[[str, int, int], None]:
    """What writes a line on stderr when a part of several begins, and the last line is `LINE_SECONDS` old."""
    due = time.monotonic() + LINE_SECONDS

    def tell_part(text: str, done: int, of: int) -> None:
        nonlocal due
        if of and time.monotonic() >= due:
            click.echo(f"{what} ({min(done + 1, of)} of {of}): {text}", err=True)  # what follows the last is no part
            due = time.monotonic() + LINE_SECONDS

    return tell_part


@contextmanager
def _phase_lines() -> Iterator[Shown]:
    """A line on stderr when a phase ends."""
    began = since = time.monotonic()
    current = ""

    def tell_phase(text: str, done: int, of: int) -> None:
        nonlocal since, current
        now = time.monotonic()
        if current and text != current:
            click.echo(f"{now - since:8.2f} s  {current}", err=True)
            since = now
        current = text

    try:
        yield Shown(tell_phase)
    finally:
        tell_phase("", 0, 0)
        click.echo(f"{time.monotonic() - began:8.2f} s  in all", err=True)


class NumberRange(click.FloatRange):
    """Finite numbers of a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return float(number)


TIME = NumberRange(0, 1_000_000, min_open=True)  # of a program in seconds; timers take no more than 24 days
PLACE = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class RunnerName(click.Choice[str]):
    """One of the runners by name; `host`, the former name of `local`, is taken as well."""

    def __init__(self, *runners: str) -> None:
        super().__init__(runners)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert("local" if value == "host" else value, param, ctx)


def join_lists(_: click.Context, parameter: click.Parameter, texts: Iterable[str]) -> str:
    """Callback of a list of names that may be given more than once: one text with commas between them all."""
    return ",".join(split_names(",".join(texts)))


def by_name(_: click.Context, __: click.Parameter, pairs: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """Callback of an option that is given once a name: the last size of a name counts."""
    return dict(pairs)
