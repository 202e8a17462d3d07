"""`run`: cases to an executor, results to a store.

Invariant: a case that the store has is not computed; every other one gets one result, however often its worker was
lost; nothing that a case does stops the others. A result is kept before it counts as done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import describe_error
from ..versions import versions
from .case import Case, SweepError
from .executors.specs import open_executor
from .results import CaseLimits, Outcome, Result
from .store import Store
from .table.rows import CaseLabel, Table, table_of
from .worker.guard import solve
from .worker.job import job_of, model_of

WINDOW = 1000  # cases that an executor has at a time, if it has no `window`: so that no executor holds a whole sweep
ATTEMPTS = 3  # of a case whose worker was lost

Progress = Callable[[int, int, Result], None]  # done, of how many, the newest


@dataclass(frozen=True, slots=True)
class Swept:
    """All results of a sweep, by key, and how many of them were computed now."""

    cases: tuple[Case, ...]
    results: dict[str, Result]
    computed: int
    unreadable: str = ""  # a warning of lines of the store that are no results

    @property
    def missing(self) -> list[Result]:
        """What no worker could try."""
        return [result for result in self.results.values() if result.outcome is Outcome.NOT_TRIED]

    def table(self) -> Table:
        """A row a case, in their order."""
        made_with = versions(any(case.verification.runner for case in self.cases))
        return table_of([CaseLabel.of(case) for case in self.cases], self.results, dict(made_with))


def run(
    cases: Iterable[Case],
    executor: Executor | str = "processes",
    *,
    store: Path | str | None = None,
    limits: CaseLimits | None = None,
    progress: Progress | None = None,
) -> Swept:
    """Compute `cases` on `executor` (any of `concurrent.futures`, or what --executor takes); the folder `store` keeps
    results, and those that it has are not computed.

    An executor that is given stays open; one that is named is closed. Raises `SweepError` when the executor breaks;
    what was computed until then is kept.
    """
    every, limits = tuple(cases), limits or CaseLimits()
    kept = None if store is None else Store(Path(store))
    distinct = {case.key: case for case in every}
    results = {} if kept is None else kept.read(distinct, limits)
    todo = [case for key, case in distinct.items() if key not in results]
    if todo:
        mine = isinstance(executor, str)
        works = open_executor(executor) if isinstance(executor, str) else executor
        sweep = _Sweep(works, limits, kept, progress, len(distinct), results)
        over = False
        try:
            sweep.compute(todo)
            over = True
        finally:
            if mine:
                works.shutdown(wait=True, cancel_futures=not over)
            else:  # nothing more for an executor that goes on without us
                for future in sweep.running:
                    future.cancel()
            if kept is not None:
                kept.close()
    unreadable = "" if kept is None else kept.warning
    return Swept(every, {case.key: results[case.key] for case in every}, len(todo), unreadable)


@dataclass(slots=True, eq=False)
class _Sweep:
    """The cases that an executor has now."""

    executor: Executor
    limits: CaseLimits
    store: Store | None
    progress: Progress | None
    total: int
    results: dict[str, Result]
    running: dict[Future[Result], tuple[Case, int]] = field(default_factory=dict)
    models: dict[str, tuple[Any, int]] = field(default_factory=dict)  # sha256 -> what jobs get, for how many running

    def compute(self, todo: Sequence[Case]) -> None:
        waiting = deque((case, 1) for case in todo)
        window = getattr(self.executor, "window", WINDOW)
        while waiting or self.running:
            while waiting and len(self.running) < window:
                self._submit(*waiting.popleft())
            done, _ = wait(self.running, return_when=FIRST_COMPLETED)
            for future in done:
                case, attempt = self.running.pop(future)
                self._leave(case)
                result = _outcome(future, case)
                if result.outcome is Outcome.NOT_TRIED and attempt < ATTEMPTS:
                    waiting.append((case, attempt + 1))
                    continue
                if self.store is not None and result.outcome is not Outcome.NOT_TRIED:
                    self.store.add(result)
                self.results[case.key] = result
                if self.progress is not None:
                    self.progress(len(self.results), self.total, result)

    def _submit(self, case: Case, attempt: int) -> None:
        try:
            future = self.executor.submit(solve, job_of(case, self.limits), self._model(case))
        except (BrokenExecutor, RuntimeError) as error:
            raise SweepError(
                f"the executor takes no more cases: {describe_error(error)}; run the sweep again to go on"
            ) from error
        self.running[future] = case, attempt

    def _model(self, case: Case) -> Any:
        """What jobs of a model get: its bytes, once for all that run at a time."""
        sent, users = self.models.get(case.model.sha256) or (None, 0)
        if sent is None:
            share = getattr(self.executor, "share", None)
            sent = model_of(case) if share is None else share(model_of(case))
        self.models[case.model.sha256] = sent, users + 1
        return sent

    def _leave(self, case: Case) -> None:
        sent, users = self.models[case.model.sha256]
        if users == 1:
            del self.models[case.model.sha256]
        else:
            self.models[case.model.sha256] = sent, users - 1


def _outcome(future: Future[Result], case: Case) -> Result:
    """What came back, or that a worker was lost."""
    try:
        return future.result()
    except (Exception, CancelledError) as error:  # the executor's own words for a lost worker, whatever they are
        lost = f"its worker was lost {ATTEMPTS} times: {type(error).__name__}: {describe_error(error, 0)}"
        return Result(case.key, Outcome.NOT_TRIED, lost)
