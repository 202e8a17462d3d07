"""Which program of a model is taken where the check found one wrong: another one that is right, or none.

Invariant: a program whose check found more than its operators claim is never taken; what was given up for another one
is stated. This holds for whatever is written of it: an artifact, a file for TFLite Micro.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..artifact.check import CheckResult, CheckVerdict, GivenUp
from ..artifact.parts import Operator
from ..errors import InternalError, NpuMemplanError
from ..options import AUTO, NO_NPU, CompileOptions
from ..problem import Agent
from ..process.incidents import Fallback, contained, fall_back, report_fault
from ..report.text.checked import difference, why_given_up
from .judge import is_right, suspects

_TRIED = 6  # other programs at most
T = TypeVar("T")


class WrongOperatorError(NpuMemplanError):
    """A program with operators of the user's own gives other results than its reference."""


@dataclass(frozen=True, slots=True)
class CheckedProgram(Generic[T]):
    """A `program`: the options that made it and whose NPU operations it has (`made_by`, as --npu-compiler says it), its
    operators and their claims, and its check."""

    program: T
    target: CompileOptions
    made_by: str
    operators: Sequence[Operator]
    check: CheckResult

    @property
    def flags(self) -> tuple[str, ...]:
        """The options that tell programs of one compile from each other."""
        host = self.target.host_ops
        return ("--npu-compiler", self.made_by, *(("--host-ops", ",".join(host)) if host else ()))

    @property
    def gone(self) -> GivenUp:
        """It was given up for its first difference."""
        assert self.check.first is not None
        return GivenUp(self.flags, self.check.reference, self.check.first)


def right_program(
    first: CheckedProgram[T], requested: CompileOptions, make: Callable[[CompileOptions], CheckedProgram[T]]
) -> CheckedProgram[T]:
    """`first` where it is right; else another one that `make` makes, whose check says what was given up for it.

    Where none is right, `first` if it differs no further than it claims; else an error, a fault of ours where no
    operator is the user's own.
    """
    if is_right(first.operators, first.check):
        return first
    gone = [first.gone]
    alternatives = Alternatives(requested, first)
    for left in reversed(range(_TRIED)):
        options = alternatives.next(is_last=not left)
        if options is None:
            break
        other: CheckedProgram[T] | None = None
        flags = shlex.join(replace(first, target=options, made_by=options.npu_compiler).flags)
        with contained(flags), suppress(NpuMemplanError):
            other = make(options)
        if other is None:
            continue
        if other.check.verdict in (CheckVerdict.EQUAL, CheckVerdict.AS_CLAIMED) and is_right(
            other.operators, other.check
        ):
            return replace(other, check=replace(other.check, given_up=tuple(gone)))
        if other.check.first is not None:
            gone.append(other.gone)
            alternatives.learn(other)
    if first.check.verdict is not CheckVerdict.DIFFERS:
        return first
    others = ", ".join(shlex.join(each.flags) for each in gone[1:])
    tried = f"; nor is that of {others} right" if others else ""
    text = f"{difference(first.check)}{tried}; nothing is written (--no-check writes it as it is)"
    raise (WrongOperatorError if requested.operators else InternalError)(text)


def notes(taken: CheckedProgram[T]) -> tuple[str, ...]:
    """A sentence for each program that was given up for `taken`; each is reported too."""
    found = tuple(why_given_up(gone, taken.flags) for gone in taken.check.given_up)
    for gone, note in zip(taken.check.given_up, found, strict=True):
        if gone.flags[1] == "vela":
            fall_back(Fallback.PROGRAM, note)
        else:
            report_fault(taken.made_by, InternalError(note))
    return found


class Alternatives:
    """Options for other programs: the other backend where none was named, then the suspects on the host, those of
    programs that were tried on the way too, at last all kinds that the NPU had."""

    def __init__(self, options: CompileOptions, first: CheckedProgram[T]) -> None:
        self._options, self._made_by = options, first.made_by
        self._kept: tuple[str, ...] = ()
        self._waiting: list[str] = []
        self._all = dict.fromkeys(o.kind for o in first.operators if o.agent is Agent.NPU)
        self._other = ""
        if options.accelerator == NO_NPU or first.check.first is None:
            return
        self._waiting += suspects(first.operators, first.check.first)
        if options.npu_compiler == AUTO and not options.cut:
            self._other = "tvm" if self._made_by == "vela" else "vela"

    def next(self, is_last: bool = False) -> CompileOptions | None:
        """The next to try; None when there is none. `is_last`: no more will be requested."""
        if self._other:
            requested, self._other = replace(self._options, npu_compiler=self._other), ""
            return requested
        one_more = self._waiting and not is_last
        more = [self._waiting.pop(0)] if one_more else [kind for kind in self._all if kind not in self._kept]
        if not more:
            return None
        self._kept = (*self._kept, *more)
        return replace(self._options, npu_compiler=self._made_by, host_ops=(*self._options.host_ops, *self._kept))

    def learn(self, other: CheckedProgram[T]) -> None:
        """An alternative differs as well: what it may be goes to the host first."""
        if self._kept and other.check.first is not None:
            found = [kind for kind in suspects(other.operators, other.check.first) if kind not in self._kept]
            self._waiting = [*found, *(kind for kind in self._waiting if kind not in found)]
