"""`compile` compares a program with its reference before it calls results exact.

Invariant: what is written has the check of that very program in its plan.json. A program whose check finds more than
its operators claim is never written: another backend's is, or one with operators on the CPU, or none (`InternalError`);
what was given up for it is stated. What takes its place was checked too: it is off by no more than it claims, and has
no unproven operator of the NPU that is off by more than a step.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from ..artifact import Artifact
from ..artifact.model import NOT_REQUESTED, CheckResult, CheckVerdict, GivenUp, Operator
from ..cache import ProgramCache
from ..clock import limit_searches, pause_clock
from ..compiler import plan_model
from ..errors import InternalError, NpuMemplanError
from ..files.folders import scratch_folder, staged_directory
from ..models.edits import read_source
from ..models.folding import fold_constants
from ..models.frameworks import is_onnx, is_torch
from ..models.tosa import is_tosa
from ..options import AUTO, NO_NPU, CompileOptions
from ..problem import Agent
from ..process.incidents import Fallback, contain_faults, fall_back, gather_incidents, report_fault, report_phase
from ..report.files import record_artifact, write_artifact
from ..report.text.compile_result import difference_text, why_given_up
from ..stages import Compiled
from .judge import (
    LIMIT,
    LIMIT_OF_SEARCHES,
    CheckMode,
    CheckWork,
    check_mode,
    is_right,
    judge_run,
    likely_kinds,
    with_result,
    work_of,
)
from .sampling import check_sample, draw_sample, works_of

_TRIED = 6  # other programs at most
T = TypeVar("T")


class WrongOperatorError(NpuMemplanError):
    """A program with operators of the user's own gives other results than its reference."""


@dataclass(frozen=True, slots=True)
class CheckedProgram(Generic[T]):
    """A program, what made it, and its check."""

    program: T
    target: CompileOptions  # the options that made it
    made_by: str  # the compiler of its NPU operations, as --npu-compiler says it
    operators: Sequence[Operator]
    check: CheckResult

    @property
    def option_flags(self) -> tuple[str, ...]:
        """The options that tell programs of one compile from each other."""
        host = self.target.host_ops
        return ("--npu-compiler", self.made_by, *(("--host-ops", ",".join(host)) if host else ()))

    @property
    def given_up(self) -> GivenUp:
        """The program as one that was given up for its first difference."""
        assert self.check.first is not None
        return GivenUp(self.option_flags, self.check.reference, self.check.first)


def right_program(
    first: CheckedProgram[T], requested: CompileOptions, make: Callable[[CompileOptions], CheckedProgram[T]]
) -> CheckedProgram[T]:
    """`first` where it is right; else another one that `make` makes, whose check says what was given up for it.

    Where none is right, `first` if it differs no further than it claims; else an error, a fault of ours where no
    operator is the user's own.
    """
    if is_right(first.operators, first.check):
        return first
    gone = [first.given_up]
    alternatives = Alternatives(requested, first)
    for left in reversed(range(_TRIED)):
        options = alternatives.next_options(is_last=not left)
        if options is None:
            break
        other: CheckedProgram[T] | None = None
        flags = shlex.join(replace(first, target=options, made_by=options.npu_compiler).option_flags)
        with contain_faults(flags), suppress(NpuMemplanError):
            other = make(options)
        if other is None:
            continue
        if other.check.verdict in (CheckVerdict.EQUAL, CheckVerdict.AS_CLAIMED) and is_right(
            other.operators, other.check
        ):
            return replace(other, check=replace(other.check, given_up=tuple(gone)))
        if other.check.first is not None:
            gone.append(other.given_up)
            alternatives.learn_difference(other)
    if first.check.verdict is not CheckVerdict.DIFFERS:
        return first
    others = ", ".join(shlex.join(each.flags) for each in gone[1:])
    tried = f"; nor is that of {others} right" if others else ""
    text = f"{difference_text(first.check)}{tried}; nothing is written (--no-check writes it as it is)"
    raise (WrongOperatorError if requested.operators else InternalError)(text)


def given_up_notes(taken: CheckedProgram[T]) -> tuple[str, ...]:
    """A sentence for each program that was given up for `taken`; each is reported too."""
    found = tuple(why_given_up(gone, taken.option_flags) for gone in taken.check.given_up)
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
        self._waiting += likely_kinds(first.operators, first.check.first)
        if options.npu_compiler == AUTO and not options.stripes:
            self._other = "tvm" if self._made_by == "vela" else "vela"

    def next_options(self, is_last: bool = False) -> CompileOptions | None:
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

    def learn_difference(self, other: CheckedProgram[T]) -> None:
        """Note that an alternative differs as well: the operators that may cause it go to the host first."""
        if self._kept and other.check.first is not None:
            found = [kind for kind in likely_kinds(other.operators, other.check.first) if kind not in self._kept]
            self._waiting = [*found, *(kind for kind in self._waiting if kind not in found)]


INPUTS = ("random:0", "extreme")
_FEWEST = 1  # of them, where more are much work


