"""LSTMs on the NPU equal tflite-micro, output by output and over several runs; the others say why they stay."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from tests.support.on_model import npu_graph, random_inputs, run_program
from tests.support.operator_models import lstm_layer as layer
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")
from fvp_runner.references.interpreters import Reference
from tests.support.against_reference import host_reasons

STEPS, DEPTH = 3, 7
RUNS = 3


def lstm(time_major: bool = False, batches: int = 1, **options: float) -> bytes:
    """A model of one LSTM."""
    b = ModelBuilder()
    shape = (STEPS, batches) if time_major else (batches, STEPS)
    x = b.tensor((*shape, DEPTH), "int8", 0.03, 4)
    return b.made([x], [layer(b, x, time_major, batches, **options)]).finish()


def _check(model: bytes, npu: str = "ethos-u55-256") -> None:
    graph = npu_graph(model, npu)
    lowered = lower(graph, accelerator(npu))
    inputs = random_inputs(graph)
    data = graph.inputs[0]
    reference = Reference(model)
    for seed in range(RUNS):
        inputs[data] = random_inputs(graph, seed)[data]
        (found,) = run_program(lowered, inputs)
        assert np.array_equal(found, reference.step([inputs[data]])[0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"units": 20},
        {"time_major": True, "batches": 2},
        {"batches": 3, "units": 16},
        {"clip": 1.5},
        {"cell_scale": 2.0**-11},
        {"cell_scale": 2.0**-15},
        {"cell_scale": 2.0**-13, "batches": 2, "clip": 0.7},
    ],
    ids=str,
)
def test_equals_the_reference(options: dict[str, float]) -> None:
    _check(lstm(**options))


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u65-256", "ethos-u65-512"])
def test_equals_the_reference_on_every_npu(npu: str) -> None:
    _check(lstm(units=20), npu)


def test_what_stays_on_the_host_says_why() -> None:
    assert host_reasons(lstm(hidden_scale=0.009)) == ["its hidden state and its output have different scales"]


def test_the_hidden_state_is_copied_once() -> None:
    """Steps read the hidden state where the step before wrote it: in the output."""
    graph = npu_graph(lstm())
    program = lower(graph, accelerator("ethos-u55-256")).program
    hidden = [b.name for b in program.buffers if b.dtype == "int8" and b.role.value == "state"]
    touched = [i for i in range(len(program.operations)) if any(n in hidden for n, _ in program.buffers_of(i))]
    assert len(touched) == 2  # the product of the first step, and the copy at the end


def test_one_after_the_other_and_only_the_last_step() -> None:
    b = ModelBuilder()
    x = b.tensor((1, STEPS, DEPTH), "int8", 0.03, 4)
    y = layer(b, layer(b, x, units=8), units=6)
    last = b.tensor((1, 1, 6), "int8", 0.008, -6)
    begin, end, step = (b.constant(np.array(v, np.int32)) for v in ([0, STEPS - 1, 0], [1, STEPS, 6], [1, 1, 1]))
    b.operator("STRIDED_SLICE", [y, begin, end, step], [last], "StridedSliceOptions")
    _check(b.made([x], [last]).finish())
