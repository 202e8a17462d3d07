"""Slurm, by submitit: jobs of several cases each, submitted as arrays.

Invariant: a future gets the result of its own call; a Slurm job that is lost (preempted, its node gone) fails the
futures of its calls, and no others. Only this folder is shared: submitit pickles calls and results into it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from ...process.python_child import python_child
from ..case import SweepError

CASES_A_JOB = 25
_GATHER_S = 0.5  # what is submitted within it goes into the same jobs
_LOOK_S = 1.0

_JOB = "import runpy; del sys.argv[1:3]; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
_Call = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


def slurm_executor(text: str) -> SubmititExecutor:
    """`JOBS,KEY=VALUE,...`: at most JOBS at a time; the rest are parameters of submitit (slurm_partition=cpu)."""
    try:
        import submitit
    except ImportError:
        raise SweepError(
            "--executor slurm needs submitit, which is not installed; pip install 'npu_memplan[slurm]'"
        ) from None
    jobs, *pairs = text.split(",") if text else ("100",)
    if not jobs.isdecimal() or not int(jobs) or any("=" not in pair for pair in pairs):
        raise SweepError(f"--executor slurm:{text}: give slurm:JOBS,KEY=VALUE,..., as in slurm:50,slurm_partition=cpu")
    folder = Path(os.environ.get("NPU_MEMPLAN_SUBMITIT", ".submitit"))
    given: dict[str, Any] = {key: int(v) if v.isdecimal() else v for key, _, v in (p.partition("=") for p in pairs)}
    cluster = given.pop("cluster", "slurm")
    # what submitit adds, "-u -m submitit.core._submit FOLDER", would put the job's folder on the import path
    python = {f"{cluster}_python": shlex.join(python_child(_JOB))} if cluster in ("slurm", "local") else {}
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster, **python)
        executor.update_parameters(name="npu-memplan-sweep", **{"slurm_array_parallelism": int(jobs), **given})
    except (RuntimeError, NameError, ValueError) as error:
        raise SweepError(f"--executor slurm:{text}: {str(error).splitlines()[0]}") from None
    return SubmititExecutor(executor, jobs=int(jobs))


class SubmititExecutor(Executor):
    """The interface of `concurrent.futures` for an executor of submitit."""

    def __init__(self, executor: Any, cases_a_job: int = CASES_A_JOB, jobs: int = 40) -> None:
        self.window = 2 * jobs * cases_a_job  # so that some wait when one ends
        self._executor, self._size = executor, cases_a_job
        self._waiting: list[_Call] = []
        self._submitted: list[tuple[Any, list[_Call]]] = []
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `Executor` says, for positional arguments."""
        if kwargs:
            raise TypeError("arguments by name are not passed on")
        future: Future[Any] = Future()
        with self._lock:
            if self._over:
                raise RuntimeError("cannot submit after shutdown")
            self._waiting.append((future, fn, args))
        self._changed.set()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor` says; with `cancel_futures` the jobs of Slurm are cancelled."""
        with self._lock:
            self._over = True
            if cancel_futures:
                for future, _, _ in self._waiting:
                    future.cancel()
                for job, _ in self._submitted:
                    with contextlib.suppress(Exception):  # scancel may be gone with the cluster
                        job.cancel()
                self._waiting, self._submitted = [], []
        self._changed.set()
        if wait:
            self._thread.join()

    def _serve(self) -> None:
        while True:
            self._changed.wait(_LOOK_S if self._submitted else None)
            if self._changed.is_set():
                self._changed.clear()
                threading.Event().wait(_GATHER_S)
                self._send()
            self._collect()
            with self._lock:
                if self._over and not self._waiting and not self._submitted:
                    return

    def _send(self) -> None:
        with self._lock:
            calls, self._waiting = [c for c in self._waiting if c[0].set_running_or_notify_cancel()], []
        parts = [calls[i : i + self._size] for i in range(0, len(calls), self._size)]
        if not parts:
            return
        try:
            jobs = self._executor.map_array(_call_all, [[(fn, args) for _, fn, args in part] for part in parts])
        except Exception as error:  # sbatch refuses, the folder is full: every caller hears it
            for future, _, _ in calls:
                future.set_exception(SweepError(f"submitit cannot submit: {error}"))
            return
        with self._lock:
            self._submitted += list(zip(jobs, parts, strict=True))

    def _collect(self) -> None:
        with self._lock:
            done = [entry for entry in self._submitted if entry[0].done()]
            self._submitted = [entry for entry in self._submitted if entry not in done]
        for job, part in done:
            try:
                results = job.result()
            except Exception as error:  # the job's, whatever it is
                for future, _, _ in part:
                    future.set_exception(error)
                continue
            for (future, _, _), result in zip(part, results, strict=True):
                future.set_result(result)


def _call_all(calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    """In the job: one call after the other."""
    return [fn(*args) for fn, args in calls]
