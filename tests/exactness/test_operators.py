"""What `npu_memplan.exactness` calls exact on the NPU equals its reference, on three models of each operator and type;
of the host see test_host_operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fvp_runner import runner
from fvp_runner.npu_model.network import NetworkModel
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.compiler import compile_model
from npu_memplan.exactness import EXACT, MICRO, NOT_BY_VELA, STEP, Code, Exactness, operator_claim, reference_of
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.against_reference import equals_reference
from tests.support.inputs import load_inputs
from tests.support.operator_table import KINDS, row, three
from tests.support.saving import save
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator
from tests.support.trial import random_inputs

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")


SCALES = ((0.03, 0.02), (0.1, 0.07), (0.013, 0.006))  # of input and weights


def tie_model(kind: str, dtype: str, input_scale: float, weight_scale: float, single: bool) -> bytes:
    """8 channels to 50 (8 for depthwise); the output's scale is 128 times the product, `single`: in float32."""
    rng = np.random.default_rng(1)
    unsigned = dtype == "uint8"
    zero = 128 if unsigned else 0
    shapes = {
        "FULLY_CONNECTED": ((200, 8), (50, 8), (200, 50)),
        "CONV_2D": ((1, 20, 10, 8), (50, 1, 1, 8), (1, 20, 10, 50)),
        "DEPTHWISE_CONV_2D": ((1, 20, 10, 8), (1, 3, 3, 8), (1, 20, 10, 8)),
    }[kind]
    product = float(np.float32(input_scale) * np.float32(weight_scale))
    if not single:
        product = float(np.float32(input_scale)) * float(np.float32(weight_scale))
    x = TensorSpec(shapes[0], dtype, input_scale, zero + 3)
    weights = rng.integers(-127, 128, shapes[1]) + zero
    w = constant(weights, dtype, weight_scale, zero)
    channels = shapes[2][-1]
    bias = constant(rng.integers(-3000, 3000, channels), "int32", product)
    y = TensorSpec(shapes[2], dtype, product * 128, zero - 4)
    options: dict[str, int] = {} if kind == "FULLY_CONNECTED" else {"Padding": 0, "StrideH": 1, "StrideW": 1}
    options |= {} if kind == "FULLY_CONNECTED" else {"DilationHFactor": 1, "DilationWFactor": 1}
    options |= {"DepthMultiplier": 1} if kind == "DEPTHWISE_CONV_2D" else {}
    table = {"FULLY_CONNECTED": "FullyConnectedOptions", "CONV_2D": "Conv2DOptions"}.get(kind, "DepthwiseConv2DOptions")
    return single_operator(kind, [x, w, bias], [y], table, 4 if kind == "FULLY_CONNECTED" else 3, **options).finish()


