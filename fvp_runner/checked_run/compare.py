"""A checked run: the reference, the run on the local runner, and the comparison of every element of every output.

Invariant: the reference runs before the program, so that whatever ends the process later is the program's doing; what
the reference cannot do is a reason not to compare, never a fault of the program. States are kept from one input to the
next, where there are any; else every run is one from a fresh start. Of a file for TFLite Micro NPU calls run on the NPU
model with all checks, operators that are left by the reference's kernels; tensors lie where the file's plan has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npu_memplan.artifact import Artifact
from npu_memplan.errors import NpuMemplanError
from npu_memplan.files.arrays import read_inputs
from npu_memplan.models.flatbuffer import read_file
from npu_memplan.models.folding import fold_constants
from npu_memplan.models.tflite import read_network
from npu_memplan.problem import Agent
from npu_memplan.process.ending import raise_lack_of_memory

from ..base import RunCheckError, RunnerError, RunOptions, RunTimeoutError
from ..host.runner import LocalRunner
from ..layers import LayerComparison, recorded_run
from ..npu_model.errors import NpuModelError
from ..npu_model.network import LayerRecorder, NetworkModel, compare_layers
from ..references.base import KeptStates, RealReference
from ..references.kernels import continue_from, describe_disagreements, find_disagreements
from ..references.opened import open_reference
from ..result import Array, ComparisonError, OperatorResult, Verdict, compare_outputs
from .facts import OPERATORS, PROGRAM, REFERENCE, InputFacts, RunFacts, RunRequest

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_MESSAGE_CHARACTERS = 400


def open_model(
    request: RunRequest,
    inputs: Sequence[Sequence[Array]],
    keeps_states: bool,
    report_phase: Callable[[str, RunFacts], None],
) -> tuple[RunFacts, Any, list[tuple[Array, ...]]] | RunFacts:
    """Facts so far, the reference, and its outputs for each of `inputs`; facts alone where it cannot run them."""
    folder = Path(request.directory)
    report_phase(REFERENCE, RunFacts())
    try:
        _load_operators_of(request.operators)
        model = open_reference(Path(request.model), request.io, apart=False)
        expected = _reference_outputs(model, inputs, keeps_states)
    except NpuMemplanError as error:
        return RunFacts(refused=describe_error(error, folder))
    except Exception as error:  # of a library: its importers raise whatever comes first
        raise_lack_of_memory(error)
        text = f"{type(error).__name__}: {describe_error(error, folder)}"
        return RunFacts(refused=f"the reference cannot run it: {text}")
    return RunFacts(reference=model.what, reference_package=model.package), model, expected


def _reference_outputs(model: Any, inputs: Sequence[Sequence[Array]], keeps_states: bool) -> list[tuple[Array, ...]]:
    if not keeps_states:
        return [model.run(values) for values in inputs]
    model.reset()
    return [model.step(values) for values in inputs]


def _load_operators_of(operators: Sequence[str]) -> None:
    if operators:
        from npu_memplan.frontend.host_ops.own import load_operators

        for path in operators:
            load_operators(path)


def describe_error(error: BaseException, folder: Path | None) -> str:
    """One line of an error's message, without what differs from one run to the next."""
    text = str(error).strip() or type(error).__name__
    if folder is not None:
        text = text.replace(str(folder), folder.name if not folder.name.startswith(".") else "it")
    return " ".join(_ADDRESS.sub("0x...", text).split())[:_MESSAGE_CHARACTERS]


_OPERATION = re.compile(r"operation (\d+) \(")  # as npu_model/spec/feature_maps.py names one
_FLOATS_APART = 1e-4  # of the greatest value of an output
_DIFFERENCES = 12  # operators that differ, each of which is examined


def compare_runs(request: RunRequest, report_phase: Callable[[str, RunFacts], None]) -> RunFacts:
    """The facts of `request`; `report_phase` is called before each phase, with the facts so far."""
    directory, artifact = Path(request.directory), Artifact.load(request.directory)
    inputs = [read_inputs(artifact.name, artifact.inputs, [text]) for text in request.inputs]
    opened = open_model(request, inputs, bool(artifact.states), report_phase)
    if isinstance(opened, RunFacts):
        return opened
    facts, model, expected = opened
    try:
        runner = LocalRunner(directory, RunOptions(pools_after=False))
    except RunnerError as error:
        return RunFacts(refused=describe_error(error, directory))
    runs: list[InputFacts] = []
    for text, values, wanted in zip(request.inputs, inputs, expected, strict=True):
        report_phase(PROGRAM, facts)
        try:
            runs.append(_compare_outputs(runner, text, values, wanted, fresh=not (artifact.states and runs)))
        except RunTimeoutError as error:
            return RunFacts(refused=describe_error(error, directory))
        facts = _add_runs(facts, runs)
        if runs[-1].stopped:
            break
        if runs[-1].has_difference and isinstance(model, RealReference):
            report_phase(OPERATORS, facts)
            runs[-1] = replace(runs[-1], limits=_output_tolerances(model, values, wanted))
            facts = _add_runs(facts, runs)
        if runs[-1].has_difference and (not artifact.states or len(runs) == 1) and isinstance(model, KeptStates):
            report_phase(OPERATORS, facts)
            rows = compare_operators(runner, model, values)
            runs[-1] = InputFacts(text, runs[-1].outputs, operators=rows)
            facts = _add_runs(facts, runs)
            if not facts.references_disagree:
                found = describe_disagreements(find_disagreements(model, values, wanted))
                facts = replace(facts, references_disagree=found)
    return facts


