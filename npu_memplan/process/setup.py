"""The streams of this process.

Invariant: standard streams that were closed lead nowhere instead of to the next file that is opened, and text that
their encoding lacks is written as escapes.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from ..names import printable_lines


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
