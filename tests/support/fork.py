"""A piece of work in a fork of this process, which has imported everything, under a limit of wall time.

Invariant: nothing that the work does ends this process; when `run_in_fork` returns, the fork and all that it started in
its process group are dead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CRASHED = 70  # exit code of work that raised


@dataclass(frozen=True, slots=True)
class ForkResult:
    """How a fork ended; a negative `code` is a signal."""

    code: int
    timed_out: bool
    memory_bytes: int  # at its peak
    text: str  # of stdout and stderr


def run_in_fork(
    work: Callable[[], int], printed: Path, limit_s: float, meanwhile: Callable[[int], None] = lambda _: None
) -> ForkResult:
    """Run `work`, which returns the exit code; what it prints goes to the file `printed`.

    `meanwhile` is called with the process.
    """
    child = os.fork()
    if child == 0:
        code = CRASHED
        try:
            os.setpgid(0, 0)
            sink = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    meanwhile(child)
    end = time.monotonic() + limit_s
    while True:
        found, status, usage = os.wait4(child, os.WNOHANG)
        if found or time.monotonic() > end:
            break
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and whatever it started, such as Vela
    if not found:
        _, status, usage = os.wait4(child, 0)
    text = printed.read_text(encoding="utf-8", errors="replace") if printed.exists() else ""
    return ForkResult(os.waitstatus_to_exitcode(status), not found, usage.ru_maxrss * 1024, text)