def _add_runs(facts: RunFacts, runs: Sequence[InputFacts]) -> RunFacts:
    return replace(facts, runs=tuple(runs))


def _compare_outputs(
    runner: LocalRunner, text: str, values: Sequence[Array], wanted: Sequence[Array], fresh: bool
) -> InputFacts:
    try:
        ran = runner.run(values) if fresh else runner.run_next(values)
        names = [slot.name for slot in runner.artifact.outputs]
        return InputFacts(text, compare_outputs("local", names, ran.outputs, wanted).outputs)
    except RunTimeoutError:
        raise
    except (NpuModelError, RunCheckError, RunnerError, ComparisonError) as error:
        return InputFacts(text, stopped=describe_error(error, None), operator=_operator_at(runner, error))


def _operator_at(runner: LocalRunner, error: NpuMemplanError) -> int:
    """The operator of the source model whose NPU operation an error of the NPU model names; -1: it names none."""
    found = _OPERATION.match(str(error)) if isinstance(error, NpuModelError) else None
    calls = [call.operators for call in runner.artifact.calls if call.agent is Agent.NPU]
    if found is None or not 0 < runner.launch_count <= len(calls):
        return -1
    served, number = calls[runner.launch_count - 1], int(found[1])
    return served[number] if number < len(served) else -1


def _output_tolerances(model: RealReference, values: Sequence[Array], wanted: Sequence[Array]) -> tuple[float, ...]:
    """How far each output may be away; float code between quantisations differs in its last bits."""
    with suppress(Exception):  # of the library: without limits nothing is judged by them
        floors = (_FLOATS_APART * float(np.abs(one.astype(np.float64)).max(initial=0.0)) for one in wanted)
        return tuple(max(pair) for pair in zip(model.change_by_steps(values), floors, strict=True))
    return ()


def compare_operators(runner: LocalRunner, model: KeptStates, values: Sequence[Array]) -> tuple[OperatorResult, ...]:
    """Operator by operator; nothing for programs whose operators cannot be seen one by one.

    Behind an operator that differs, the reference goes on from what the program made there: so each is judged by the
    inputs that it got.
    """
    rows: list[OperatorResult] = []
    found: dict[int, OperatorResult] = {}  # those that differ on inputs that are known to be right, or their own
    with suppress(NpuMemplanError):
        ran, written = recorded_run(runner, values)
        data = fold_constants(model.model)
        network, layers = read_network(data, model.name), model.layer_values(values)
        made: dict[int, Array] = {}
        while True:
            compared = LayerComparison(network, layers, written, ran.outputs)
            rows = compared.operator_results()
            row = next((r for r in rows if r.verdict is Verdict.DIFFERS and r.index not in found), None)
            if row is None:
                break
            found[row.index] = row
            seen = compared.outputs_of(row.index)
            if not seen or len(found) == _DIFFERENCES:
                break
            made |= seen
            layers = continue_from(data, network, values, layers, made)
    follows = [replace(r, verdict=Verdict.FOLLOWS) if r.verdict is Verdict.DIFFERS else r for r in rows]
    return tuple(found.get(r.index, r) for r in follows)


def compare_file(request: RunRequest, report_phase: Callable[[str, RunFacts], None]) -> RunFacts:
    """The facts of `request`, whose program is a file; `report_phase` as for `compare_runs`. Every run begins anew."""
    path = Path(request.directory)
    data = read_file(path)
    parsed = read_network(data, path.name)
    wanted = [parsed.tensors[i] for i in parsed.inputs]
    inputs = [read_inputs(path.name, wanted, [text]) for text in request.inputs]
    opened = open_model(request, inputs, False, report_phase)
    if isinstance(opened, RunFacts):
        return opened
    facts, model, expected = opened
    names = [parsed.tensors[i].name for i in parsed.outputs]
    runs: list[InputFacts] = []
    network = NetworkModel(parsed, data)
    for text, values, made in zip(request.inputs, inputs, expected, strict=True):
        report_phase(PROGRAM, facts)
        recorder = LayerRecorder()
        network.reset()
        try:
            ran = network.run(values, recorder)
            outputs = compare_outputs("npu_model", names, ran.outputs, made).outputs
        except NpuMemplanError as error:
            runs.append(InputFacts(text, stopped=describe_error(error, None)))
        else:
            differs = any(output.mismatches for output in outputs)
            rows = _first_operator(model, values, recorder) if differs and isinstance(model, KeptStates) else ()
            runs.append(InputFacts(text, outputs, operators=rows))
        facts = RunFacts("", facts.reference, facts.reference_package, tuple(runs))
        if runs[-1].stopped:
            break
    return facts


def _first_operator(model: KeptStates, values: Sequence[Any], recorder: LayerRecorder) -> tuple[OperatorResult, ...]:
    """The operator of the first tensor that the NPU wrote otherwise; nothing where none can be blamed."""
    first = compare_layers(model.network, model.layer_values(values), recorder.written).first
    if first is None:
        return ()
    writer = next((o for o in model.network.cpu_operators if first.index in o.outputs), None)
    if writer is None:
        return ()
    return (
        OperatorResult(
            writer.index, model.network.tensors[writer.outputs[0]].name, writer.name, Verdict.DIFFERS, first.elements,
            first.mismatches, first.max_abs_diff, where=first.where,
        ),
    )  # fmt: skip
