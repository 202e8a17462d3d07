"""`--emit vela-tflite` checks what it claims: the file runs on the NPU model, beside the reference of its model.

Invariant: as of `compile`: a file whose check found more than is claimed is never written.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..artifact.check import NOT_REQUESTED, CheckResult
from ..artifact.parts import Operator
from ..clock import paused
from ..ethosu.stream.decode import decode
from ..ethosu.time import estimate
from ..exactness import MICRO, Claim, Code, Exactness
from ..files.owned_folder import scratch_folder
from ..frontend.tflite.described import known_of
from ..models.file import read_file
from ..models.tflite import read_network
from ..options import AUTO, CompileOptions
from ..problem import Agent
from ..process.incidents import gathering
from ..process.phases import report_phase
from ..tuning.selection import COMPILERS
from ..vela_tflite.emit import Emitted, emit
from .budget import LIMIT, LIMIT_OF_SEARCHES, CheckWork
from .candidates import CheckedProgram, notes, right_program
from .compile import inputs_of
from .judge import Judged, judge_program, unit_of
from .mode import CheckMode

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

    from .worker import run

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
