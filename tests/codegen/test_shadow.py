"""A run without sanitizers notices a host operator, or a caller, that reads what its buffer did not write."""

from __future__ import annotations

from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.base import RunOptions
from fvp_runner.host.runner import LocalRunner
from fvp_runner.host.shadow import UnwrittenInputError
from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.program.overlap import WebBuilder
from npu_memplan.frontend.tflite import lifted
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import build, extract_problem, lower, plan, read
from npu_memplan.problem import BufferKind
from npu_memplan.report.files import write_artifact
from npu_memplan.request import request
from npu_memplan.stages import Planned
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.verify import constraints
from tests.extract.test_accesses import joined_by_two_calls
from tests.pipeline.test_broken_plan import on_top
from tests.support.inputs import load_inputs
from tests.support.tflite_builder import ModelBuilder

PLAIN = RunOptions(verify=False, sanitize=False)
SHAPE = (1, 4, 4, 8)


def two_sums() -> bytes:
    """Two sums with a constant, added; the first one is a result, too."""
    graph = ModelBuilder()
    data, first, second, both = (graph.tensor(SHAPE, "int8", 0.05, 3) for _ in range(4))
    for k, made in enumerate((first, second)):
        graph.operator("ADD", [data, graph.constant(np.full(SHAPE, 5 + k, np.int8), 0.1, 1)], [made], "AddOptions")
    graph.operator("MUL", [first, second], [both], "MulOptions")
    return graph.made([data], [both, first]).finish()


def planned_sums(folder: Path) -> Planned:
    source = folder / "sums.tflite"
    source.write_bytes(two_sums())
    return plan(extract_problem(lower(read(source, request(CompileOptions("none"))))))


def run(folder: Path) -> None:
    runner = LocalRunner(folder, PLAIN)
    runner.run(load_inputs(runner.artifact, ["random:3"]))


@pytest.mark.parametrize(
    ("moved", "upon", "message"),
    [
        (1, 0, r"host operator mul reads 128 of 128 bytes of buffer \w+ that buffer \w+ wrote last; the first is its "
               r"byte 0, byte \d+ of pool sram; check plan\.json with npu-memplan verify"),
        (2, 0, r"the caller reads 128 of 128 bytes of buffer \w+ that buffer \w+ wrote last"),
    ],
    ids=["an operator's input", "a result"],
)  # fmt: skip
def test_bytes_that_another_buffer_took_are_noticed(moved, upon, message, tmp_path):
    planned = planned_sums(tmp_path)
    problem = planned.extracted.problem
    made = sorted((b for b in problem.buffers if b.kind is not BufferKind.INPUT), key=lambda b: b.lifetimes[0].first)
    broken = on_top(problem, planned.plan, made[upon], made[moved])
    for name, answer in (("right", planned.plan), ("broken", broken)):
        (tmp_path / name).mkdir()
        write_artifact(build(replace(planned, plan=answer)), tmp_path / name)
    run(tmp_path / "right")
    with pytest.raises(UnwrittenInputError, match=message):
        run(tmp_path / "broken")


def test_a_slice_that_no_npu_call_writes_is_noticed(tmp_path, monkeypatch):
    """A part of a tensor is in another buffer; earlier writes of the same bytes count for nothing."""
    network = tmp_path / "vela.tflite"
    network.write_bytes(compile_tflite(joined_by_two_calls(), VelaOptions()).network)
    compile_model(network, CompileOptions(objective="bytes", effort="quick"), tmp_path / "right")
    run(tmp_path / "right")
    monkeypatch.setattr(lifted, "with_cross_call_tensors", lambda network: network)
    monkeypatch.setattr(WebBuilder, "read", partialmethod(WebBuilder.read, partly=True))  # lifting refuses it otherwise
    monkeypatch.setattr(constraints, "stale_reads", lambda problem, placed: ())
    compile_model(network, CompileOptions(objective="bytes", effort="quick"), tmp_path / "wrong")
    with pytest.raises(
        UnwrittenInputError, match=r"the caller reads 288 of 576 bytes of buffer \w+ that buffer \w+ wrote last"
    ):
        run(tmp_path / "wrong")