def compile_checked(
    model: Path | str,
    options: CompileOptions,
    output: Path | str,
    force: bool = False,
    mode: CheckMode = CheckMode.AUTO,
    cache: ProgramCache | None = None,
) -> Artifact:
    """Compile the file `model` into the directory `output` and check it; every error leaves `output` as it was. What
    `cache` has is neither compiled nor checked again.

    A program that is given up is an incident; in strict mode, where its code is ours, it is an `InternalError`.
    """
    with gather_incidents(), limit_searches(options.time_limit_s), staged_directory(Path(output), force) as folder:
        compiled = plan_model(Path(model), options, cache=cache)
        return write_checked(compiled, folder, Path(model), options, mode, cache)


def start(check: bool | None, is_known: bool = False) -> CheckMode:
    """The mode requested; where a check may come, its process begins meanwhile, unless it `is_known`."""
    mode = check_mode(check)
    if mode is not CheckMode.NEVER and not is_known:
        from .judge import start_worker

        start_worker()
    return mode


def write_checked(
    compiled: Compiled, folder: Path, model: Path, options: CompileOptions, mode: CheckMode = CheckMode.AUTO,
    cache: ProgramCache | None = None,
) -> Artifact:  # fmt: skip
    """The stage `write` and a check: into the empty `folder` goes what `options` made of the file `model`, or a program
    in its place that is right.

    Raises `InternalError` where the check finds more than is claimed, and no other program is right.
    """
    artifact = write_artifact(compiled, folder)
    limit = LIMIT_OF_SEARCHES if options.has_rivals else LIMIT

    def check_written() -> CheckResult:
        return check_results(folder, artifact, model, mode, limit)

    result = check_written() if cache is None else cache.get_check(artifact, (mode.value, limit), check_written)
    if is_right(artifact.operators, result):
        return record_artifact(with_result(artifact, result), folder)

    taken = right_program(checked_program(compiled, artifact, result), options, partial(compile_candidate, model))
    if taken.program is compiled:
        return record_artifact(with_result(artifact, result), folder)
    shutil.rmtree(folder / "src")
    (folder / "layers.csv").unlink(missing_ok=True)
    artifact = write_artifact(taken.program, folder)
    return record_artifact(
        with_result(replace(artifact, notes=(*artifact.notes, *given_up_notes(taken))), taken.check), folder
    )


def compile_candidate(model: Path, requested: CompileOptions) -> CheckedProgram[Compiled]:
    """Compile the file `model` as `requested` and check the result, whatever work that is."""
    made = plan_model(model, requested)
    with scratch_folder("check") as place:
        written = write_artifact(made, place)
        return checked_program(made, written, check_results(place, written, model))


def checked_program(program: T, artifact: Artifact, check: CheckResult) -> CheckedProgram[T]:
    """A `program`, written as `artifact`, with its check."""
    return CheckedProgram(program, artifact.target, _backend_name(artifact), artifact.operators, check)


def check_results(
    folder: Path, artifact: Artifact, model: Path, mode: CheckMode = CheckMode.ALWAYS, limit: int = LIMIT
) -> CheckResult:
    """Run the artifact in `folder` on the local runner and `model` on its reference; nothing is changed."""
    if mode is CheckMode.NEVER:
        return NOT_REQUESTED
    work = work_of(artifact)
    inputs = inputs_of(work, mode, limit)
    too_much = "" if inputs else work.too_much(_FEWEST, limit)
    if reason := _reason_not_run(artifact):
        return CheckResult(reason=too_much or reason)
    report_phase("checking results")
    if not inputs:
        return _check_sample(artifact, model, limit, CheckResult(reason=too_much))
    from fvp_runner import RunRequest

    from .judge import run_in_worker

    with pause_clock():  # nothing is searched
        return judge_run(
            artifact,
            run_in_worker(RunRequest(str(folder), str(model), inputs, artifact.target.operators, artifact.target.io)),
        )


def _check_sample(artifact: Artifact, model: Path, limit: int, unchecked: CheckResult) -> CheckResult:
    if is_onnx(model) or is_torch(model) or is_tosa(data := read_source(model, artifact.target.io)):
        return unchecked
    sample = draw_sample(fold_constants(data, model.name), works_of(artifact), len(INPUTS), limit)
    options = replace(artifact.target, npu_compiler=_backend_name(artifact))
    return check_sample(sample, options, unchecked, lambda path, made: compile_candidate(path, made).check)


def inputs_of(work: CheckWork, mode: CheckMode, limit: int) -> tuple[str, ...]:
    """The inputs on which so much `work` is done; none where that is too much unasked."""
    if mode is not CheckMode.AUTO:
        return INPUTS
    return INPUTS[: next((n for n in (len(INPUTS), _FEWEST) if not work.too_much(n, limit)), 0)]


def _reason_not_run(artifact: Artifact) -> str:
    """Why an artifact cannot be run here at all; "" if it can."""
    from ..c_compiler import missing_compiler

    if artifact.target.external:
        return f"the C of {', '.join(artifact.target.external)} is not here (--host-ops OP=SIZE)"
    return missing_compiler() or ""


def _backend_name(artifact: Artifact) -> str:
    """The compiler of the NPU's operations, as --npu-compiler says it."""

    from ..tuning.selection import COMPILERS  # imports TVM, which a cached program does without

    made_by = artifact.target.npu_compiler
    return COMPILERS.get(artifact.backend, made_by) if made_by == AUTO else made_by
