"""`link`, `tvmc compile` and `--emit vela-tflite` check what they write, as `compile` does.

Invariant: none of them writes a program whose check found more than is claimed. A network runs from its place in the
application; where another program of it is right, all networks are placed again with that one. A library's program runs
as an artifact, at the same places in its pools. A file for TFLite Micro runs on the NPU model, with the reference's
kernels for the CPU.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..artifact import Artifact
from ..artifact.files import Application
from ..artifact.model import NOT_REQUESTED, CheckResult, Operator
from ..clock import pause_clock
from ..codegen.mlf import Library
from ..compiler import plan_network
from ..errors import InternalError
from ..ethosu.stream.decode import decode
from ..ethosu.time import estimate
from ..exactness import MICRO, Claim, Code, Exactness
from ..files.folders import scratch_folder
from ..frontend.tflite.description import known_of
from ..link.networks import Compile, Linked
from ..models.edits import read_source
from ..models.folding import fold_constants
from ..models.tflite import read_network
from ..options import AUTO, NO_NPU, CompileOptions
from ..pipeline import build
from ..problem import Agent
from ..process.incidents import gather_incidents, report_phase
from ..report.files import record_artifact, write_artifact
from ..report.text.compile_result import difference_text
from ..stages import Planned
from ..tuning.selection import COMPILERS
from ..tvmc.compile import library_of, plan_program
from ..tvmc.options import TvmcOptions
from ..vela_tflite.emit import Emitted, emit
from .claims import (
    INPUTS,
    CheckedProgram,
    check_results,
    checked_program,
    compile_candidate,
    given_up_notes,
    inputs_of,
    right_program,
)
from .judge import LIMIT, LIMIT_OF_SEARCHES, CheckMode, CheckWork, Judged, is_right, judge_program, unit_of, with_result
from .sampling import SampleNetwork, check_sample, draw_sample, works_of_layers

Written = tuple[Application, Artifact]


def link_checked(
    models: Mapping[str, Path],
    folder: Path,
    link: Callable[[Compile], Linked],
    write: Callable[[Linked], Written],
    mode: CheckMode,
) -> tuple[Written, dict[str, Artifact]]:
    """Let `write` put the networks that `link` makes into the empty `folder`; return its result, and each network with
    its check, by name.

    `models`: the file of each network that is compiled. Raises `InternalError` where no program of a network is right.
    """
    others: dict[Path, CheckedProgram[str]] = {}
    while True:
        linked = link(partial(_plan_other, others))
        written = write(linked)
        artifacts, wrong = _check_networks(models, folder, mode, others)
        if not wrong:
            return written, {name: record_artifact(artifact, folder / name) for name, artifact in artifacts.items()}
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
    models: Mapping[str, Path], folder: Path, mode: CheckMode, others: Mapping[Path, CheckedProgram[str]]
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
            with gather_incidents():
                taken = right_program(
                    checked_program(name, artifact, check), artifact.target, partial(_make_other, name, model)
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
    return with_result(replace(artifact, notes=(*artifact.notes, *given_up_notes(other))), check)


_RUNNER = "NPU model, with the reference's kernels for the CPU"


def emit_checked(model: Path, options: CompileOptions, mode: CheckMode = CheckMode.AUTO) -> Emitted:
    """The file of `model`, checked, or another one in its place that is right. Raises as `emit`, and `InternalError`
    where none is right."""
    if options.accelerator == NO_NPU:  # the model's own operators: there is nothing to compare
        return emit(model, options)
    with gather_incidents():
        first = _emit_candidate(model, options, mode)
        taken = right_program(first, options, partial(_emit_candidate, model))
        if taken is first:
            return first.program
        return replace(taken.program, check=taken.check, notes=(*taken.program.notes, *given_up_notes(taken)))


def _emit_candidate(
    model: Path, requested: CompileOptions, mode: CheckMode = CheckMode.ALWAYS
) -> CheckedProgram[Emitted]:
    """The file that `requested` makes of `model`, with its check."""
    emitted = emit(model, requested)
    made_by = requested.npu_compiler
    if made_by == AUTO:  # `emit` takes Vela's stream where nothing is compared
        made_by = COMPILERS.get(emitted.planned.extracted.loaded.backend, "vela")
    operators = _operators_of(model, emitted, Code.LIFTED if made_by == "vela" else Code.LOWERED, requested.io)
    check = _check_emitted(model, emitted, requested, operators, mode, made_by)
    return CheckedProgram(
        replace(emitted, operators_of_model=operators, check=check), requested, made_by, operators, check
    )


def _check_emitted(
    model: Path, emitted: Emitted, options: CompileOptions, operators: tuple[Operator, ...], mode: CheckMode,
    made_by: str,
) -> CheckResult:  # fmt: skip
    if mode is CheckMode.NEVER:
        return NOT_REQUESTED
    calls = _calls_work(emitted, options)
    operations, macs = sum(len(call) for call in calls), sum(macs for call in calls for macs in call)
    work = CheckWork(operations, macs, emitted.constants_bytes)
    limit = LIMIT_OF_SEARCHES if options.has_rivals else LIMIT
    inputs = inputs_of(work, mode, limit)
    if not inputs:
        report_phase("checking results")
        unchecked, options = CheckResult(reason=work.too_much(1, limit)), replace(options, npu_compiler=made_by)
        sample = _draw_sample(model, emitted, options, calls, limit)
        return check_sample(sample, options, unchecked, lambda path, made: _emit_candidate(path, made).check)
    report_phase("checking results")
    from fvp_runner import RunRequest

    from .judge import run_in_worker

    with scratch_folder("check") as folder, pause_clock():
        file = folder / f"{model.stem}.tflite"
        file.write_bytes(emitted.content)
        outputs = read_network(emitted.content, model.name)
        unit = unit_of(outputs.tensors[i].dtype for i in outputs.outputs)
        request = RunRequest(str(file), str(model), inputs, io=options.io)
        return judge_program(Judged(operators, unit, _RUNNER), run_in_worker(request))


def _calls_work(emitted: Emitted, options: CompileOptions) -> list[list[int]]:
    """Of each call for the NPU, the MACs of each operation."""
    memory_map = options.resolve_defaults().memory_map()
    assert memory_map is not None  # there is an NPU
    calls = read_network(emitted.content, "").npu_calls
    found = [estimate(decode(call.words, call.accelerator.language), call.accelerator, memory_map) for call in calls]
    return [[share.macs for share in time.shares] for time in found]


def _draw_sample(
    model: Path, emitted: Emitted, options: CompileOptions, calls: list[list[int]], limit: int
) -> SampleNetwork | None:
    """Operators of the NPU as `draw_sample` takes them, with their indices in the file `model`."""
    layers: dict[int, list[int]] = {}
    for macs, operators in zip(calls, emitted.served, strict=True):
        for operator, each in zip(operators, macs, strict=bool(operators)):
            layers.setdefault(operator, []).append(each)
    rows = [(operator, len(macs), sum(macs)) for operator, macs in layers.items()]
    data = read_source(model, options.io)
    # native lowering reads a file without operators of constants
    lowered = data if options.npu_compiler == "vela" else fold_constants(data, model.name)
    sample = draw_sample(lowered, lambda network: works_of_layers(network, rows), len(INPUTS), limit)
    if sample is None:
        return None
    places = {operator.outputs: operator.index for operator in read_network(data, model.name).cpu_operators}
    left = read_network(lowered, model.name).operators
    return replace(sample, operators=tuple(places[left[index].outputs] for index in sample.operators))


def _operators_of(model: Path, emitted: Emitted, code: Code, io: str) -> tuple[Operator, ...]:
    """The model's operators: those that the file left to the CPU, which the firmware's kernels run, and the NPU's."""
    network = read_network(read_source(model, io), model.name)
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

    def make_library(wanted: TvmcOptions, how: CheckMode) -> _Program:
        made = plan_program(wanted)
        compiled = build(made)
        with scratch_folder("check") as place:
            artifact = write_artifact(compiled, place)
            limit = LIMIT_OF_SEARCHES if artifact.target.has_rivals else LIMIT
            check = check_results(place, artifact, wanted.model, how, limit)
        return checked_program((wanted, made, artifact), artifact, check)

    def make_other(requested: CompileOptions) -> _Program:
        other = replace(options, npu_compiler=requested.npu_compiler, host_ops=requested.host_ops)
        return make_library(other, CheckMode.ALWAYS)

    with gather_incidents():
        first = make_library(options, mode)
        requested = replace(first.target, npu_compiler=options.npu_compiler)
        taken = right_program(first, requested, make_other)
        wanted, made, artifact = taken.program
        artifact = with_result(replace(artifact, notes=(*artifact.notes, *given_up_notes(taken))), taken.check)
        return library_of(wanted, made), artifact
