"""Comparisons and SELECT on Ethos-U85 equal the reference: flags are 0 and 1; elsewhere the host does them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fvp_runner import runner
from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.relax.partition import host_operators, npu_functions, partition_for_ethosu
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.inputs import load_inputs
from tests.support.on_model import only_graph, run_program
from tests.support.relax_import import import_relax
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")
from fvp_runner.references.kernels import TFLiteReference

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
    constant: bool = False,
) -> ModelBuilder:
    """A map and another of `shape`, or a `constant`; few values, so that many are equal."""
    b = ModelBuilder()
    x = b.tensor(SHAPE, dtype, *first)
    values = np.random.default_rng(2).integers(-9, 9, shape).astype(dtype)
    y = b.constant(values, *second) if constant else b.tensor(shape, dtype, *second)
    made = b.tensor(SHAPE, "bool")
    b.operator(kind, [x, y], [made], COMPARISONS[kind], 2)
    return b.made([x] if constant else [x, y], [made])


def select(
    flags: tuple[int, ...] = SHAPE,
    yes: tuple[int, ...] = SHAPE,
    no: tuple[int, ...] = SHAPE,
    dtype: str = "int8",
    constant: bool = False,
) -> ModelBuilder:
    """SELECT_V2; the value of false flags may be a `constant`."""
    b = ModelBuilder()
    quantised = (0.1, 0 if dtype == "int16" else 5)
    c, x = b.tensor(flags, "bool"), b.tensor(yes, dtype, *quantised)
    y = b.constant(np.full(no, 77, dtype), *quantised) if constant else b.tensor(no, dtype, *quantised)
    made = b.tensor(SHAPE, dtype, *quantised)
    b.operator("SELECT_V2", [c, x, y], [made], "SelectV2Options", 1)
    return b.made([c, x] if constant else [c, x, y], [made])


def equals_reference(made: ModelBuilder, npu: str, seed: int) -> np.ndarray:
    """What the NPU makes of random inputs, which is what the reference makes."""
    model = made.finish()
    reference = TFLiteReference(model)
    network, rng = read_network(model), np.random.default_rng(seed)
    inputs = []
    for tensor in (network.tensors[i] for i in network.inputs):
        least, most = (0, 2) if tensor.dtype == "bool" else (0, 40) if tensor.dtype == "uint8" else (-20, 20)
        inputs.append(rng.integers(least, most, tensor.shape).astype(tensor.dtype))
    expected = reference.run(inputs)[0]
    module = partition_for_ethosu(import_relax(model), npu)
    assert host_operators(module) == ()
    given = {str(p.name): values for p, values in zip(module["main"].params, inputs, strict=True)}
    (found,) = run_program(lower(only_graph(module), accelerator(npu)), given, scheduled=True)
    assert found.dtype == expected.dtype
    assert np.array_equal(found.reshape(expected.shape).view(np.uint8), expected.view(np.uint8))
    assert len(np.unique(expected)) > 1
    return found


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("npu", NPUS)
def test_comparisons_equal_the_reference(kind: str, npu: str) -> None:
    equals_reference(comparison(kind), npu, 1)
    equals_reference(comparison(kind, (0.1, 3), (0.05, -8)), npu, 2)


@pytest.mark.parametrize("kind", COMPARISONS)
def test_forms_of_comparisons_equal_the_reference(kind: str) -> None:
    equals_reference(comparison(kind, (0.002, 3), (0.002, 3)), NPUS[1], 3)  # different values are equal numbers
    equals_reference(comparison(kind, (0.1, 3), (0.1, 4)), NPUS[1], 4)
    equals_reference(comparison(kind, (0.1, 20), (0.2, 10), "uint8"), NPUS[1], 5)
    equals_reference(comparison(kind, (0.1, 20), (0.1, 20), "uint8"), NPUS[1], 6)
    for second in ((0.1, 3), (0.2, 3)):
        equals_reference(comparison(kind, second=second, shape=(1, 1, 1, 20)), NPUS[1], 7)
        equals_reference(comparison(kind, second=second, shape=(1, 1, 1, 1), constant=True), NPUS[1], 8)
        equals_reference(comparison(kind, second=second, constant=True), NPUS[1], 9)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("npu", NPUS)
def test_selections_equal_the_reference(dtype: str, npu: str) -> None:
    equals_reference(select(dtype=dtype), npu, 1)
    equals_reference(select(no=(1, 1, 1, 1), dtype=dtype, constant=True), npu, 2)


def test_a_choice_of_one_tensor_is_that_tensor() -> None:
    b = ModelBuilder()
    c, x, y = b.tensor(SHAPE, "bool"), b.tensor(SHAPE, "int8", 0.1, 5), b.tensor(SHAPE, "int8", 0.1, 5)
    b.operator("SELECT_V2", [c, x, x], [y], "SelectV2Options", 1)
    equals_reference(b.made([c, x], [y]), NPUS[1], 1)


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
        equals_reference(select(flags, yes, no, dtype), NPUS[1], 3)


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
    module = partition_for_ethosu(import_relax(model.finish()), npu)
    assert not npu_functions(module)
    assert any(reason in operator.reason for operator in host_operators(module))


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
