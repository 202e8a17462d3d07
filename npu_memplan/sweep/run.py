"""`run`: cases to an executor, results to a file.

Invariant: a case that the file has is not computed; nothing that a case does stops the others. A result is kept before
it counts as done. A case is a process of its own (`measure`) under limits of time and memory, wherever it is computed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import versions
from ..errors import describe_error
from ..files.folders import scratch_folder
from ..process.programs import end_program, python_child, start_program
from .case import Case, CaseLimits, Cost, Outcome, Result, SweepError, append_result, read_results
from .table import CaseLabel, Table, table_of

JOB, RESULT = "job.pickle", "result.json"  # files of a case's process
_WAITING = 200  # cases that an executor has at a time
_LOOK_S = 0.02  # between two looks at futures
_OUTPUT_CHARACTERS = 400  # of the output of a process that crashed
_PROGRAM = "import sys; from npu_memplan.sweep.measure import main; main(sys.argv[1])"
_running: set[subprocess.Popen[bytes]] = set()

Progress = Callable[[str, int, int], None]  # what came last, how many are done, of how many


@dataclass(frozen=True, slots=True)
class CaseJob:
    """The job that an executor is sent: all that one case needs, files as bytes."""

    key: str
    case: Case
    limits: CaseLimits
    versions: tuple[tuple[str, str], ...]  # that the result has to be made with


def job_of(case: Case, limits: CaseLimits) -> CaseJob:
    """The job of `case`; for its key, the files are read that options name."""
    return CaseJob(case.key, case, limits, versions.versions(bool(case.verification.runner)))


@dataclass(frozen=True, slots=True)
class Swept:
    """All results of a sweep, by key, and how many of them were computed now."""

    cases: tuple[Case, ...]
    results: dict[str, Result]
    computed: int

    @property
    def missing(self) -> list[Result]:
        """Results of cases that no worker could try."""
        return [result for result in self.results.values() if result.outcome is Outcome.NOT_TRIED]

    def table(self) -> Table:
        """A row a case, in their order."""
        made_with = versions.versions(any(case.verification.runner for case in self.cases))
        return table_of([CaseLabel.from_case(case) for case in self.cases], self.results, dict(made_with))


def run(
    cases: Iterable[Case],
    executor: Executor | None = None,
    *,
    store: Path | str | None = None,
    limits: CaseLimits | None = None,
    progress: Progress | None = None,
) -> Swept:
    """Compute `cases` on `executor`; the file `store` keeps results, one line each, and those that it has stay.

    `executor`: anything with `submit(function, *arguments)` whose futures have `done()` and `result()`: those of
    `concurrent.futures`, of `distributed` (`Client.get_executor()`) and of `submitit`; default: all cores here.
    Raises `SweepError` when the executor takes no more cases; the results until then are kept.
    """
    every, limits = tuple(cases), limits or CaseLimits()
    kept = None if store is None else Path(store)
    distinct = {case.key: case for case in every}
    results = {} if kept is None else read_results(kept, distinct, limits)
    todo = [case for key, case in distinct.items() if key not in results]
    with contextlib.nullcontext(executor) if executor is not None else local_executor() as works:
        for result in _compute_cases(todo, works, limits):
            if kept is not None and result.outcome is not Outcome.NOT_TRIED:
                append_result(kept, result)
            results[result.key] = result
            if progress is not None:
                progress(f"the last {result.outcome.value}", len(results), len(distinct))
    return Swept(every, {key: results[key] for key in distinct}, len(todo))


@contextlib.contextmanager
def local_executor(jobs: int | None = None) -> Iterator[Executor]:
    """`jobs` cases at a time (default: one a core), a thread for each process; on leaving, all are ended."""
    executor = ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0)), thread_name_prefix="sweep")
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        shutdown = threading.Thread(target=executor.shutdown)
        shutdown.start()
        while shutdown.is_alive():  # again and again: a thread may be about to start its process
            for process in list(_running):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            shutdown.join(_LOOK_S)


def _compute_cases(todo: Sequence[Case], executor: Executor, limits: CaseLimits) -> Iterable[Result]:
    """Results in the order in which they come."""
    waiting, running = list(reversed(todo)), dict[Any, Case]()
    while waiting or running:
        while waiting and len(running) < _WAITING:
            case = waiting.pop()
            try:
                running[executor.submit(solve_case, job_of(case, limits))] = case
            except RuntimeError as error:  # it broke, or was shut down
                raise SweepError(
                    f"the executor takes no more cases: {describe_error(error)}; run the sweep again to go on"
                ) from error
        finished = [future for future in running if future.done()]
        for future in finished:
            yield _case_result(future, running.pop(future))
        if not finished:
            time.sleep(_LOOK_S)


def _case_result(future: Any, case: Case) -> Result:
    """The result that came back, or that a worker was lost."""
    try:
        result: Result = future.result()
        return result
    except Exception as error:  # the executor's own error for a lost worker, whatever it is
        return Result(
            case.key, Outcome.NOT_TRIED, f"its worker was lost: {type(error).__name__}: {describe_error(error, 0)}"
        )


def solve_case(job: CaseJob) -> Result:
    """The result of `job`, computed in a process of its own under its limits; what executors call."""
    limits, start = job.limits, time.monotonic()
    with scratch_folder("sweep") as folder:
        (folder / JOB).write_bytes(pickle.dumps(job))
        try:
            process = start_program(
                python_child(_PROGRAM, str(folder)), folder, memory_bytes=limits.memory_bytes, stderr=subprocess.STDOUT
            )
        except OSError as error:
            return Result(job.key, Outcome.NOT_TRIED, f"a worker process does not start: {error}")
        _running.add(process)
        try:
            output, _ = process.communicate(timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            cost = Cost(time.monotonic() - start)
            reason = f"took longer than the limit of {limits.seconds:g} s"
            return Result(job.key, Outcome.TIMED_OUT, reason, limits.seconds, cost=cost)
        finally:
            _running.discard(process)
            end_program(process)
        seconds, written = time.monotonic() - start, folder / RESULT
        result = Result.of_line(written.read_bytes()) if process.returncode == 0 and written.exists() else None
        if result is not None:
            return replace(result, cost=replace(result.cost, seconds=seconds))
        text = output.decode("utf-8", "replace")
        if "MemoryError" in text or "bad_alloc" in text:
            return out_of_memory(job)
        cost = Cost(seconds, said=text[-_OUTPUT_CHARACTERS:].strip())
        return Result(job.key, Outcome.CRASHED, f"its process ended {_end_of(process.returncode)}", cost=cost)


def out_of_memory(job: CaseJob) -> Result:
    """The result of a job that was refused memory."""
    limit = job.limits.memory_bytes
    reason = f"needs more than the limit of {limit:,} bytes of memory"
    return Result(job.key, Outcome.OUT_OF_MEMORY, reason, limit)


def _end_of(code: int) -> str:
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