# Vela leaves these alone where nothing is around them; LSTMs are held by the real models of tests/npu_model.
_NOT_ALONE = frozenset(("UNIDIRECTIONAL_SEQUENCE_LSTM",))
# These are several functions, or none, so they go the whole way.
_PARTS = frozenset(("SPLIT", "SPLIT_V", "UNPACK", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", *_NOT_ALONE))

_IMPORTED_AGAIN = frozenset((("GATHER", "int16"),))  # TVM's operator is not the NPU's, its host code is

_ONLY_U85 = frozenset(
    (
        *("ARG_MAX", "ARG_MIN", "BATCH_MATMUL", "EMBEDDING_LOOKUP", "REDUCE_MIN", "REVERSE_V2", "SELECT", "SELECT_V2"),
        *("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "GATHER_ND"),
    )
)
_NEWER = "ethos-u85-512"
_ONLY_ITS_INT16 = frozenset(("RESIZE_BILINEAR",))


def rows(code: Code) -> Iterator[tuple[str, str]]:
    for dtype, kinds in EXACT[code].items():
        yield from ((kind, dtype) for kind in sorted(kinds))


def differences(kind: str, dtype: str) -> np.ndarray:
    """How far Vela's stream of three models is from the reference, element by element."""
    case = three(kind, dtype)
    model = case.build()
    reference = TFLiteReference(model, case.name)
    inputs = random_inputs(reference.network, 1)
    expected = reference.run(inputs)
    _is_named(reference, kind, dtype)
    compiled = compile_tflite(model, VelaOptions(), case.name).network
    network = read_network(compiled, case.name)
    assert not network.cpu_operators
    found = NetworkModel(network, compiled).run(inputs).outputs
    return np.concatenate(
        [a.reshape(-1).astype(int) - b.reshape(-1).astype(int) for a, b in zip(found, expected, strict=True)]
    )


def _is_named(reference: TFLiteReference, kind: str, dtype: str) -> None:
    """What ran is the reference that the claim names."""
    assert (reference.what == "tflite-micro") == (reference_of(kind, dtype) == MICRO)


def whole_way(kind: str, dtype: str, folder: Path, **options: str) -> list[tuple[str, Agent, Exactness]]:
    """Compiled, run on the local runner and equal; the artifact's operators."""
    path = save(folder / "model.tflite", three(kind, dtype).build())
    operators, reference = equal(path, folder, **options)
    _is_named(reference, kind, dtype)
    return operators


def equal(path: Path, folder: Path, **options: str) -> tuple[list[tuple[str, Agent, Exactness]], TFLiteReference]:
    """The same for a file, and what it equalled."""
    artifact = compile_model(path, CompileOptions(**options), folder / "out")
    inputs = load_inputs(artifact, ["random:3"])
    reference = TFLiteReference(path.read_bytes())
    for found, wanted in zip(
        runner.create("local", folder / "out").run(inputs).outputs, reference.run(inputs), strict=True
    ):
        assert np.array_equal(found.reshape(-1), wanted.reshape(-1))
    return [(o.kind, o.agent, o.claim.exactness) for o in artifact.operators], reference


@pytest.mark.parametrize(("kind", "dtype"), [r for r in list(rows(Code.LIFTED)) if r[0] not in _NOT_ALONE])
def test_lifted(kind: str, dtype: str) -> None:
    assert not differences(kind, dtype).any()


@pytest.mark.parametrize(("kind", "dtype"), [r for r in rows(Code.LOWERED) if r[0] != "SHAPE"])
def test_lowered(kind: str, dtype: str, tmp_path: Path) -> None:
    if kind in _PARTS or (kind, dtype) in _IMPORTED_AGAIN:
        whole_way(kind, dtype, tmp_path, npu_compiler="tvm")
    else:
        for number in range(3):
            newer = kind in _ONLY_U85 or (dtype == "int16" and kind in _ONLY_ITS_INT16)
            equals_reference(row(kind, dtype, number), _NEWER if newer else "ethos-u65-512", 3)


@pytest.mark.parametrize("options", [{}, {"npu_compiler": "tvm"}, {"accelerator": "none"}])
def test_a_shape_is_a_constant(options: dict[str, str], tmp_path: Path) -> None:
    b = ModelBuilder()
    x, p = b.tensor((1, 4, 4, 3), "int8", 0.05, 3), b.tensor((1, 4, 4, 3), "int8", 0.04, -2)
    s, y = b.tensor((4,), "int32"), b.tensor((1, 4, 4, 3), "int8", 0.3, 5)
    w = b.constant(np.arange(-40, 41, dtype=np.int8).reshape(3, 3, 3, 3), 0.01)
    b.operator("LEAKY_RELU", [x], [p], "LeakyReluOptions", 2, Alpha=0.1)
    b.operator("SHAPE", [p], [s], "ShapeOptions", 1, OutType=2)
    b.operator("TRANSPOSE_CONV", [s, w, p], [y], "TransposeConvOptions", 3, Padding=0, StrideH=1, StrideW=1)
    path = save(tmp_path / "model.tflite", b.made([x], [y]).finish())
    claimed = {exactness for _, _, exactness in equal(path, tmp_path, **options)[0]}
    lifted = set[Exactness]() if options else {Exactness.STEP}  # Vela's LEAKY_RELU, where it takes fewer cycles
    assert claimed - lifted == {Exactness.EXACT}


@pytest.mark.parametrize(("kind", "dtype"), [(kind, dtype) for code, kind, dtype in STEP if code is Code.LIFTED])
def test_a_step(kind: str, dtype: str) -> None:
    assert abs(differences(kind, dtype)).max() <= 1


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_scales_that_make_ties(kind: str, dtype: str, single: bool, tmp_path: Path) -> None:
    """A product of scales in float32 and one in double differ here in several elements: which it is, is known."""
    path = save(tmp_path / "model.tflite", tie_model(kind, dtype, 0.03, 0.02, single))
    for options in ({"npu_compiler": "tvm"}, {"accelerator": "none"}):
        folder = tmp_path / "_".join(options.values())
        assert [e for _, _, e in equal(path, folder, **options)[0]] == [Exactness.EXACT]


def test_some_steps_are_there() -> None:
    """Otherwise the sentence would be gone: these were called exact once."""
    model = tie_model("FULLY_CONNECTED", "int8", 0.03, 0.02, False)
    reference, compiled = TFLiteReference(model), compile_tflite(model, VelaOptions()).network
    inputs = random_inputs(reference.network, 1)
    found = NetworkModel(read_network(compiled), compiled).run(inputs).outputs[0].astype(int)
    steps = abs(found - reference.run(inputs)[0])
    assert (steps.max(), 0 < np.count_nonzero(steps) < 100) == (1, True)
    assert differences("MUL", "int16").any()
    assert differences("FULLY_CONNECTED", "uint8").any()


# No reference has DIV of int16, and RSQRT must have inputs of its own.
@pytest.mark.parametrize(("kind", "dtype"), sorted(NOT_BY_VELA.keys() - {("DIV", "int16"), ("RSQRT", "int16")}))
def test_what_vela_computes_wrongly_stays_on_the_host(kind: str, dtype: str, tmp_path: Path) -> None:
    # The reference's own shift is undefined for a DIV of these scales, so nothing can be exact.
    known = Exactness.UNPROVEN if kind == "DIV" else Exactness.EXACT
    assert whole_way(kind, dtype, tmp_path, npu_compiler="vela") == [(kind, Agent.HOST, known)] * 3


@pytest.mark.parametrize("options", [{}, {"npu_compiler": "tvm"}, {"accelerator": "ethos-u85-256"}])
def test_rsqrt_of_int16_stays_on_the_host(options: dict[str, str], tmp_path: Path) -> None:
    """Vela's table has interpolated slopes of 16 bits, and the root's is steeper near zero."""
    b = ModelBuilder()
    x, size = (b.tensor((1, 4, 6, 10), "int16", 0.001) for _ in range(2))
    y = b.tensor((1, 4, 6, 10), "int16", 0.002)
    b.operator("ABS", [x], [size], "AbsOptions", 3)
    b.operator("RSQRT", [size], [y], None, 2)
    path = save(tmp_path / "model.tflite", b.made([x], [y]).finish())
    ran = [("ABS", Agent.NPU, Exactness.EXACT), ("RSQRT", Agent.HOST, Exactness.EXACT)]
    assert equal(path, tmp_path, **options)[0] == ran


def test_nothing_is_exact_twice_and_the_rest_is_unproven() -> None:
    for code, kind, dtype in STEP:
        assert kind not in EXACT[code][dtype]
    assert all(kind in KINDS for table in EXACT.values() for kinds in table.values() for kind in kinds)
    assert operator_claim(Code.LIFTED, "GATHER_ND", "int8").exactness is Exactness.UNPROVEN
