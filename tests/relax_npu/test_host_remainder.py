"""What the NPU cannot do runs on the host behind the same plan, and the artifact says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner import runner
from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.interpreters import open_interpreter
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.artifact import Artifact
from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.lowering import LoweringTarget
from npu_memplan.extract import extract
from npu_memplan.frontend.tflite.lifted import import_host_only
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.models.flatbuffer import UnsupportedModelError
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent, BufferKind, Pool
from tests.support.inputs import load_inputs
from tests.support.operator_models import binary
from tests.support.real_data import Models
from tests.support.saving import save
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def around_a_host_operator() -> bytes:
    """leaky relu (NPU), minimum over the channels (host), leaky relu (NPU)."""
    b = ModelBuilder()
    x, p = b.tensor((1, 6, 8, 10), "int8", 0.05, 3), b.tensor((1, 6, 8, 10), "int8", 0.05, 3)
    axes = b.constant(np.array([3], np.int32))
    q, y = b.tensor((1, 6, 8, 1), "int8", 0.05, 3), b.tensor((1, 6, 8, 1), "int8", 0.03, -2)
    b.operator("LEAKY_RELU", [x], [p], "LeakyReluOptions", 2, Alpha=0.1)
    b.operator("REDUCE_MIN", [p, axes], [q], "ReducerOptions", 2, KeepDims=True)
    b.operator("LEAKY_RELU", [q], [y], "LeakyReluOptions", 2, Alpha=0.2)
    return b.made([x], [y]).finish()


def compiled_equals_reference(model: bytes, folder: Path, **options: Any) -> Artifact:
    """The artifact, after two runs of it equalled the reference's element by element."""
    path = save(folder / "model.tflite", model)
    artifact = compile_model(path, CompileOptions(npu_compiler="tvm", objective="bytes", **options), folder / "out")
    machine, wanted = runner.create("local", folder / "out"), TFLiteReference(model)
    for seed in (1, 2):
        inputs = load_inputs(artifact, [f"random:{seed}"])
        for ours, theirs in zip(machine.run(inputs).outputs, wanted.run(inputs), strict=True):
            assert np.array_equal(ours.reshape(-1), np.asarray(theirs).reshape(-1))
    return artifact


def on_host(artifact: Artifact) -> list[str]:
    return [o.kind for o in artifact.operators if o.agent is Agent.HOST]


def test_npu_and_host_share_one_plan_and_are_exact(tmp_path: Path) -> None:
    artifact = compiled_equals_reference(around_a_host_operator(), tmp_path)
    assert artifact.notes == ()
    agents = [call.agent for call in artifact.calls]
    assert agents == [Agent.NPU, Agent.HOST, Agent.NPU]
    assert on_host(artifact) == ["REDUCE_MIN"]


def test_states_outlive_a_run(shared_model: Models, tmp_path: Path) -> None:
    path = shared_model("keyword_scrambled_8bit")
    artifact = compile_model(path, CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out")
    machine, wanted = LocalRunner(tmp_path / "out"), open_interpreter(path.read_bytes(), path.name)
    machine.reset()
    for seed in range(4):
        (values,) = load_inputs(artifact, [f"random:{seed}"])
        wanted.set_input(values, 0)
        wanted.invoke()
        assert np.array_equal(machine.run_next([values]).outputs[0], wanted.get_output(0))


def test_states_are_parameters_as_in_every_import(shared_model: Models, tmp_path: Path) -> None:
    path = shared_model("keyword_scrambled_8bit")
    artifact = compiled_equals_reference(path.read_bytes(), tmp_path)
    assert on_host(artifact) == [*["SVDF"] * 7, "SOFTMAX", "QUANTIZE"]  # int16 and int32 at the end
    ours, known = build_module(path).module["main"], import_host_only(path).module["main"]
    assert [str(p.name) for p in ours.params] == [str(p.name) for p in known.params]
    for attribute, value in known.attrs.items():
        if not attribute.startswith("npu.operator"):
            assert ours.attrs[attribute] == value
    assert list(ours.attrs["npu.operator_names"]) == list(known.attrs["npu.operator_names"])


def twice_the_same_name() -> bytes:
    """Two leaky relus whose results have one name, added."""
    b = ModelBuilder()
    x, p, q, y = (b.tensor((1, 6, 8, 10), "int8", 0.05, 3) for _ in range(4))
    b.operator("LEAKY_RELU", [x], [p], "LeakyReluOptions", 2, Alpha=0.1)
    b.operator("LEAKY_RELU", [p], [q], "LeakyReluOptions", 2, Alpha=0.3)
    b.operator("ADD", [p, q], [y], "AddOptions", 2)
    return b.made([x], [y]).finish().replace(b"t2\0", b"t1\0")


def test_tensors_go_by_their_index_not_by_their_name(tmp_path: Path) -> None:
    assert [t.name for t in read_network(twice_the_same_name()).tensors] == ["t0", "t1", "t1", "t3"]
    compiled_equals_reference(twice_the_same_name(), tmp_path)


def test_operators_without_exact_code_are_refused() -> None:
    unsigned = Case("unsigned", "binary", lambda rng: binary(rng, name="SQUARED_DIFFERENCE", dtype="uint8"))
    with pytest.raises(UnsupportedModelError, match=r"SQUARED_DIFFERENCE\n.*\n.*NPU: its tensors are uint8; squares"):
        build_module(unsigned.build())


def softmax(beta: float) -> bytes:
    x, y = TensorSpec((1, 5, 17), "int8", 0.1, 3), TensorSpec((1, 5, 17), "int8", 1 / 256, -128)
    return single_operator("SOFTMAX", [x], [y], "SoftmaxOptions", 2, Beta=beta).finish()


def test_softmax_keeps_its_beta(tmp_path: Path) -> None:
    assert on_host(compiled_equals_reference(softmax(0.5), tmp_path)) == []


def test_operators_that_nobody_can_run_are_named() -> None:
    x, y = TensorSpec((1, 5, 17), "int8", 0.1, 3), TensorSpec((1, 5, 17), "int8", 0.2, -128)
    with pytest.raises(UnsupportedModelError, match=r"0 SQUARE\n.*\n.*NPU: no NPU layer.*\n.*host: .* numbers only"):
        build_module(single_operator("SQUARE", [x], [y]).finish())


def test_feature_maps_prefer_the_npus_own_memory_where_there_is_one() -> None:
    pools = [Pool("dram", agents=frozenset(Agent)), Pool("sram", agents=frozenset(Agent))]
    problem = extract(
        build_module(EXAMPLE, "ethos-u65-256", lowering_target=LoweringTarget(fast_region=2)).module, pools
    )
    inside = [b for b in problem.buffers if b.kind is BufferKind.NPU_INTERNAL]
    assert inside
    assert all(b.pools == ("sram", "dram") for b in inside)
    plain = extract(build_module(EXAMPLE, "ethos-u65-256").module, pools)
    assert all(b.pools == () for b in plain.buffers)
