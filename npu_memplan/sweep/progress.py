"""How far a sweep is, on a terminal.

Invariant: in a pipe nothing is said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .drive import Progress
from .results import Outcome, Result


@contextlib.contextmanager
def shown() -> Iterator[Progress | None]:
    """A progress bar on stderr, where that is a terminal; None elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, markup=False)
    if not console.is_terminal:
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
