"""The process that computes cases, one after the other; a case may crash it, and only it.

Invariant: it ends when whoever started it is gone, with all that it started, whatever it is doing then. What the
compilers print goes to its stderr, which is not the user's.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
import signal
import struct
import threading
import time
from dataclasses import replace
from typing import IO, Any

LENGTH = struct.Struct("<Q")  # before each message
READY = b"ready"
_SPARE_CPU_S = 60


def main(requests: int, results: int, lifeline: int) -> None:
    """Serve the jobs that come on descriptor `requests`; `lifeline` ends when the owner does."""
    threading.Thread(target=_end_with_owner, args=(lifeline,), daemon=True).start()
    gc.set_threshold(200_000, 20, 100)  # as the command line does
    import tvm  # noqa: F401 - now, once, and not in the time of the first case

    from .measure import measure

    with os.fdopen(requests, "rb") as source, os.fdopen(results, "wb") as sink:
        _send(sink, READY)
        while (message := _receive(source)) is not None:
            job, model = pickle.loads(message)
            _limit(job.limits.memory_bytes, job.limits.seconds)
            cpu, start = _cpu_s(), time.monotonic()
            result = measure(job, model)
            cost = replace(result.cost, seconds=time.monotonic() - start, cpu_seconds=_cpu_s() - cpu)
            _send(sink, pickle.dumps(replace(result, cost=cost)))


def _end_with_owner(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing is ever written
    os.killpg(0, signal.SIGKILL)


def _limit(memory_bytes: int, seconds: float) -> None:
    """Backstops, also of what this process starts, for when nobody watches it in time."""
    # What is writable: TVM's code and tables do not count. The owner watches what is really used, and more closely.
    _lower(resource.RLIMIT_DATA, memory_bytes + (memory_bytes >> 2))
    cores = os.cpu_count() or 1
    _lower(resource.RLIMIT_CPU, int(_cpu_s() + cores * seconds) + _SPARE_CPU_S)


def _lower(what: int, soft: int) -> None:
    _, hard = resource.getrlimit(what)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _send(sink: IO[bytes], message: bytes) -> None:
    sink.write(LENGTH.pack(len(message)) + message)
    sink.flush()


def _receive(source: IO[bytes]) -> Any:
    """The next message; None at the end."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = source.read(length)
    return message if len(message) == length else None
