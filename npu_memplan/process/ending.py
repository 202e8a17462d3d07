"""What ends a command from outside: a request to end, and a lack of memory.

Invariant: TVM makes text of what a signal raises, and a callback of C loses it; the flag stays. Whoever catches every
exception asks it (`raise_outside_cause`), and so do what is put in a place (`files`), each phase, and the end of a
command: nothing takes a request to end, or a lack of memory, for a fault.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_NO_MEMORY = (
    "bad_alloc",
    "can't start new thread",
    "annot allocate memory",
    "failed to map segment",
    "thread constructor failed",
    "Resource temporarily unavailable",
)
_requested: list[int] = []  # signals, in their order
_holding: list[object] = []  # what signals wait for


def requested_end() -> int | None:
    """The signal that asked this process to end; None while none did."""
    return _requested[0] if _requested else None


def raise_if_ending() -> None:
    """Raise what a signal raised, where one asked this process to end."""
    number = requested_end()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number is not None:
        raise SystemExit(128 + number)


class HeldSignals:
    """Inside, a signal sets the flag and raises nothing, which the end of the block does then: for what has to be known
    to be cleared away, or done as a whole, before anything is raised.
    """

    def __enter__(self) -> None:
        _holding.append(self)

    def __exit__(self, *_: object) -> None:
        _holding.pop()
        if not _holding:
            raise_if_ending()


def raise_outside_cause(error: BaseException) -> None:
    """Raise the request to end or the `MemoryError` that `error` is, or was made of; return where it is neither."""
    raise_if_ending()
    if lacks_memory(error):
        raise MemoryError(str(error)) from error


def lacks_memory(error: BaseException) -> bool:
    """Whether `error` is a library's way to say that an allocation was refused."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError | ImportError | OSError) and any(t in str(error) for t in _NO_MEMORY)


@contextlib.contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Ctrl-C is KeyboardInterrupt; a request to end is SystemExit with the code a shell would show. Both set the
    flag."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _requested.clear()
    listening = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # nohup means it
    before = {number: signal.signal(number, _end_process) for number in (*listening, signal.SIGINT)}
    hook, sys.unraisablehook = sys.unraisablehook, _tell_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
        _requested.clear()


def _end_process(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # the second one does not wait
    _requested.append(number)
    if number != signal.SIGINT:
        os.write(2, b"terminated\n")
    if not _holding:
        raise_if_ending()


def _tell_unraisable(fault: Any) -> None:
    """Tell it as Python does, but for what a signal raised where nothing can be: the flag has it."""
    if requested_end() is None or not issubclass(fault.exc_type, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(fault)
