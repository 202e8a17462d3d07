"""Comparisons and SELECT on Ethos-U85 equal the reference: flags are 0 and 1; elsewhere the host does them."""

from __future__ import annotations

from dataclasses import replace
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
COMPARISONS = {
    "EQUAL": "EqualOptions",
    "NOT_EQUAL": "NotEqualOptions",
    "GREATER": "GreaterOptions",
    "GREATER_EQUAL": "GreaterEqualOptions",
    "LESS": "LessOptions",
    "LESS_EQUAL": "LessEqualOptions",
}
SHAPE = (1, 6, 7, 20)
Quantised = tuple[float, int]


def comparison(
    kind: str,
    first: Quantised = (0.1, 3),
    second: Quantised = (0.1, 3),
    dtype: str = "int8",
    shape: tuple[int, ...] = SHAPE,
    is_constant: bool = False,
) -> ModelBuilder:
    """A map and another of `shape`, or a constant; few values, so that many are equal."""
    x, y = TensorSpec(SHAPE, dtype, *first), TensorSpec(shape, dtype, *second)
    if is_constant:
        y = replace(y, data=np.random.default_rng(2).integers(-9, 9, shape).astype(dtype))
    return single_operator(kind, [x, y], [TensorSpec(SHAPE, "bool")], COMPARISONS[kind], 2)


def select(
    flags: tuple[int, ...] = SHAPE,
    yes: tuple[int, ...] = SHAPE,
    no: tuple[int, ...] = SHAPE,
    dtype: str = "int8",
    is_constant: bool = False,
) -> ModelBuilder:
    """SELECT_V2; the value of false flags may be a constant."""
    tensor = partial(TensorSpec, dtype=dtype, scale=0.1, zero_point=0 if dtype == "int16" else 5)
    other = tensor(no, data=np.full(no, 77, dtype)) if is_constant else tensor(no)
    inputs = [TensorSpec(flags, "bool"), tensor(yes), other]
    return single_operator("SELECT_V2", inputs, [tensor(SHAPE)], "SelectV2Options")


def few_values(rng: np.random.Generator, tensor: LayerTensor) -> np.ndarray:
    least, most = {"bool": (0, 2), "uint8": (0, 40)}.get(tensor.dtype, (-20, 20))
    return rng.integers(least, most, tensor.shape).astype(tensor.dtype)


def check(made: ModelBuilder, npu: str, seed: int) -> None:
    (found,) = equals_reference(made, npu, seed, draw=few_values, scheduled=True).outputs
    assert len(np.unique(found)) > 1


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("npu", NPUS)
def test_comparisons_equal_the_reference(kind: str, npu: str) -> None:
    check(comparison(kind), npu, 1)
    check(comparison(kind, (0.1, 3), (0.05, -8)), npu, 2)


@pytest.mark.parametrize("kind", COMPARISONS)
def test_forms_of_comparisons_equal_the_reference(kind: str) -> None:
    check(comparison(kind, (0.002, 3), (0.002, 3)), NPUS[1], 3)  # different values are equal numbers
    check(comparison(kind, (0.1, 3), (0.1, 4)), NPUS[1], 4)
    check(comparison(kind, (0.1, 20), (0.2, 10), "uint8"), NPUS[1], 5)
    check(comparison(kind, (0.1, 20), (0.1, 20), "uint8"), NPUS[1], 6)
    for second in ((0.1, 3), (0.2, 3)):
        check(comparison(kind, second=second, shape=(1, 1, 1, 20)), NPUS[1], 7)
        check(comparison(kind, second=second, shape=(1, 1, 1, 1), is_constant=True), NPUS[1], 8)
        check(comparison(kind, second=second, is_constant=True), NPUS[1], 9)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("npu", NPUS)
def test_selections_equal_the_reference(dtype: str, npu: str) -> None:
    check(select(dtype=dtype), npu, 1)
    check(select(no=(1, 1, 1, 1), dtype=dtype, is_constant=True), npu, 2)


def test_a_choice_of_one_tensor_is_that_tensor() -> None:
    b = select()
    (kind, (flags, x, _), *rest), *_ = b.operators
    b.operators = [(kind, [flags, x, x], *rest)]
    check(b.made([flags, x], b.outputs), NPUS[1], 1)


@pytest.mark.parametrize(
    ("flags", "yes", "no"),
    [
        ((1, 6, 7, 1), SHAPE, SHAPE),
        ((1, 1, 1, 20), SHAPE, (1, 1, 1, 1)),
        (SHAPE, (1, 1, 1, 20), (1, 1, 7, 20)),
        ((1, 1, 7, 20), (1, 1, 1, 1), SHAPE),
        ((7, 20), SHAPE, (20,)),
    ],
)
def test_what_is_broadcast_equals_the_reference(
    flags: tuple[int, ...], yes: tuple[int, ...], no: tuple[int, ...]
) -> None:
    for dtype in ("int8", "int16"):
        check(select(flags, yes, no, dtype), NPUS[1], 3)


@pytest.mark.parametrize(
    ("model", "npu", "reason"),
    [
        (comparison("LESS"), "ethos-u65-512", "it compares values, which only Ethos-U85 does"),
        (select(), "ethos-u65-512", "it masks bits, which only Ethos-U85 does"),
        (comparison("EQUAL", (1.5, 0)), "ethos-u85-256", "has scale 1.5; the reference takes those below 1"),
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
