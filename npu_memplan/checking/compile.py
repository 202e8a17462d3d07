"""A compile that checks what it claims: compared with its reference, and made otherwise where results differ.

Invariant: what is written has the check of that very program in its plan.json. A program whose check finds more than it
claims is never written: another backend's is, or one with operators on the CPU, or none (`InternalError`). What takes
its place was checked too: it is off by no more than it claims, and has no unproven operator of the NPU off by more than
a step.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..artifact import Artifact
from ..artifact.check import NOT_REQUESTED, CheckResult
from ..cache.programs import ProgramCache
from ..clock import limited, paused
from ..compiler import plan_model
from ..files.owned_folder import scratch_folder
from ..files.staging import staged_directory
from ..fit.trials import FitResult, compile_to_fit
from ..options import AUTO, CompileOptions
from ..process.incidents import gathering
from ..process.phases import report_phase
from ..report.writing import record, write
from ..stages import Compiled
from .budget import LIMIT, LIMIT_OF_SEARCHES, CheckWork, work_of
from .candidates import CheckedProgram, notes, right_program
from .judge import is_right, judge, with_result
from .mode import CheckMode, check_mode

INPUTS = ("random:0", "extreme")
_FEWEST = 1  # of them, where more are much work
T = TypeVar("T")


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

    What was given up is an incident; with `strictly`, our own is an `InternalError` then.
    """
    with gathering(), limited(options.time_limit_s), staged_directory(Path(output), force) as folder:
        compiled = plan_model(Path(model), options, cache=cache)
        return write_checked(compiled, folder, Path(model), options, mode, cache)


def compile_to_fit_checked(
    model: Path, options: CompileOptions, output: Path, budget: str, force: bool = False,
    mode: CheckMode = CheckMode.AUTO, say: Callable[[str], None] | None = None, cache: ProgramCache | None = None,
) -> tuple[Artifact, FitResult]:  # fmt: skip
    """`compile_to_fit`, of which what was chosen is checked."""

    def written(compiled: Compiled, folder: Path) -> Artifact:
        chosen = replace(compiled.artifact.target, npu_compiler=options.npu_compiler)
        with gathering():
            return write_checked(compiled, folder, model, chosen, mode, cache)

    return compile_to_fit(model, options, output, budget, written, force, say, cache)


def start(check: bool | None, is_known: bool = False) -> CheckMode:
    """The mode requested; where a check may come, its process begins meanwhile, unless it `is_known`."""
    mode = check_mode(check)
    if mode is not CheckMode.NEVER and not is_known:
        from .worker import start_worker

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
    artifact = write(compiled, folder)
    limit = LIMIT_OF_SEARCHES if options.competes else LIMIT

    def check() -> CheckResult:
        return check_results(folder, artifact, model, mode, limit)

    result = check() if cache is None else cache.checked(artifact, (mode.value, limit), check)
    if is_right(artifact.operators, result):
        return record(with_result(artifact, result), folder)

    taken = right_program(candidate(compiled, artifact, result), options, partial(compile_candidate, model))
    if taken.program is compiled:
        return record(with_result(artifact, result), folder)
    shutil.rmtree(folder / "src")
    (folder / "layers.csv").unlink(missing_ok=True)
    artifact = write(taken.program, folder)
    return record(with_result(replace(artifact, notes=(*artifact.notes, *notes(taken))), taken.check), folder)


def compile_candidate(model: Path, requested: CompileOptions) -> CheckedProgram[Compiled]:
    """What `requested` makes of the file `model`, checked whatever work that is: where operators move to the CPU, it is
    more than the first check was."""
    made = plan_model(model, requested)
    with scratch_folder("check") as place:
        written = write(made, place)
        return candidate(made, written, check_results(place, written, model))


def candidate(program: T, artifact: Artifact, check: CheckResult) -> CheckedProgram[T]:
    """A `program`, written as `artifact`, with its check."""
    return CheckedProgram(program, artifact.target, _backend(artifact), artifact.operators, check)


def check_results(
    folder: Path, artifact: Artifact, model: Path, mode: CheckMode = CheckMode.ALWAYS, limit: int = LIMIT
) -> CheckResult:
    """Run the artifact in `folder` on the local runner and `model` on its reference; nothing is changed."""
    if mode is CheckMode.NEVER:
        return NOT_REQUESTED
    work = work_of(artifact)
    inputs = inputs_of(work, mode, limit)
    if not inputs:
        return CheckResult(reason=work.too_much(_FEWEST, limit))
    reason = _cannot(artifact)
    if reason:
        return CheckResult(reason=reason)
    report_phase("checking results")
    from fvp_runner.checked_run.facts import RunRequest

    from .worker import run

    with paused():  # nothing is searched
        return judge(artifact, run(RunRequest(str(folder), str(model), inputs, artifact.target.operators)))


def inputs_of(work: CheckWork, mode: CheckMode, limit: int) -> tuple[str, ...]:
    """On which inputs so much `work` is done; none where that is too much unasked."""
    if mode is not CheckMode.AUTO:
        return INPUTS
    return INPUTS[: next((n for n in (len(INPUTS), _FEWEST) if not work.too_much(n, limit)), 0)]


def _cannot(artifact: Artifact) -> str:
    """Why an artifact cannot be run here at all; "" if it can."""
    from ..c_compiler import missing_compiler

    if artifact.target.external:
        return f"the C of {', '.join(artifact.target.external)} is not here (--external)"
    return missing_compiler() or ""


def _backend(artifact: Artifact) -> str:
    """What made the NPU's operations, as --npu-compiler says it."""
    from ..tuning.selection import COMPILERS

    made_by = artifact.target.npu_compiler
    return COMPILERS.get(artifact.backend, made_by) if made_by == AUTO else made_by
