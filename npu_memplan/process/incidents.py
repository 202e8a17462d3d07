"""Incidents (faults of our own, and fallbacks from what was requested first), and the phase that a long command is in.

Invariant: no incident is silent. A fault ends the one attempt that it happened in (`contain_faults`) only where
incidents are gathered, strict mode is off and it is one of `FAULTS`; everywhere else it is raised. Refusals, users'
errors and a lack of memory are no faults and pass. There is no listener outside of `listen_to_phases`, and reports
change no result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum

from ..errors import InternalError, NpuMemplanError, RefusalError, describe_error
from .ending import raise_lack_of_memory

STRICT = "NPU_MEMPLAN_STRICT"  # environment variable: faults are raised in this process and in those it starts
FAULT = "internal fault: "  # how lines of faults begin
NOT_OURS = (NpuMemplanError, OSError, MemoryError)  # what an attempt may raise without a fault
FAULTS = (
    InternalError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)  # what ends an attempt alone; TVM's errors are some of these
_strict: ContextVar[bool] = ContextVar("strict", default=False)
_gathering: ContextVar[tuple[Incidents, ...]] = ContextVar("incidents", default=())


class Fallback(Enum):
    """The kinds of fallbacks, and what took the place of what; docs/reference.md has the same list."""

    BACKEND = "backend"  # of the NPU's operations: the other one takes what one refuses
    CORE = "core"  # of Vela: the legacy one compiles what the compiled one refuses
    PROGRAM = "program"  # another one, where the check found that results differ
    SEARCH = "search"  # the compiled searches, where they cannot be built
    TIME = "time"  # the seconds of --effort ended a search: the best so far is taken
    RUNNER = "runner"  # the first of `run --on auto` that can run here


@dataclass(frozen=True, slots=True)
class Incidents:
    """The incidents that were gathered, a line each."""

    faults: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)

    @property
    def lines(self) -> tuple[str, ...]:
        """All, as the user reads them."""
        return (*(f"{FAULT}{text}" for text in self.faults), *self.fallbacks)


@contextmanager
def gather_incidents() -> Iterator[Incidents]:
    """Gather the incidents inside the block; an outer block gets them as well."""
    incidents = Incidents()
    before = _gathering.set((*_gathering.get(), incidents))
    try:
        yield incidents
    finally:
        _gathering.reset(before)


@contextmanager
def raise_faults(strict: bool = True) -> Iterator[None]:
    """Inside, with `strict`, every fault is raised."""
    before = _strict.set(strict or _strict.get())
    try:
        yield
    finally:
        _strict.reset(before)


def is_strict() -> bool:
    """Whether faults are raised: requested here, or by the environment variable `NPU_MEMPLAN_STRICT` (not 0)."""
    return _strict.get() or os.environ.get(STRICT, "0") not in ("", "0")


@contextmanager
def contain_faults(where: str) -> Iterator[None]:
    """Inside, a fault ends the block alone, and is reported as one of `where`."""
    try:
        yield
    except NOT_OURS:
        raise
    except FAULTS as error:
        report_fault(where, error)


class Attempts:
    """Several attempts, all of which are made; the errors of those that failed are reported at the end."""

    def __init__(self) -> None:
        self._failed: list[tuple[str, Exception]] = []

    @contextmanager
    def attempt_by(self, who: str) -> Iterator[None]:
        """The block of the attempt of `who`, whose error is kept."""
        try:
            yield
        except (OSError, MemoryError):
            raise
        except (NpuMemplanError, *FAULTS) as error:  # reported, or raised, by `settle`
            raise_lack_of_memory(error)
            self._failed.append((who, error))

    def settle_errors(
        self,
        done: bool,
        plain: tuple[type[Exception], ...] = (),
        least: tuple[type[Exception], ...] = (),
        most: tuple[type[Exception], ...] = (),
    ) -> None:
        """Report faults and user errors but `plain` ones where one attempt has `done` it; else raise the first error,
        of the types `most` where there is one, one of the types `least` only where there is no other.

        A user error ends all of them: one that ended only some, and is not a user error, is an internal fault.
        """
        for who, error in self._failed if done else ():
            if not isinstance(error, RefusalError):
                report_fault(who, error)
            elif not isinstance(error, plain):
                fall_back(Fallback.BACKEND, f"{who} was not taken, it was refused: {describe_error(error, 0)}")
        if self._failed and not done:
            faults = [failed for failed in self._failed if not isinstance(failed[1], NpuMemplanError)]
            telling = [failed for failed in self._failed if not isinstance(failed[1], least)]
            who, error = (faults or [one for one in telling if isinstance(one[1], most)] or telling or self._failed)[0]
            if isinstance(error, NpuMemplanError):
                raise error
            raise InternalError(f"{who}: {kind_of(error)}{describe_error(error, 0)}") from error


def report_fault(where: str, error: Exception) -> str:
    """Report the fault `error`, and return the text; raises it as `InternalError` where nothing gathers, or
    in strict mode. A lack of memory is raised as what it is."""
    raise_lack_of_memory(error)
    text = f"{where}: {kind_of(error)}{describe_error(error, 0)}"
    if is_strict() or not _gathering.get():
        raise InternalError(text) from error
    for incidents in _gathering.get():
        if text not in incidents.faults:
            incidents.faults.append(text)
    return text


def is_ours(error: BaseException) -> bool:
    """Whether a line of this package itself raised `error`, rather than a library that it calls."""
    frame, module = error.__traceback__, ""
    while frame is not None:
        module, frame = str(frame.tb_frame.f_globals.get("__name__", "")), frame.tb_next
    return module.split(".")[0] in ("npu_memplan", "fvp_runner")


def kind_of(error: BaseException) -> str:
    """The name of an error's class, where its text does not speak for itself."""
    return "" if type(error) is InternalError else f"{type(error).__name__}: "


def fall_back(kind: Fallback, text: str) -> None:
    """Report that another took the place of what was requested: `text` says which, and why. `kind` is for the list."""
    for incidents in _gathering.get():
        if text not in incidents.fallbacks:
            incidents.fallbacks.append(text)


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("phases", default=None)


def report_phase(phase: str) -> None:
    """Say that `phase` begins, and so that the one before has ended."""
    listener = _listener.get()
    if listener is not None:
        listener(phase)


@contextmanager
def listen_to_phases(listener: Callable[[str], None]) -> Iterator[None]:
    """Inside, `listener` is called with every phase that this context enters."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
