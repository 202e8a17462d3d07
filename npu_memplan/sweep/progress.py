"""How far a sweep is, on a terminal.

Invariant: in a pipe nothing is said, unless every case was asked for (--verbose).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from ..command_line.progress import Verbosity
from .drive import Progress
from .results import Outcome, Result


@contextlib.contextmanager
def shown(said: Verbosity = Verbosity.USUAL) -> Iterator[Progress | None]:
    """A progress bar on stderr, where that is a terminal, or a line a case; None where nothing is to be said."""
    if said is Verbosity.VERBOSE:
        yield lambda done, total, newest: click.echo(f"{done} of {total}: {newest.outcome.value}", err=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, markup=False)
    if said is Verbosity.QUIET or not console.is_terminal:
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
