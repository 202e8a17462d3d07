"""Whole models by native lowering: wholly on the NPU, equal to tflite-micro, and below the legacy arenas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.interpreters import Reference
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.relax.partition import host_operators, partition_for_ethosu
from npu_memplan.extract import extract
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.planners import plan
from npu_memplan.problem import Agent, BufferKind, Pool
from tests.support.on_model import only_graph, random_inputs, run_program
from tests.support.relax_import import import_relax

SMALL = ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "person_detect", "ad01_int8", "str_ww_ref_model",
         "hello_world_int8", "micro_speech_quantized", "trained_lstm_int8")  # fmt: skip
LARGE = ("mobilenet_v2_pt2tflite_int8", "tf2_mobilenet_v2_1.0_224_ptq")
# bytes of TVM v0.14's pool with hill_climb; its inputs and outputs lie outside
LEGACY_BYTES = {
    "kws_ref_model": 22080,
    "pretrainedResnet_quant": 69312,
    "vww_96_int8": 74480,
    "person_detect": 75680,
    "mobilenet_v2_pt2tflite_int8": 1509728,
}


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_equals_the_reference(name: str, shared_model: Callable[[str], Path]) -> None:
    data = shared_model(name).read_bytes()
    module = partition_for_ethosu(import_relax(data))
    assert host_operators(module) == ()
    graph = only_graph(module)
    inputs = random_inputs(graph, 11)
    found = run_program(lower(graph, accelerator("ethos-u55-256")), inputs)
    given = [inputs[str(p.name)] for p in module["main"].params if str(p.name) not in graph.states]
    for ours, theirs in zip(found, Reference(data).run(given), strict=True):
        assert np.array_equal(ours.reshape(-1), np.asarray(theirs).reshape(-1))


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u55-128", "ethos-u65-256", "ethos-u65-512"])
@pytest.mark.parametrize("name", ["kws_ref_model", "pretrainedResnet_quant"])
def test_equals_the_reference_on_other_npus(name: str, npu: str, shared_model: Callable[[str], Path]) -> None:
    data = shared_model(name).read_bytes()
    graph = only_graph(partition_for_ethosu(import_relax(data), npu))
    inputs = random_inputs(graph, 12)
    found = run_program(lower(graph, accelerator(npu)), inputs)
    assert np.array_equal(found[0], Reference(data).run(list(inputs.values()))[0])


@pytest.mark.parametrize("name", LEGACY_BYTES)
def test_arenas_are_below_the_legacy_ones(name: str, shared_model: Callable[[str], Path]) -> None:
    """With inputs and outputs outside of the arena, as the legacy numbers count them."""
    module = build_module(shared_model(name)).module
    problem = extract(module, [Pool("sram", agents=frozenset(Agent))], reuse_inputs=False)
    outside = {b.name for b in problem.buffers if b.kind in (BufferKind.INPUT, BufferKind.OUTPUT)}
    inside = replace(
        problem,
        buffers=tuple(b for b in problem.buffers if b.name not in outside),
        overlaps=tuple(o for o in problem.overlaps if not {o.first, o.second} & outside),
        conflicts=tuple(c for c in problem.conflicts if not set(c) & outside),
        accesses=(),
        branches=(),
    )
    assert plan(inside).usage[0].used_bytes < LEGACY_BYTES[name]
