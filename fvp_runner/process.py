"""Child processes that never outlive the run.

Invariant: a process started here is dead when its `with` block is left, however it is left,
and, on Linux, when this process dies without leaving it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .runner import RunnerMissingError

_PR_SET_PDEATHSIG = 1


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
    except OSError as error:
        raise RunnerMissingError(f"cannot start {command[0]}: {error.strerror or error}") from None
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
