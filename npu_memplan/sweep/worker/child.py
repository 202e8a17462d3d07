"""The process that computes cases, one after the other; a case may crash it, and only it.

Invariant: it ends when its parent is gone, with all that it started, whatever it is doing then. What the
compilers print goes to its stderr, which is not the user's.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection

READY = "ready"
_SPARE_CPU_S = 60


def main(link: int, lifeline: int) -> None:
    """Serve the jobs that come by the connection on descriptor `link`; `lifeline` ends when the owner does."""
    threading.Thread(target=_end_with_owner, args=(lifeline,), daemon=True).start()
    gc.set_threshold(200_000, 20, 100)  # a command line ends sooner
    import tvm  # noqa: F401 - now, once, and not in the time of the first case

    from .measure import measure

    with Connection(link) as owner, contextlib.suppress(EOFError):
        owner.send(READY)
        while True:
            job, model = owner.recv()
            _limit(job.limits.memory_bytes, job.limits.seconds)
            cpu, start = _cpu_s(), time.monotonic()
            result = measure(job, model)
            cost = replace(result.cost, seconds=time.monotonic() - start, cpu_seconds=_cpu_s() - cpu)
            owner.send(replace(result, cost=cost))


def _end_with_owner(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing is ever written
    os.killpg(0, signal.SIGKILL)


def _limit(memory_bytes: int, seconds: float) -> None:
    """Backstops, also of what this process starts, for when it is not stopped in time."""
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
