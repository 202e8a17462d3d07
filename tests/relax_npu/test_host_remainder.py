"""What the NPU cannot do runs on the host behind the same plan, and the artifact says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from single_operators import all_cases
from tflite_builder import ModelBuilder

from fvp_runner import runner
from fvp_runner.reference import Reference
from npu_memplan.commands.run import load_inputs
from npu_memplan.extract import extract
from npu_memplan.frontend.checks import UnsupportedModelError
from npu_memplan.frontend.tvm_npu import build_module
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import compile_model
from npu_memplan.problem import Agent, BufferKind, Pool

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def around_a_host_operator() -> bytes:
    """leaky relu (NPU), mean over the channels (host), leaky relu (NPU)."""
    b = ModelBuilder()
    x, p = b.tensor((1, 6, 8, 10), "int8", 0.05, 3), b.tensor((1, 6, 8, 10), "int8", 0.05, 3)
    axes = b.constant(np.array([3], np.int32))
    q, y = b.tensor((1, 6, 8, 1), "int8", 0.03, -2), b.tensor((1, 6, 8, 1), "int8", 0.03, -2)
    b.operator("LEAKY_RELU", [x], [p], "LeakyReluOptions", 2, Alpha=0.1)
    b.operator("MEAN", [p, axes], [q], "ReducerOptions", 2, KeepDims=True)
    b.operator("LEAKY_RELU", [q], [y], "LeakyReluOptions", 2, Alpha=0.2)
    return b.made([x], [y]).finish()


def test_npu_and_host_share_one_plan_and_agree_within_one_step(tmp_path: Path) -> None:
    model = tmp_path / "mixed.tflite"
    model.write_bytes(around_a_host_operator())
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm"), tmp_path / "out")
    assert "MEAN: on the host" in artifact.notes[0]
    agents = [call.agent for call in artifact.calls]
    assert (agents[0], agents[-1]) == (Agent.NPU, Agent.NPU)
    assert Agent.HOST in agents
    inputs = load_inputs(artifact, ["random:1"])
    found = runner.create("host", tmp_path / "out").run(inputs).outputs[0]
    wanted = Reference(model.read_bytes()).run(inputs)[0]
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


@pytest.mark.parametrize("name", ["pad_depth", "nearest_x4", "conv_d4x4", "rsqrt_int8"])
def test_an_operator_alone_on_the_host(name: str, tmp_path: Path) -> None:
    (case,) = (c for c in all_cases() if c.name == name)
    model = tmp_path / "one.tflite"
    model.write_bytes(case.build())
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm"), tmp_path / "out")
    assert artifact.npu_operations == 0
    inputs = load_inputs(artifact, ["random:1"])
    found = runner.create("host", tmp_path / "out").run(inputs).outputs[0]
    wanted = Reference(case.reference()).run(inputs)[0]
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_operators_that_nobody_can_run_are_named() -> None:
    (case,) = (c for c in all_cases() if c.name == "transpose_conv_k3_s1")
    with pytest.raises(UnsupportedModelError, match=r"nn.conv2d_transpose .*stride 2x2.*\n.*--npu-compiler vela"):
        build_module(case.build())


def test_feature_maps_prefer_the_npus_own_memory_where_there_is_one() -> None:
    pools = [Pool("dram", agents=frozenset(Agent)), Pool("sram", agents=frozenset(Agent))]
    problem = extract(build_module(EXAMPLE, "ethos-u65-256", fast_region=2).module, pools)
    inside = [b for b in problem.buffers if b.kind is BufferKind.NPU_INTERNAL]
    assert inside
    assert all(b.pools == ("sram", "dram") for b in inside)
    plain = extract(build_module(EXAMPLE, "ethos-u65-256").module, pools)
    assert all(b.pools == () for b in plain.buffers)
