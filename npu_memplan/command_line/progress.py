"""How much a command says while it works: --quiet, --verbose, and what a terminal shows meanwhile.

Invariant: progress goes to stderr, and without --verbose only where that is a terminal; what is shown is
gone when the command ends. stdout has results alone.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import click

from ..errors import NpuMemplanError
from ..process.phases import listening
from ..process.setup import terminal
from .groups import group


class Verbosity(IntEnum):
    """How much is printed in addition to the result."""

    QUIET = 0  # errors, and of the result the verdict alone
    USUAL = 1
    VERBOSE = 2  # every phase with its seconds, in a pipe too


def verbosity(command: Any) -> Any:
    """Adds --quiet and --verbose, which the command gets as `verbosity`; both at once are bad use."""

    def with_verbosity(*, quiet: bool, verbose: bool, **requested: Any) -> Any:
        if quiet and verbose:
            raise click.UsageError("--quiet and --verbose contradict each other; leave one of them out")
        verbosity = Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.USUAL
        try:
            return command(verbosity=verbosity, **requested)
        except NpuMemplanError as error:
            if verbosity is Verbosity.VERBOSE and error.details:
                click.echo(error.details, err=True)
            raise

    option = group("Printed output")
    quiet = option("-q", "--quiet", is_flag=True, help="Print the verdict alone, show no progress.")
    verbose = option("-v", "--verbose", is_flag=True, help="Also every phase on stderr, with its seconds.")
    return quiet(verbose(functools.update_wrapper(with_verbosity, command)))


class Shown:
    """What `progress` lends: say which part of the work has begun, and how much of it is done."""

    def __init__(self, tell: Callable[[str, int, int], None]) -> None:
        self._tell = tell
        self._part = ""
        self._done = self._of = 0

    def part(self, text: str, done: int = 0, of: int = 0) -> None:
        """`text` has begun after `done` of `of` parts; `of` 0: their number is not known."""
        self._part, self._done, self._of = text, done, of
        self._tell(text, done, of)

    def phase(self, text: str) -> None:
        self._tell(f"{self._part}: {text}" if self._part else text, self._done, self._of)


@contextmanager
def progress(what: str, verbosity: Verbosity = Verbosity.USUAL) -> Iterator[Shown]:
    """Show what `what` is doing, and every phase that is entered inside."""
    if verbosity is Verbosity.VERBOSE:
        with _lines() as shown, listening(shown.phase):
            yield shown
        return
    console = terminal(sys.stderr, highlight=True)
    if verbosity is Verbosity.QUIET or not console.is_terminal:
        yield Shown(lambda *_: None)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(what, total=None)

        def tell(text: str, done: int, of: int) -> None:
            counted = f" ({done + 1} of {of})" if of else ""
            bars.update(bar, description=f"{what}{counted}: {text}")

        shown = Shown(tell)
        with listening(shown.phase):
            yield shown


@contextmanager
def _lines() -> Iterator[Shown]:
    """A line on stderr when a phase ends."""
    began = since = time.monotonic()
    current = ""

    def tell(text: str, done: int, of: int) -> None:
        nonlocal since, current
        now = time.monotonic()
        if current and text != current:
            click.echo(f"{now - since:8.2f} s  {current}", err=True)
            since = now
        current = text

    try:
        yield Shown(tell)
    finally:
        tell("", 0, 0)
        click.echo(f"{time.monotonic() - began:8.2f} s  in all", err=True)
