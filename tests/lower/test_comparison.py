"""Comparisons and SELECT: what the host does of them, and flags between kernels of Ethos-U85; operators alone are in
tests/exactness/test_drawn_operators."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fvp_runner import runner
from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.lower.operands import LayerTensor
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.inputs import load_inputs
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator

pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")
from fvp_runner.references.kernels import TFLiteReference
from tests.support.against_reference import equals_reference, host_reasons

NPUS = tuple(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048))
SHAPE = (1, 6, 7, 20)


def compare(kind: str, options: str, scale: float = 0.1) -> ModelBuilder:
    x = TensorSpec(SHAPE, "int8", scale, 3)
    return single_operator(kind, [x, x], [TensorSpec(SHAPE, "bool")], options, 2)


def select(flags: tuple[int, ...] = SHAPE, yes: tuple[int, ...] = SHAPE) -> ModelBuilder:
    """SELECT_V2."""
    tensor = partial(TensorSpec, dtype="int8", scale=0.1, zero_point=5)
    inputs = [TensorSpec(flags, "bool"), tensor(yes), tensor(SHAPE)]
    return single_operator("SELECT_V2", inputs, [tensor(SHAPE)], "SelectV2Options")


def few_values(rng: np.random.Generator, tensor: LayerTensor) -> np.ndarray:
    return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)


def test_a_choice_of_one_tensor_is_that_tensor() -> None:
    b = select()
    (kind, (flags, x, _), *rest), *_ = b.operators
    b.operators = [(kind, [flags, x, x], *rest)]
    (found,) = equals_reference(b.made([flags, x], b.outputs), NPUS[1], draw=few_values).outputs
    assert len(np.unique(found)) > 1


@pytest.mark.parametrize(
    ("model", "npu", "reason"),
    [
        (compare("LESS", "LessOptions"), "ethos-u65-512", "it compares values, which only Ethos-U85 does"),
        (select(), "ethos-u65-512", "it masks bits, which only Ethos-U85 does"),
        (compare("EQUAL", "EqualOptions", 1.5), "ethos-u85-256", "has scale 1.5; the reference takes those below 1"),
        (select((1, 6, 1, 1), (1, 1, 7, 20)), "ethos-u85-256", "two at a time"),
    ],
)
def test_what_the_host_does(model: ModelBuilder, npu: str, reason: str) -> None:
    assert any(reason in said for said in host_reasons(model, npu))


def masked() -> ModelBuilder:
    """A convolution's values where they are more than given ones, else a constant; the flags are a result too."""
    b, rng = ModelBuilder(), np.random.default_rng(6)
    x, limit = b.tensor((1, 8, 8, 16), "int8", 0.1, 2), b.tensor((1, 1, 1, 16), "int8", 0.3, -4)
    w = b.constant(rng.integers(-127, 128, (16, 1, 1, 16), np.int8), 0.003)
    made, flags, y = b.tensor((1, 8, 8, 16), "int8", 0.2, 3), b.tensor((1, 8, 8, 16), "bool"), 0
    b.operator("CONV_2D", [x, w], [made], "Conv2DOptions", 3, StrideH=1, StrideW=1)
    b.operator("GREATER", [made, limit], [flags], "GreaterOptions", 2)
    least, y = b.constant(np.array([-128], np.int8), 0.2, 3), b.tensor((1, 8, 8, 16), "int8", 0.2, 3)
    b.operator("SELECT_V2", [flags, made, least], [y], "SelectV2Options", 1)
    return b.made([x, limit], [y, flags])


@pytest.mark.parametrize("npu", NPUS[1::2])
def test_flags_between_kernels_on_planned_pools(npu: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(masked().finish())
    artifact = compile_model(path, CompileOptions(npu, npu_compiler="tvm"), tmp_path / "out")
    assert [call.agent for call in artifact.calls] == [Agent.NPU]
    inputs = load_inputs(artifact, ["random:1"])
    expected = TFLiteReference(path.read_bytes()).run(inputs)
    for found, wanted in zip(runner.create("local", tmp_path / "out").run(inputs).outputs, expected, strict=True):
        assert np.array_equal(found.reshape(wanted.shape).view(np.uint8), wanted.view(np.uint8))
        assert len(np.unique(wanted)) > 1
