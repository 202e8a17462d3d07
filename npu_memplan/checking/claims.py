"""Each command that compiles checks what it claims.

Which program of a model is taken where the check found one wrong: another one that is right, or none.

Invariant: a program whose check found more than its operators claim is never taken; what was given up for another one
is stated. This holds for whatever is written of it: an artifact, a file for TFLite Micro.

A compile that checks what it claims: compared with its reference, and made otherwise where results differ.

Invariant: what is written has the check of that very program in its plan.json. A program whose check finds more than it
claims is never written: another backend's is, or one with operators on the CPU, or none (`InternalError`). What takes
its place was checked too: it is off by no more than it claims, and has no unproven operator of the NPU off by more than
a step.

`link` checks what it claims: each network runs from its place in the application, beside its reference.

Invariant: as of `compile`: a network whose check found more than is claimed is never written. Where another program of
it is right, all networks are placed again with that one, and checked again. An artifact keeps the check that it has.

`--emit vela-tflite` checks what it claims: the file runs on the NPU model, beside the reference of its model.

Invariant: as of `compile`: a file whose check found more than is claimed is never written.

`tvmc compile` checks what it claims: the library's program runs as an artifact, beside the reference of its model.

Invariant: as of `compile`: a library of a program whose check found more than is claimed is never written. The library
has that program at the same places in its pools; only the NPU's base addresses have other numbers.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from ..artifact import Artifact
from ..artifact.files import Application
from ..artifact.model import NOT_REQUESTED, CheckResult, CheckVerdict, GivenUp, Operator
from ..cache import ProgramCache
from ..clock import limited, paused
from ..codegen.mlf import Library
from ..compiler import plan_model, plan_network
from ..errors import InternalError, NpuMemplanError
from ..ethosu.stream.decode import decode
from ..ethosu.time import estimate
from ..exactness import MICRO, Claim, Code, Exactness
from ..files.folders import scratch_folder, staged_directory
from ..fit import FitResult, compile_to_fit
from ..frontend.tflite.described import known_of
from ..link.networks import Compile, Linked
from ..models.flatbuffer import read_file
from ..models.tflite import read_network
from ..options import AUTO, NO_NPU, CompileOptions
from ..pipeline import build
from ..problem import Agent
from ..process.incidents import Fallback, contained, fall_back, gathering, report_fault, report_phase
from ..report.files import record, write
from ..report.text.compile_result import difference_text, why_given_up
from ..stages import Compiled, Planned
from ..tuning.selection import COMPILERS
from ..tvmc.compile import library_of, plan_program
from ..tvmc.options import TvmcOptions
from ..vela_tflite.emit import Emitted, emit
from .judge import (
    LIMIT,
    LIMIT_OF_SEARCHES,
    CheckMode,
    CheckWork,
    Judged,
    check_mode,
    is_right,
    judge,
    judge_program,
    suspects,
    unit_of,
    with_result,
    work_of,
)

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
    text = f"{difference_text(first.check)}{tried}; nothing is written (--no-check writes it as it is)"
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

    from .judge import run

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


Written = tuple[Application, Artifact]


def link_checked(
    models: Mapping[str, Path],
    folder: Path,
    link: Callable[[Compile], Linked],
    write: Callable[[Linked], Written],
    mode: CheckMode,
) -> tuple[Written, dict[str, Artifact]]:
    """What `write` puts into the empty `folder` of the networks that `link` makes, and each with its check, by name.

    `models`: the file of each network that is compiled. Raises `InternalError` where no program of a network is right.
    """
    others: dict[Path, CheckedProgram[str]] = {}
    while True:
        linked = link(partial(_plan_other, others))
        written = write(linked)
        artifacts, wrong = _check_networks(models, folder, mode, others)
        if not wrong:
            return written, {name: record(artifact, folder / name) for name, artifact in artifacts.items()}
        others |= wrong
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _plan_other(others: Mapping[Path, CheckedProgram[str]], model: Path, options: CompileOptions) -> Planned:
    """The program of `model`; of the one that was taken in its place, if there is one."""
    other = others.get(model)
    if other is not None:
        options = replace(options, npu_compiler=other.made_by, host_ops=other.target.host_ops)
    return plan_network(model, options)


def _check_networks(
    models: Mapping[str, Path],
    folder: Path,
    mode: CheckMode,
    others: Mapping[Path, CheckedProgram[str]],
) -> tuple[dict[str, Artifact], dict[Path, CheckedProgram[str]]]:
    """The networks with their checks; and by model the program to take in place of one that is wrong."""
    artifacts: dict[str, Artifact] = {}
    wrong: dict[Path, CheckedProgram[str]] = {}
    for name, model in models.items():
        other = others.get(model)
        artifact = Artifact.load(folder / name)
        check = check_results(folder / name, artifact, model, mode if other is None else CheckMode.ALWAYS, LIMIT)
        if is_right(artifact.operators, check):
            artifacts[name] = _with_check(artifact, check, other)
        elif other is not None:  # right by itself, and not in its place
            raise InternalError(f"{name}: {difference_text(check)}; nothing is written")
        else:
            with gathering():
                taken = right_program(
                    candidate(name, artifact, check), artifact.target, partial(_make_other, name, model)
                )
            if taken.check is check:
                artifacts[name] = _with_check(artifact, check, None)
            else:
                wrong[model] = taken
    return artifacts, wrong


def _make_other(name: str, model: Path, requested: CompileOptions) -> CheckedProgram[str]:
    program = compile_candidate(model, requested)
    return CheckedProgram(name, program.target, program.made_by, program.operators, program.check)


def _with_check(artifact: Artifact, check: CheckResult, other: CheckedProgram[str] | None) -> Artifact:
    if other is None:
        return with_result(artifact, check)
    check = replace(check, given_up=other.check.given_up)
    return with_result(replace(artifact, notes=(*artifact.notes, *notes(other))), check)


_RUNNER = "NPU model, with the reference's kernels for the CPU"


def emit_checked(model: Path, options: CompileOptions, mode: CheckMode = CheckMode.AUTO) -> Emitted:
    """The file of `model`, checked, or another one in its place that is right. Raises as `emit`, and `InternalError`
    where none is right."""
    limit = LIMIT_OF_SEARCHES if options.competes else LIMIT

    def made(requested: CompileOptions, how: CheckMode) -> CheckedProgram[Emitted]:
        emitted = emit(model, requested)
        loaded = emitted.planned.extracted.loaded
        made_by = requested.npu_compiler
        made_by = COMPILERS.get(loaded.backend, made_by) if made_by == AUTO else made_by
        operators = _operators(model, emitted, Code.LIFTED if made_by == "vela" else Code.LOWERED)
        check = _check(model, emitted, requested, operators, how, limit)
        return CheckedProgram(
            replace(emitted, operators_of_model=operators, check=check), requested, made_by, operators, check
        )

    with gathering():
        first = made(options, mode)
        taken = right_program(first, options, lambda requested: made(requested, CheckMode.ALWAYS))
        if taken is first:
            return first.program
        return replace(taken.program, check=taken.check, notes=(*taken.program.notes, *notes(taken)))


def _check(
    model: Path, emitted: Emitted, options: CompileOptions, operators: tuple[Operator, ...], mode: CheckMode, limit: int
) -> CheckResult:
    if mode is CheckMode.NEVER:
        return NOT_REQUESTED
    work = _work(emitted, options)
    inputs = inputs_of(work, mode, limit)
    if not inputs:
        return CheckResult(reason=work.too_much(1, limit))
    report_phase("checking results")
    from fvp_runner.checked_run.facts import RunRequest

    from .judge import run

    with scratch_folder("check") as folder, paused():
        file = folder / f"{model.stem}.tflite"
        file.write_bytes(emitted.content)
        outputs = read_network(emitted.content, model.name)
        unit = unit_of(outputs.tensors[i].dtype for i in outputs.outputs)
        return judge_program(Judged(operators, unit, _RUNNER), run(RunRequest(str(file), str(model), inputs)))


def _work(emitted: Emitted, options: CompileOptions) -> CheckWork:
    memory_map = options.resolved().memory_map()
    assert memory_map is not None  # there is an NPU
    operations, macs = 0, 0
    for call in read_network(emitted.content, "").npu_calls:
        found = estimate(decode(call.words, call.accelerator.language), call.accelerator, memory_map)
        operations, macs = operations + len(found.shares), macs + found.macs
    return CheckWork(operations, macs, emitted.constants_bytes)


def _operators(model: Path, emitted: Emitted, code: Code) -> tuple[Operator, ...]:
    """The model's operators: those that the file left to the CPU, which the firmware's kernels run, and the NPU's."""
    network = read_network(read_file(model), model.name)
    file = read_network(emitted.content, model.name)
    left = {file.tensors[o.outputs[0]].name for o in file.cpu_operators if o.outputs}
    found = []
    for operator in network.cpu_operators:
        name = network.tensors[operator.outputs[0]].name if operator.outputs else ""
        on_npu = name not in left
        claim = known_of(code, network, operator) if on_npu else Claim(Exactness.EXACT, MICRO)
        found.append(Operator(name, operator.name, Agent.NPU if on_npu else Agent.HOST, claim=claim))
    return tuple(found)


