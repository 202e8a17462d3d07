"""The clock of time limits: seconds in which a planner could have searched.

Invariant: a limit holds for all searches inside it together, and never longer than one around it. The clock never goes
back, and it stands still inside `pause_clock`, so that what happens once on a machine (building the compiled searches)
takes nothing off a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

seconds: Callable[[], float] = time.monotonic  # benchmarks on busy machines count CPU seconds instead
_paused_s = 0.0
_lock = threading.Lock()
_inside = 0  # blocks, of all threads, in which it stands still
_since = 0.0  # when the first of them began
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def clock_s() -> float:
    """Seconds on this clock; only differences mean anything."""
    with _lock:
        return (_since if _inside else seconds()) - _paused_s


@contextmanager
def limit_searches(limit_s: float | None) -> Iterator[None]:
    """All searches inside together have at most so many seconds (None: what is left of the limit around it)."""
    known = _deadline.get()
    own = None if limit_s is None else clock_s() + limit_s
    before = _deadline.set(own if known is None else known if own is None else min(own, known))
    try:
        yield
    finally:
        _deadline.reset(before)


def left_of(limit_s: float) -> float:
    """Seconds that a search with this limit of its own may take."""
    known = _deadline.get()
    return limit_s if known is None else max(0.0, min(limit_s, known - clock_s()))


def is_over() -> bool:
    """Whether the limit has passed, if there is one."""
    known = _deadline.get()
    return known is not None and clock_s() >= known


@contextmanager
def pause_clock() -> Iterator[None]:
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
