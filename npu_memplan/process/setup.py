"""What this process is to its surroundings: its streams, its signals.

Invariant: standard streams that were closed lead nowhere instead of to the next file that is opened, text that their
encoding lacks is written as escapes, and a request to end is an exception, so that everything is cleared away.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from ..names import printable_lines

_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextlib.contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Ctrl-C is KeyboardInterrupt; a request to end is SystemExit with the code a shell would show."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listening = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # nohup means it
    before = {number: signal.signal(number, _end) for number in listening}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # the second one does not wait
    os.write(2, b"terminated\n")
    raise SystemExit(128 + number)


def open_streams() -> None:
    """Open what is closed of stdin, stdout and stderr, and let no character be unprintable."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class _Shown(io.TextIOWrapper):
    """A stream in which a control character does nothing.

    `reader_left`: it is a pipe that nobody reads any more.
    """

    reader_left = False

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self.reader_left = True
            raise

    def write(self, text: str) -> int:
        super().write(printable_lines(text, styled=self.isatty() or "FORCE_COLOR" in os.environ))
        return len(text)


@contextlib.contextmanager
def only_printable() -> Iterator[None]:
    """stdout and stderr show control characters as escapes; on a terminal, colours and the cursor's moves are kept."""
    before = sys.stdout, sys.stderr
    made = [_shown(stream) for stream in before]
    sys.stdout, sys.stderr = made
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in made:
            if isinstance(stream, _Shown):
                with contextlib.suppress(OSError, ValueError):
                    stream.detach()  # which writes what is left


def _shown(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return _Shown(stream.buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering)


def print_nowhere() -> None:
    """What is left in stdout's buffer cannot be written; Python would complain about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
