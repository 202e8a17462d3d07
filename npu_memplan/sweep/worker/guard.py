"""A case under its limits: in a spawned process that is watched, ended when it takes too much, and replaced.

Invariant: `solve` always returns a result, in the time limit and a little; it may be called wherever an executor likes,
because the guard belongs to the calling thread and not to the executor. TVM is loaded once a process, and a process is
kept from case to case until a limit or a crash ends it, or it keeps half of the memory that a case may take.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from ...process.python_child import python_child
from ..results import Cost, Outcome, Result
from .job import CaseJob, SentFile

_START_S = 300.0  # importing TVM on a busy machine
_LOOK_S = 0.05  # between two looks at the memory
_OUTPUT_CHARACTERS = 400  # of the output of a process that crashed
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

_guards = threading.local()
_running: weakref.WeakSet[Guard] = weakref.WeakSet()


def solve(job: CaseJob, model: SentFile) -> Result:
    """What executors call: the result of `job`, from this thread's process."""
    guard = getattr(_guards, "guard", None)
    if guard is None:
        guard = _guards.guard = Guard()
    return guard.run(job, model)


def end_all(threads: str) -> None:
    """End the processes of all threads whose names start so, and let them have no others; what they compute comes back
    as crashed, for nobody."""
    for guard in list(_running):
        if guard.thread.startswith(threads):
            guard.kill()


class Guard:
    """One process for cases."""

    def __init__(self) -> None:
        self.thread = threading.current_thread().name
        self._process: _Process | None = None
        self._over = False
        _running.add(self)

    def run(self, job: CaseJob, model: SentFile) -> Result:
        """The result of `job`; a process is started if there is none."""
        process = self._process
        if process is not None and process.resident() > job.limits.memory_bytes // 2:
            process.end()
            process = None
        if process is None or process.ended:
            try:
                process = self._process = _Process()
            except (OSError, TimeoutError) as error:
                return Result(job.key, Outcome.NOT_TRIED, f"a worker process does not start: {error}")
        if self._over:  # it was ended while its process was starting
            process.kill()
        result = process.run(job, model)
        if process.ended:
            self._process = None
        return result

    def kill(self) -> None:
        """End the process from another thread; the guard's own clears it away."""
        self._over = True
        if self._process is not None:
            self._process.kill()


class _Process:
    """A running `child`."""

    def __init__(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - ends with the process
        self._link, theirs = multiprocessing.Pipe()
        lifeline, life = os.pipe()
        passed = (theirs.fileno(), lifeline)
        try:
            self._popen = subprocess.Popen(
                python_child(_PROGRAM, *map(str, passed)),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
                start_new_session=True,  # Ctrl-C is the owner's
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
        finally:
            theirs.close()
            os.close(lifeline)
        self.end = weakref.finalize(self, _clear, self._popen, self._link, life, self._output)
        if self._answer(time.monotonic() + _START_S)[0] is None:
            output = self._output_end()
            self.end()
            raise TimeoutError(output or "it says nothing")

    @property
    def ended(self) -> bool:
        return not self.end.alive

    def kill(self) -> None:
        if self._popen.poll() is None:
            kill_family(self._popen.pid)

    def resident(self) -> int:
        return resident_bytes(self._popen.pid)

    def run(self, job: CaseJob, model: SentFile) -> Result:
        limits, start = job.limits, time.monotonic()
        self._output.seek(0)
        self._output.truncate()
        answer, most = None, 0
        with contextlib.suppress(OSError):  # it may be dead already
            self._link.send((job, model))
            answer, most = self._answer(start + limits.seconds, limits.memory_bytes)
        spent = Cost(time.monotonic() - start, memory_bytes=most)
        if isinstance(answer, Result):
            return replace(answer, cost=replace(answer.cost, memory_bytes=most))
        if most > limits.memory_bytes:
            self.end()
            reason = f"took more than the limit of {limits.memory_bytes:,} bytes of memory"
            return Result(job.key, Outcome.OUT_OF_MEMORY, reason, limits.memory_bytes, cost=spent)
        if time.monotonic() >= start + limits.seconds and self._popen.poll() is None:
            self.end()
            reason = f"took longer than the limit of {limits.seconds:g} s"
            return Result(job.key, Outcome.TIMED_OUT, reason, limits.seconds, cost=spent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(10)
        spent = replace(spent, said=self._output_end())
        self.end()
        return Result(job.key, Outcome.CRASHED, f"its process ended {_how(self._popen.returncode)}", cost=spent)

    def _answer(self, deadline: float, memory_bytes: int | None = None) -> tuple[object, int]:
        """The next message, None when there is none in time, and the most bytes seen; stops above `memory_bytes`."""
        most = 0
        while (left := deadline - time.monotonic()) > 0:
            if memory_bytes is not None:
                most = max(most, self.resident())
                if most > memory_bytes:
                    break
            if self._link.poll(min(left, _LOOK_S if memory_bytes else left)):
                with contextlib.suppress(EOFError):
                    return self._link.recv(), most
                break
        return None, most

    def _output_end(self) -> str:
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - _OUTPUT_CHARACTERS))
        return self._output.read().decode("utf-8", "replace").strip()


_PROGRAM = "import sys; from npu_memplan.sweep.worker.child import main; main(*map(int, sys.argv[1:]))"


def _clear(process: subprocess.Popen[bytes], link: Connection, life: int, output: IO[bytes]) -> None:
    kill_family(process.pid)
    process.wait()
    link.close()
    os.close(life)


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


# -- what Linux reports of a process and of all that it started; nothing fails because one has ended meanwhile


def family(process: int) -> Iterator[int]:
    """The process and its descendants, parents first."""
    yield process
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    yield from family(int(child))


def resident_bytes(process: int) -> int:
    """Bytes in memory of the process and its descendants; what two share counts twice."""
    total = 0
    for member in family(process):
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def kill_family(process: int) -> None:
    """End a process that leads a group, its group, and its descendants in groups of their own."""
    members = list(family(process))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    for member in members[1:]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
