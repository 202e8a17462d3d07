"""Where cases are computed: anything with the interface of `concurrent.futures.Executor`.

Invariant: an executor only calls `worker.guard.solve` somewhere and gives back what it returns; limits, crashes and
hanging are the worker's. One that has a method `share(model)` gets each model once, and jobs get what it returned;
`window` is how many cases it likes to have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from importlib.metadata import EntryPoint, entry_points

from ..case import SweepError
from ..worker.guard import end_all

GROUP = "npu_memplan.executors"  # entry points: functions of what follows the colon, which return an executor


def open_executor(spec: str) -> Executor:
    """The executor that `spec`, `NAME` or `NAME:REST`, names; `SweepError` when there is none, or it cannot be made."""
    name, _, rest = spec.partition(":")
    registered = _registered()
    if name not in registered:
        known = ", ".join(sorted(registered))
        raise SweepError(f"--executor {spec!r} is unknown; give NAME or NAME:PARAMETERS with one of the names {known}")
    make: Callable[[str], Executor] = registered[name].load()
    return make(rest)


def _registered() -> dict[str, EntryPoint]:
    """Our own, and those of other packages, which cannot replace one of ours."""
    own = {
        name: EntryPoint(name, f"{__package__}.{module}:{function}", GROUP)
        for name, module, function in (
            ("processes", "specs", "local_processes"),
            ("dask", "dask", "dask_executor"),
            ("slurm", "slurm", "slurm_executor"),
        )
    }
    return {**{entry.name: entry for entry in entry_points(group=GROUP)}, **own}


def local_processes(text: str) -> LocalProcesses:
    """`N` processes of this machine; nothing: as many as it has cores."""
    if not re.fullmatch("[1-9][0-9]{0,4}|", text):
        raise SweepError(f"--executor processes:{text}: give processes or processes:N, N from 1 to 99999")
    return LocalProcesses(int(text or cores()))


class LocalProcesses(ThreadPoolExecutor):
    """A thread for each process of this machine, in which it waits for one case at a time (`worker.guard`)."""

    def __init__(self, count: int) -> None:
        self._name = f"sweep-{id(self):x}-"
        super().__init__(count, thread_name_prefix=self._name)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor` says; with `cancel_futures` what is running is ended too."""
        if cancel_futures:
            super().shutdown(False, cancel_futures=True)
            end_all(self._name)
        super().shutdown(wait)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
