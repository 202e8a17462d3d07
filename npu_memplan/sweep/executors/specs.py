"""Where cases are computed: anything with the interface of `concurrent.futures.Executor`.

Invariant: an executor only calls `worker.guard.solve` somewhere and gives back what it returns; limits, crashes and
hanging are the worker's. One that has a method `share(model)` gets each model once, and jobs get what it returned;
`window` is how many cases it likes to have.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import Executor

from ..case import SweepError

SPECS = "processes[:N], dask://HOST:PORT, slurm[:JOBS[,KEY=VALUE...]]"


def open_executor(spec: str) -> Executor:
    """The executor that `spec` names; `SweepError` when there is none, or its package is not installed."""
    kind, _, rest = spec.partition(":")
    if kind == "processes" and re.fullmatch("[1-9][0-9]{0,4}|", rest):
        from .local import LocalProcesses

        return LocalProcesses(int(rest or cores()))
    if kind == "dask" and re.fullmatch(r"//[^/\s]+:[0-9]+/?", rest):
        from .dask import DaskExecutor

        return DaskExecutor(f"tcp:{rest.rstrip('/')}")
    if kind == "slurm":
        from .slurm import slurm_executor

        return slurm_executor(rest)
    raise SweepError(f"--executor {spec!r} is unknown; give one of: {SPECS}")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
