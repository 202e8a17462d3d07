"""A file for TFLite Micro, with NPU operators, compared with the reference of the network that it was made of.

Invariant: NPU calls run on the NPU model with all checks, operators that are left by the reference's kernels; tensors
lie where the file's plan has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from npu_memplan.errors import NpuMemplanError
from npu_memplan.files.arrays import read_inputs
from npu_memplan.models.file import read_file
from npu_memplan.models.tflite import read_network

from ..layers.operator_result import OperatorResult, Verdict
from ..npu_model.network.layers import LayerRecorder, compare_layers
from ..npu_model.network.network import NetworkModel
from ..references.base import KeptStates
from ..result import compare
from .facts import PROGRAM, InputFacts, RunFacts, RunRequest
from .open_model import describe_error, open_model


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
        try:
            ran = network.run(values, recorder)
            outputs = compare("npu_model", names, ran.outputs, made).outputs
        except NpuMemplanError as error:
            runs.append(InputFacts(text, stopped=describe_error(error, None)))
        else:
            differs = any(output.mismatches for output in outputs)
            rows = _first_operator(model, values, recorder) if differs and isinstance(model, KeptStates) else ()
            runs.append(InputFacts(text, outputs, operators=rows))
        facts = RunFacts("", facts.reference, facts.reference_version, tuple(runs))
        if runs[-1].stopped:
            break
    return facts


def _first_operator(model: KeptStates, values: Sequence[Any], recorder: LayerRecorder) -> tuple[OperatorResult, ...]:
    """The operator of the first tensor that the NPU wrote otherwise; nothing where none can be blamed."""
    first = compare_layers(model.network, model.layers(values), recorder.written).first
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
