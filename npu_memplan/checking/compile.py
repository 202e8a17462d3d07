"""A compile that checks what it claims: compared with its reference, and made otherwise where results differ.

Invariant: what is written has the check of that very program in its plan.json. A program whose check finds more than it
claims is never written: another backend's is, or one with operators on the CPU, or none (`InternalError`). What takes
its place was checked too: it is off by no more than it claims, and has no unproven operator of the NPU off by more than
a step.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..artifact import Artifact
from ..artifact.check import NOT_REQUESTED, CheckResult, CheckVerdict, GivenUp
from ..cache.programs import ProgramCache
from ..clock import limited, paused
from ..compiler import plan_model
from ..errors import InternalError, NpuMemplanError
from ..files.owned_folder import scratch_folder
from ..files.staging import staged_directory
from ..fit.trials import FitResult, compile_to_fit
from ..options import AUTO, NO_NPU, CompileOptions
from ..problem import Agent
from ..process.incidents import Fallback, contained, fall_back, gathering, report_fault
from ..process.phases import report_phase
from ..report.text.checked import difference, why_given_up
from ..report.writing import record, write
from ..stages import Compiled
from .budget import LIMIT, LIMIT_OF_SEARCHES, too_much
from .judge import is_right, judge, suspects, with_result
from .mode import CheckMode, check_mode

INPUTS = ("random:0", "extreme")
_FEWEST = 1  # of them, where more are much work
_TRIED = 6  # other programs at most


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
    if is_right(artifact, result):
        return record(with_result(artifact, result), folder)
    found = _other(model, options, artifact, result)
    if found is None:
        if result.verdict is CheckVerdict.DIFFERS:
            raise InternalError(
                f"{artifact.name}: {difference(result)}; no other program of it was right, and none is written "
                "(--no-check writes the first)"
            )
        return record(with_result(artifact, result), folder)
    shutil.rmtree(folder / "src")
    (folder / "layers.csv").unlink(missing_ok=True)
    return record(_noted(write(found[0], folder), found[1]), folder)


def check_results(
    folder: Path, artifact: Artifact, model: Path, mode: CheckMode = CheckMode.ALWAYS, limit: int = LIMIT
) -> CheckResult:
    """Run the artifact in `folder` on the local runner and `model` on its reference; nothing is changed."""
    if mode is CheckMode.NEVER:
        return NOT_REQUESTED
    inputs: tuple[str, ...] = INPUTS
    if mode is CheckMode.AUTO:
        count = next((n for n in (len(INPUTS), _FEWEST) if not too_much(artifact, n, limit)), 0)
        if not count:
            return CheckResult(reason=too_much(artifact, _FEWEST, limit))
        inputs = INPUTS[:count]
    reason = _cannot(artifact)
    if reason:
        return CheckResult(reason=reason)
    report_phase("checking results")
    from fvp_runner.checked_run.facts import RunRequest

    from .worker import run

    with paused():  # nothing is searched
        return judge(artifact, run(RunRequest(str(folder), str(model), inputs, artifact.target.operators)))


def _cannot(artifact: Artifact) -> str:
    """Why an artifact cannot be run here at all; "" if it can."""
    from ..c_compiler import missing_compiler

    if artifact.target.external:
        return f"the C of {', '.join(artifact.target.external)} is not here (--external)"
    return missing_compiler() or ""


def _other(
    model: Path, options: CompileOptions, artifact: Artifact, result: CheckResult
) -> tuple[Compiled, CheckResult] | None:
    """Another program that is right, and its check, which says what was given up; None if there is none.

    Each is checked, whatever work that is: where operators move to the CPU, it is more than the first check was.
    """
    gone = [_gone(artifact, result)]
    alternatives = _Alternatives(options, artifact, result)
    for left in reversed(range(_TRIED)):
        requested = alternatives.next(is_last=not left)
        if requested is None:
            break
        other = CheckResult()
        with contained(shlex.join(_flags(requested))), scratch_folder("check") as folder, suppress(NpuMemplanError):
            compiled = plan_model(model, requested)
            other = check_results(folder, write(compiled, folder), model)
        if other.verdict in (CheckVerdict.EQUAL, CheckVerdict.AS_CLAIMED) and is_right(compiled.artifact, other):
            return compiled, replace(other, given_up=tuple(gone))
        if other.first is not None:
            gone.append(_gone(compiled.artifact, other))
            alternatives.learn(compiled.artifact, other)
    return None


class _Alternatives:
    """Options for other programs: the other backend where none was named, then the suspects on the host, those of
    programs that were tried on the way too, at last all kinds that the NPU had."""

    def __init__(self, options: CompileOptions, artifact: Artifact, result: CheckResult) -> None:
        self._options, self._made_by = options, _backend(artifact)
        self._kept: tuple[str, ...] = ()
        self._waiting: list[str] = []
        self._all = dict.fromkeys(o.kind for o in artifact.operators if o.agent is Agent.NPU)
        self._other = ""
        if options.accelerator == NO_NPU or result.first is None:
            return
        self._waiting += suspects(artifact, result.first)
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

    def learn(self, artifact: Artifact, result: CheckResult) -> None:
        """An alternative differs as well: what it may be goes to the host first."""
        if self._kept and result.first is not None:
            found = [kind for kind in suspects(artifact, result.first) if kind not in self._kept]
            self._waiting = [*found, *(kind for kind in self._waiting if kind not in found)]


def _gone(artifact: Artifact, result: CheckResult) -> GivenUp:
    assert result.first is not None
    return GivenUp(_flags(artifact.target, _backend(artifact)), result.reference, result.first)


def _backend(artifact: Artifact) -> str:
    """What made the NPU's operations, as --npu-compiler says it."""
    from ..tuning.selection import COMPILERS

    made_by = artifact.target.npu_compiler
    return COMPILERS.get(artifact.backend, made_by) if made_by == AUTO else made_by


def _flags(target: CompileOptions, npu_compiler: str = "") -> tuple[str, ...]:
    """The options that tell programs of one compile from each other."""
    return (
        "--npu-compiler",
        npu_compiler or target.npu_compiler,
        *(("--host-ops", ",".join(target.host_ops)) if target.host_ops else ()),
    )


def _noted(artifact: Artifact, result: CheckResult) -> Artifact:
    notes = tuple(why_given_up(gone, _flags(artifact.target, _backend(artifact))) for gone in result.given_up)
    for gone, note in zip(result.given_up, notes, strict=True):
        if gone.flags[1] == "vela":
            fall_back(Fallback.PROGRAM, note)
        else:
            report_fault(artifact.name, InternalError(note))
    return with_result(replace(artifact, notes=(*artifact.notes, *notes)), result)
