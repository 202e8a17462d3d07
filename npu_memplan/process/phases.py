"""What a long command is doing now: the stages say it, a command line may show it.

Invariant: there is no listener unless `listening` is entered, and what is reported changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .ending import raise_if_ending

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("phases", default=None)


def report_phase(phase: str) -> None:
    """Say that `phase` begins, and so that the one before has ended; a process that was asked to end ends here."""
    raise_if_ending()
    listener = _listener.get()
    if listener is not None:
        listener(phase)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Inside, `listener` is called with every phase that this context enters."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
