"""The causes that end a command from outside: a request to end, and a lack of memory.

Invariant: a signal that asks to end raises nothing: TVM makes text of what is raised in its callbacks, C++ loses it or
aborts. Its handler undoes what was begun (`undo_at_end`), the newest first, and ends the process there and then, so no
code of a command goes on after it. While a thread holds signals (`HeldSignals`), the end waits for it; whatever another
thread begins meanwhile is never begun. Nothing takes a lack of memory for a fault.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import NoReturn

_ENDING: dict[int, bytes] = {signal.SIGTERM: b"terminated\n", signal.SIGHUP: b"terminated\n"}
_ENDING[signal.SIGINT] = b"interrupted\n"
_SHOW_CURSOR = b"\r\x1b[K\x1b[?25h"  # after a progress bar, which has hidden it
_NO_MEMORY = (
    "bad_alloc",
    "MemoryError",
    "cannot map zero-fill pages",
    "Fatal Python error",  # of a process that is started
    "can't start new thread",
    "annot allocate memory",
    "failed to map segment",
    "thread constructor failed",
    "Resource temporarily unavailable",
)
_FULL = (errno.ENOSPC, errno.EDQUOT)  # a disk
_NO_ROOM = (*_FULL, errno.EFBIG, errno.EMFILE, errno.ENFILE)
_requested: list[int] = []  # signals, in their order
_holding: list[object] = []  # what the end waits for
_begun: dict[Hashable, Callable[[], object]] = {}  # what it undoes
_ending: list[int] = []  # the thread that ends the process
_guard = threading.RLock()  # of the lists: a handler may come while its own thread has it


class HeldSignals:
    """Inside, the end waits for the end of the block: for what has to be done as a whole, or known to be undone."""

    def __enter__(self) -> None:
        with _guard:
            ends_elsewhere = _ending and _ending[0] != threading.get_ident()
            if not ends_elsewhere:
                _holding.append(self)
        if ends_elsewhere:
            _wait_for_end()

    def __exit__(self, *_: object) -> None:
        with _guard:
            _holding.remove(self)
        if _requested:
            _end_process()


def undo_at_end(key: Hashable, undo: Callable[[], object]) -> None:
    """Call `undo` where a signal ends this process before `forget_undo(key)`. It may run between any two instructions
    of Python, so it takes no lock that the rest of the process takes."""
    with HeldSignals():
        _begun[key] = undo


def forget_undo(key: Hashable) -> None:
    """What `undo_at_end` was told of has ended."""
    with HeldSignals():
        _begun.pop(key, None)


def raise_lack_of_memory(error: BaseException) -> None:
    """Raise the `MemoryError` that `error` is, or was made of; return where it is none."""
    if lacks_memory(error):
        raise MemoryError(str(error)) from error


def lacks_memory(error: BaseException) -> bool:
    """Whether `error` is a library's way to say that an allocation was refused."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError | ImportError | OSError) and any(t in str(error) for t in _NO_MEMORY)


def lacks_room(error: BaseException) -> bool:
    """Whether `error` says that this machine refused memory, bytes of a disk or a file to open."""
    return lacks_memory(error) or (isinstance(error, OSError) and error.errno in _NO_ROOM)


def is_disk_full(error: OSError) -> bool:
    """Whether a disk, or the part of it that a user has, is full."""
    return error.errno in _FULL


@contextlib.contextmanager
def end_on_signals() -> Iterator[None]:
    """Inside, Ctrl-C and requests to end undo what was begun, and end this process with the code a shell would show."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = os.getpid()

    def handle(number: int, frame: object) -> None:
        if os.getpid() != ours:  # a fork, which has begun nothing
            os._exit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # the second one does not wait
        _requested.append(number)
        if len(_requested) == 1:
            os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + _ENDING[number])
            _end_process()

    ignored = {number for number in _ENDING if signal.getsignal(number) is signal.SIG_IGN}  # nohup means it
    listening = [number for number in _ENDING if number == signal.SIGINT or number not in ignored]
    before = {number: signal.signal(number, handle) for number in listening}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_process() -> None:
    """End this process, unless a thread holds signals, which ends it then, or does already."""
    with _guard:
        if _holding or _ending:
            return
        _ending.append(threading.get_ident())
    try:
        for undo in reversed(list(_begun.values())):
            with contextlib.suppress(OSError):
                undo()
        with contextlib.suppress(RuntimeError):  # the signal came while it was written to
            sys.stdout.flush()
    finally:
        os._exit(128 + _requested[0])


def _wait_for_end() -> NoReturn:
    while True:
        time.sleep(1)
