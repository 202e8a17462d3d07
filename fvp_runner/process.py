"""Child processes that never outlive the run, and questions to programs that may not answer.

Invariant: a process started here is dead when its `with` block is left, however it is left, with every process of its
group, and, on Linux, when this process dies without leaving it. A question ends with its time limit, and reads a
bounded number of bytes, whatever the program does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .base import RunnerMissingError

_PR_SET_PDEATHSIG = 1
_OUTPUT_BYTES = 1 << 16  # a version or a path is far shorter
_LOOK_S = 0.02  # between two looks at whether the program has ended


def _die_with_parent() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)  # loaded here: the child of a fork must not import

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare


@contextlib.contextmanager
def child(command: Sequence[str | Path], folder: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start `command` with stdout and stderr piped, in a session of its own; kill it on leaving.

    A session of its own: Ctrl-C reaches this process alone, which then ends the child.
    """
    try:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise RunnerMissingError(f"cannot start {command[0]}: {reason or error}") from None
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """The output of a program: stdout, then stderr. `stopped`: why it had to be stopped, if it had."""

    text: str
    code: int | None = None
    stopped: str = ""

    @property
    def first_line(self) -> str:
        """The first line that it printed, if it ended well; else nothing."""
        return next(iter(self.text.strip().splitlines()), "").strip() if self.code == 0 else ""


def read_output(command: Sequence[str | Path], timeout_s: float = 30.0) -> ProcessOutput:
    """Run a program for its output alone, and stop it with all that it started.

    `RunnerMissingError` when it does not start. What it leaves behind is not waited for, and ended too.
    """
    deadline = time.monotonic() + timeout_s
    with child(command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        pipes = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        opened = set(pipes)

        def text() -> str:
            return b"".join(pipes.values())[:_OUTPUT_BYTES].decode("utf-8", "replace")

        while time.monotonic() < deadline:
            code = process.poll()  # before the pipes: what it wrote before it ended is in them
            ready = select.select(list(opened), [], [], _LOOK_S if code is None else 0)[0]
            for pipe in ready:
                data = os.read(pipe, _OUTPUT_BYTES)
                pipes[pipe] += data
                if not data:
                    opened.remove(pipe)
            if sum(map(len, pipes.values())) > _OUTPUT_BYTES:
                return ProcessOutput(text(), stopped=f"it printed more than {_OUTPUT_BYTES:,} bytes")
            if code is not None and not ready:
                return ProcessOutput(text(), code)
        return ProcessOutput(text(), stopped=f"it had not ended after {timeout_s:g} s")
