"""The process that checked runs happen in, from outside.

Invariant: nothing that generated C or a reference does ends this process or reaches its streams; the worker imports
nothing from the working directory; it is dead, with all that it started, when `run` returns.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass

import msgspec

from fvp_runner.checked_run.facts import (
    FACTS,
    FAULT,
    PHASE,
    PROGRAM,
    REFERENCE,
    InputFacts,
    RunFacts,
    RunRequest,
)

from ..errors import InternalError
from ..files.owned_folder import scratch_folder
from ..process.programs import end_program, start_program
from ..process.python_child import python_child

_TIMEOUT_S = 600.0  # no check that is done unasked comes near it

_CODE = "from fvp_runner.checked_run.worker import main; main(int(sys.argv[1]))"


@dataclass(slots=True, eq=False)
class _Worker:
    """A process that waits for its request; `answers` is our end of its pipe."""

    process: subprocess.Popen[bytes]
    answers: int
    closing: contextlib.ExitStack


_started: list[_Worker] = []


def start_worker() -> None:
    """Begin a worker's imports while this process compiles; it only saves time."""
    if not _started:
        with contextlib.suppress(OSError):
            _started.append(_start())


@atexit.register
def _end_started() -> None:
    while _started:
        _end(_started.pop())


def _start() -> _Worker:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder("check"))
        ours, theirs = os.pipe()
        stack.callback(os.close, ours)
        try:
            process = start_program(
                python_child(_CODE, str(theirs), flags=("-S",)),
                folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs,),
            )
        finally:
            os.close(theirs)
        stack.callback(end_program, process)
        return _Worker(process, ours, stack.pop_all())


def _end(worker: _Worker) -> int:
    """End a worker with all that it started; its exit status."""
    code = worker.process.poll()
    worker.closing.close()
    return worker.process.returncode if code is None else code


def run(request: RunRequest) -> RunFacts:
    """What the worker found. A process that ended by itself is the reference's doing, or the program's, by its phase.

    Raises `InternalError` with the trace of a fault of ours.
    """
    try:
        worker = _started.pop() if _started else _start()
    except OSError as error:
        return RunFacts(refused=f"no process could be started: {error.strerror or error}")
    try:
        assert worker.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.write(msgspec.json.encode(request) + b"\n")
            worker.process.stdin.flush()
        messages, in_time = _read_messages(worker)
    finally:
        code = _end(worker)
    return _facts_from(request, messages, in_time, code)


def _read_messages(worker: _Worker) -> tuple[list[dict[str, object]], bool]:
    """The worker's messages until it closed its end, and whether it did in time."""
    text, deadline = bytearray(), time.monotonic() + _TIMEOUT_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([worker.answers], [], [], left)[0]:
            break
        data = os.read(worker.answers, 1 << 16)
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(5)  # its exit status is about to be known
            return _lines(text), True
        text += data
    return _lines(text), False


def _lines(text: bytearray) -> list[dict[str, object]]:
    """Whole lines; of one that was cut off nothing is known."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def _facts_from(request: RunRequest, messages: list[dict[str, object]], in_time: bool, code: int) -> RunFacts:
    last = messages[-1] if messages else {}
    if FAULT in last:
        raise InternalError(str(last[FAULT]))
    facts = msgspec.convert(last[FACTS], RunFacts) if FACTS in last else RunFacts()
    if FACTS in last and PHASE not in last:
        return facts
    phase = last.get(PHASE, "")
    if not in_time:
        return RunFacts(refused=f"it had not ended after {_TIMEOUT_S:g} s")
    ended = f"ended with {_named(code)}"
    if phase == REFERENCE:
        return RunFacts(refused=f"the reference {ended}")
    if phase == PROGRAM:
        stopped = InputFacts(request.inputs[len(facts.runs)], stopped=f"the compiled C {ended}")
        return RunFacts("", facts.reference, facts.reference_version, (*facts.runs, stopped))
    if phase:  # single operators were looked at: without them the facts stand
        return facts
    raise InternalError(f"the process {ended} before it began")


def _named(code: int) -> str:
    """An exit status in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
