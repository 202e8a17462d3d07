"""The streams of this process, the least that it needs of its machine, and how often it looks for garbage.

Invariant: standard streams that were closed lead nowhere instead of to the next file that is opened, and text that
their encoding lacks is written as escapes. A command begins only where files and memory are enough for libraries that
do not report the lack of them: OpenBLAS waits for threads that it has not got, C++ ends the process.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

from ..errors import NpuMemplanError
from ..names import printable_lines

if TYPE_CHECKING:
    from rich.console import Console


def collect_rarely() -> None:
    """Look for garbage seldom: a command ends soon, and to look at TVM's many objects costs more than that frees."""
    gc.set_threshold(10_000_000, 20, 100)


_LEAST_FILES, _MANY_FILES = 64, 1024  # a compile has up to 20 open, a sweep as many for each core
_LEAST_BYTES = 1 << 30  # of libraries and the stacks of their threads


class LimitError(NpuMemplanError):
    """The limits of this process are too low for any command."""


def check_limits() -> None:
    """`LimitError` where this process may have too few open files or too little memory; it takes all files it may."""

    def limits_of(kind: int) -> list[int]:
        """The limit, and what it can be raised to."""
        return [sys.maxsize if n == resource.RLIM_INFINITY else n for n in resource.getrlimit(kind)]

    files, most_files = limits_of(resource.RLIMIT_NOFILE)
    if most_files < _LEAST_FILES:
        raise LimitError(
            f"this process may have {most_files} open files, and needs {_LEAST_FILES}; give more (`ulimit -n`)"
        )
    if files < min(_MANY_FILES, most_files):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MANY_FILES, most_files), hard))
    memory = min(limits_of(resource.RLIMIT_AS)[0], limits_of(resource.RLIMIT_DATA)[0])
    if memory < _LEAST_BYTES:
        raise LimitError(
            f"this process may have {memory:,} bytes of memory, and needs {_LEAST_BYTES:,}; there is not enough memory "
            "here, give more (`ulimit -v`, `ulimit -d`)"
        )


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
    """A stream in which a control character does nothing: colours and moves of the cursor come from `terminal_console`
    alone.

    `reader_left`: it is a pipe whose reader is gone.
    """

    reader_left = False

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self.reader_left = True
            raise

    def write(self, text: str) -> int:
        super().write(printable_lines(text))
        return len(text)

    def write_styled(self, text: str) -> int:
        """Write text of `terminal_console`: names in it are printable, and control sequences its own."""
        return super().write(text)


class _Styled:
    """The stream of the process to which `terminal_console` writes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return getattr(self._stream, "write_styled", self._stream.write)(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def terminal_console(file: TextIO | None = None, **options: Any) -> Console:
    """`file`, or stdout, for tables and colours: names in them are shown as by `printable_text`, and are no markup."""
    from rich.console import Console
    from rich.segment import Segment

    class Printable(Console):
        def render(self, *args: Any, **named: Any) -> Iterator[Segment]:
            for text, style, control in super().render(*args, **named):
                yield Segment(text if control else printable_lines(text), style, control)

    given = {"highlight": False, "markup": False, **options}
    return Printable(file=cast(TextIO, _Styled(sys.stdout if file is None else file)), **given)


@contextlib.contextmanager
def only_printable() -> Iterator[None]:
    """stdout and stderr show control characters as escapes."""
    before = sys.stdout, sys.stderr
    made = [_printable_stream(stream) for stream in before]
    sys.stdout, sys.stderr = made
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in made:
            if isinstance(stream, _Shown):
                with contextlib.suppress(OSError, ValueError):
                    stream.detach()  # which writes what is left


def _printable_stream(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return _Shown(stream.buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering)


def print_nowhere() -> None:
    """Drop what is left in stdout's buffer and cannot be written; Python would complain about it at its end."""
    with contextlib.suppress(OSError):  # a process may have no file left to open
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
