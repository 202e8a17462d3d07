"""Programs of others: the C compiler, Vela, emulators, reference models, the process of a check.

Invariant: a program that is started here has a process group of its own, limits of time and memory, and its temporary
files in the folder that it is given, which is the caller's to remove. It is dead with its whole group when its `with`
block is left, however it is left, and, on Linux, when this process dies without leaving it.
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
from typing import Any

MEMORY_BYTES = 16 << 30  # of one process, where the machine has as much: no program here comes near it
_PR_SET_PDEATHSIG = 1
_LATER_S = 5  # from the signal that says that CPU time is over to the one that cannot be caught


def start_program(
    command: Sequence[str | Path],
    folder: Path,
    *,
    cpu_s: float | None = None,
    memory_bytes: int = MEMORY_BYTES,
    **streams: Any,
) -> subprocess.Popen[bytes]:
    """`command` with its temporary files in `folder`; `streams` are `Popen`'s. To be ended with `end_program`.

    `cpu_s` is the limit of its CPU time, which a busy machine does not change. `OSError` where it does not start.
    """
    return subprocess.Popen(
        [str(part) for part in command],
        env={**os.environ, "TMPDIR": str(folder)},
        start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the other
        preexec_fn=_preparation(cpu_s, memory_bytes),
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )


def end_program(process: subprocess.Popen[bytes]) -> None:
    """End a program with its group, and close its pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


@contextlib.contextmanager
def program(command: Sequence[str | Path], folder: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`start_program`, ended on leaving."""
    process = start_program(command, folder, **options)
    try:
        yield process
    finally:
        end_program(process)


def run_program(
    command: Sequence[str | Path], folder: Path, timeout_s: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What `command` prints, and its exit code. `subprocess.TimeoutExpired`, `OSError` as of `subprocess.run`."""
    with program(command, folder, **options) as process:
        output, errors = process.communicate(timeout=timeout_s)
    texts = ((text or b"").decode("utf-8", "replace") for text in (output, errors))
    return subprocess.CompletedProcess([str(part) for part in command], process.returncode, *texts)


def _preparation(cpu_s: float | None, memory_bytes: int) -> Callable[[], None] | None:
    """What a new process does to itself before it becomes the program."""
    if sys.platform == "win32":
        return None
    import resource

    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None  # the child of a fork must not import
    limits = [(resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_DATA, *[min(memory_bytes, _machine_bytes())] * 2)]
    if cpu_s is not None:
        limits.append((resource.RLIMIT_CPU, int(cpu_s), int(cpu_s) + _LATER_S))

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for kind, soft, hard in limits:
            with contextlib.suppress(ValueError, OSError):  # the caller's own limit is lower
                resource.setrlimit(kind, (soft, hard))

    return prepare


def _machine_bytes() -> int:
    """Bytes of memory of this machine; where that is not known, more than any has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return sys.maxsize
