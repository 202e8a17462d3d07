"""The clock of time limits: seconds in which a planner could have searched.

Invariant: it never goes back, and it stands still while `paused`, so that what happens once on a machine (building the
compiled searches) takes nothing off a limit, whoever set it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

seconds: Callable[[], float] = time.monotonic  # benchmarks on busy machines count CPU seconds instead
_paused_s = 0.0
_lock = threading.Lock()
_inside = 0  # blocks, of all threads, in which it stands still
_since = 0.0  # when the first of them began


def now() -> float:
    """Seconds on this clock; only differences mean anything."""
    with _lock:
        return (_since if _inside else seconds()) - _paused_s


@contextmanager
def paused() -> Iterator[None]:
    """The clock stands still inside, for everybody; blocks inside each other, and of several threads, count once."""
    global _paused_s, _inside, _since
    with _lock:
        if not _inside:
            _since = seconds()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _paused_s += seconds() - _since
