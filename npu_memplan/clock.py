"""The clock of time limits: seconds in which a planner could have searched.

Invariant: it never goes back, and it stands still while `paused`, so that what happens once on a machine (building the
compiled searches) takes nothing off a limit, whoever set it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

seconds: Callable[[], float] = time.monotonic  # benchmarks on busy machines count CPU seconds instead
_paused_s = 0.0


def now() -> float:
    """Seconds on this clock; only differences mean anything."""
    return seconds() - _paused_s


@contextmanager
def paused() -> Iterator[None]:
    """The clock stands still inside."""
    global _paused_s
    started = seconds()
    try:
        yield
    finally:
        _paused_s += seconds() - started