_Program = CheckedProgram[tuple[TvmcOptions, Planned, Artifact]]


def compile_library_checked(options: TvmcOptions, mode: CheckMode) -> tuple[Library, Artifact]:
    """The library of the model that `options` name, or of another program in its place that is right, and the program
    as an artifact, with its check. Raises as `compile_to_mlf`, and `InternalError` where no program is right."""

    def make(wanted: TvmcOptions, how: CheckMode) -> _Program:
        made = plan_program(wanted)
        compiled = build(made)
        with scratch_folder("check") as place:
            artifact = write(compiled, place)
            limit = LIMIT_OF_SEARCHES if artifact.target.competes else LIMIT
            check = check_results(place, artifact, wanted.model, how, limit)
        return candidate((wanted, made, artifact), artifact, check)

    def make_other(requested: CompileOptions) -> _Program:
        other = replace(options, npu_compiler=requested.npu_compiler, host_ops=requested.host_ops)
        return make(other, CheckMode.ALWAYS)

    with gathering():
        first = make(options, mode)
        requested = replace(first.target, npu_compiler=options.npu_compiler)
        taken = right_program(first, requested, make_other)
        wanted, made, artifact = taken.program
        artifact = with_result(replace(artifact, notes=(*artifact.notes, *notes(taken))), taken.check)
        return library_of(wanted, made), artifact
