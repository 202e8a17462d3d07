"""Where cases are computed: anything with the interface of `concurrent.futures.Executor`.

Invariant: an executor only calls `worker.guard.solve` somewhere and gives back what it returns; limits, crashes and
hanging are the worker's. One that has a method `share(model)` gets each model once, and jobs get what it returned;
`window` is how many cases it likes to have.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import Executor, ThreadPoolExecutor

from ..case import SweepError
from ..worker.guard import end_all

SPECS = "processes[:N], dask://HOST:PORT, slurm[:JOBS[,KEY=VALUE...]]"


def open_executor(spec: str) -> Executor:
    """The executor that `spec` names; `SweepError` when there is none, or its package is not installed."""
    kind, _, rest = spec.partition(":")
    if kind == "processes" and re.fullmatch("[1-9][0-9]{0,4}|", rest):
        return LocalProcesses(int(rest or cores()))
    if kind == "dask" and re.fullmatch(r"//[^/\s]+:[0-9]+/?", rest):
        from .dask import DaskExecutor

        return DaskExecutor(f"tcp:{rest.rstrip('/')}")
    if kind == "slurm":
        from .slurm import slurm_executor

        return slurm_executor(rest)
    raise SweepError(f"--executor {spec!r} is unknown; give one of: {SPECS}")


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
