"""Operators of float32 with int8 weights equal LiteRT's reference kernels, which quantise activations as they run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.compiler import compile_model
from npu_memplan.exactness import LITERT, Exactness
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from tests.host_ops import test_kernel_forms as kernel_forms
from tests.support.many_operators import Together, assert_equals_references, run_sanitized
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")

FORMS = [("CONV_2D", False), ("CONV_2D", True), ("DEPTHWISE_CONV_2D", True), ("FULLY_CONNECTED", False),
         ("FULLY_CONNECTED", True), ("BATCH_MATMUL", False), ("BATCH_MATMUL", True),
         ("EMBEDDING_LOOKUP", False)]  # fmt: skip


def hybrid(rng: np.random.Generator, kind: str, several: bool) -> bytes:
    """`several`: a scale for each channel; of FULLY_CONNECTED, BATCH_MATMUL and SVDF: activations with a zero point."""
    b = ModelBuilder()
    if kind in _OTHERS:
        return _OTHERS[kind](b, rng, several).finish()
    batch, activation = int(rng.integers(1, 4)), int(rng.integers(0, 4))
    channels = int(rng.integers(2, 9))
    bias = b.constant((rng.standard_normal(channels) * 3).astype(np.float32)) if rng.random() < 0.8 else -1
    scales = rng.uniform(0.002, 0.05, channels if several and kind != "FULLY_CONNECTED" else 1)
    if kind == "FULLY_CONNECTED":
        depth = int(rng.integers(3, 40))
        x, y = b.tensor((batch, depth), "float32"), b.tensor((batch, channels), "float32")
        w = b.constant(rng.integers(-127, 128, (channels, depth)).astype(np.int8), scales)
        b.operator(kind, [x, w, bias], [y], "FullyConnectedOptions", 9 if several else 3,
                   FusedActivationFunction=activation, AsymmetricQuantizeInputs=several)  # fmt: skip
        return b.made([x], [y]).finish()
    h, wide, step, same = int(rng.integers(5, 9)), 7, int(rng.integers(1, 3)), bool(rng.integers(2))
    depth = channels if kind == "DEPTHWISE_CONV_2D" else int(rng.integers(1, 7))
    shape = (1, 3, 3, channels) if kind == "DEPTHWISE_CONV_2D" else (channels, 3, 3, depth)
    size = [-(-n // step) if same else (n - 3) // step + 1 for n in (h, wide)]
    x, y = b.tensor((batch, h, wide, depth), "float32"), b.tensor((batch, *size, channels), "float32")
    w = b.constant(rng.integers(-127, 128, shape).astype(np.int8), scales, axis=3 if shape[0] == 1 else 0)
    if bias < 0:
        bias = b.constant(np.zeros(channels, np.float32))
    more = {"DepthMultiplier": 1} if kind == "DEPTHWISE_CONV_2D" else {}
    options = "Conv2DOptions" if kind == "CONV_2D" else "DepthwiseConv2DOptions"
    b.operator(kind, [x, w, bias], [y], options, 5 if several else 2, Padding=0 if same else 1, StrideH=step,
               StrideW=step, DilationHFactor=1, DilationWFactor=1, FusedActivationFunction=activation,
               **more)  # fmt: skip
    return b.made([x], [y]).finish()


def _matmul(b: ModelBuilder, rng: np.random.Generator, several: bool) -> ModelBuilder:
    """One matrix or a stack of them, as it lies or transposed; a sum is longer than float32 holds exactly."""
    rows, units, turned = int(rng.integers(1, 5)), int(rng.integers(2, 9)), bool(rng.integers(2))
    depth = 3000 if rng.random() < 0.2 else int(rng.integers(3, 40))
    stack = [(), (3,), (1, 3)][int(rng.integers(3))]
    of_weights = stack if rng.random() < 0.5 else ()
    x, y = b.tensor((*stack, rows, depth), "float32"), b.tensor((*stack, rows, units), "float32")
    shape = (*of_weights, units, depth) if turned else (*of_weights, depth, units)
    w = b.constant(rng.integers(20 if depth == 3000 else -127, 128, shape).astype(np.int8), rng.uniform(0.002, 0.05))
    b.operator("BATCH_MATMUL", [x, w], [y], "BatchMatMulOptions", 4, AdjY=turned, AsymmetricQuantizeInputs=several)
    return b.made([x], [y])


def _svdf(b: ModelBuilder, rng: np.random.Generator, several: bool) -> ModelBuilder:
    batch, depth, units, rank, memory = (int(rng.integers(1, most)) for most in (4, 40, 9, 4, 20))
    filters = units * rank
    x, y = b.tensor((batch, depth), "float32"), b.tensor((batch, units), "float32")
    features = b.constant(rng.integers(-127, 128, (filters, depth)).astype(np.int8), rng.uniform(0.002, 0.05))
    times = b.constant(rng.integers(-127, 128, (filters, memory)).astype(np.int8), rng.uniform(0.002, 0.05))
    bias = b.constant((rng.standard_normal(units) * 3).astype(np.float32)) if rng.random() < 0.8 else -1
    state = b.tensor((batch, filters * memory), "float32", is_variable=True)
    b.operator("SVDF", [x, features, times, bias, state], [y], "SVDFOptions", 4 if several else 2, Rank=rank,
               FusedActivationFunction=int(rng.integers(0, 4)), AsymmetricQuantizeInputs=several)  # fmt: skip
    return b.made([x], [y])


def _embedding(b: ModelBuilder, rng: np.random.Generator, several: bool) -> ModelBuilder:
    rows, shape = int(rng.integers(2, 30)), tuple(rng.integers(1, 6, int(rng.integers(1, 3))).tolist())
    x, y = b.tensor((5,), "int32"), b.tensor((5, *shape), "float32")
    w = b.constant(rng.integers(-127, 128, (rows, *shape)).astype(np.int8), rng.uniform(0.002, 0.05))
    b.operator("EMBEDDING_LOOKUP", [x, w], [y], None, 3)
    return b.made([x], [y])


def _lstm(rng: np.random.Generator, shifted: bool, time_major: bool, clip: float) -> bytes:
    b, (batches, steps, depth, units) = ModelBuilder(), (2, 3, int(rng.integers(3, 30)), int(rng.integers(3, 20)))
    shape = (steps, batches) if time_major else (batches, steps)
    x = b.tensor((*shape, depth), "float32")
    columns = [depth] * 4 + [units] * 4
    matrices = [
        b.constant(rng.integers(-127, 128, (units, count)).astype(np.int8), rng.uniform(0.002, 0.01))
        for count in columns
    ]
    biases = [b.constant(rng.standard_normal(units).astype(np.float32)) for _ in range(4)]
    states = [b.tensor((batches, units), "float32", is_variable=True) for _ in range(2)]
    y = b.tensor((*shape, units), "float32")
    inputs = [x, *matrices, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
    fields = {"CellClip": clip, "TimeMajor": time_major, "AsymmetricQuantizeInputs": shifted}
    options = "UnidirectionalSequenceLSTMOptions"
    b.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], options, 3, FusedActivationFunction=4, **fields)
    return b.made([x], [y]).finish()


_OTHERS = {"BATCH_MATMUL": _matmul, "SVDF": _svdf, "EMBEDDING_LOOKUP": _embedding}


@pytest.mark.parametrize(("kind", "several"), FORMS)
def test_equal(kind: str, several: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    lookup = kind == "EMBEDDING_LOOKUP"

    def draw(numbers: np.random.Generator, network: Network) -> list[np.ndarray]:
        shape = network.tensors[network.inputs[0]].shape
        if lookup:
            rows = network.tensors[network.operators[0].inputs[1]].shape[0]
            return [numbers.integers(0, rows, shape).astype(np.int32)]
        values = (numbers.standard_normal(shape) * float(10.0 ** numbers.integers(-3, 4))).astype(np.float32)
        return [{"3": np.zeros_like(values), "4": abs(values)}.get(network.name, values)]

    models = {f"{number}": hybrid(rng, kind, several) for number in range(12)}
    assert_equals_references(models, draw, tmp_path, what=None if lookup else "LiteRT's reference kernels")


def grouped_convolution(rng: np.random.Generator) -> bytes:
    """A dilated convolution of two groups from nine channels to six."""
    x, y = TensorSpec((2, 8, 9, 18), "float32"), TensorSpec((2, 4, 5, 12), "float32")
    w = constant(rng.integers(-127, 128, (12, 3, 3, 9)), "int8", rng.uniform(0.002, 0.05, 12))
    bias = constant(rng.standard_normal(12), "float32")
    fields = {"Padding": 1, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": 1}
    fields |= {"DilationHFactor": 2, "DilationWFactor": 2}
    return single_operator("CONV_2D", [x, w, bias], [y], "Conv2DOptions", 5, **fields).finish()


@kernel_forms.needs_emulator
@pytest.mark.qemu
def test_convolutions_are_the_same_in_all_forms(tmp_path: Path) -> None:
    """Portable, with DSP instructions and with Helium, and equal to LiteRT's."""
    rng = np.random.default_rng(8)
    models = [hybrid(rng, kind, several) for kind, several in FORMS[:5] for _ in range(4)] + [grouped_convolution(rng)]
    networks = [read_network(model) for model in models]
    inputs = [[rng.standard_normal(n.tensors[n.inputs[0]].shape).astype(np.float32)] for n in networks]
    expected = [TFLiteReference(model).run(given)[0] for model, given in zip(models, inputs, strict=True)]
    together = Together(networks, inputs, tmp_path)
    found = [run_sanitized(together)]
    found += [kernel_forms.run_emulated(together, cpu, "-O2") for cpu in kernel_forms.FORMS.values()]
    for form in found:
        for made, right in zip(form, expected, strict=True):
            assert made[0].tobytes() == right.tobytes()


@pytest.mark.parametrize("seed", range(4))
def test_the_state_of_an_svdf(seed: int, tmp_path: Path) -> None:
    """Of several steps one after the other."""
    rng, path = np.random.default_rng(seed), tmp_path / "model.tflite"
    path.write_bytes(hybrid(rng, "SVDF", several=bool(seed % 2)))
    artifact = compile_model(path, CompileOptions("none", objective="bytes"), tmp_path / "out")
    assert [o.claim.exactness for o in artifact.operators] == [Exactness.EXACT]
    runner, reference = LocalRunner(tmp_path / "out"), TFLiteReference(path.read_bytes())
    runner.reset()
    reference.reset()
    shape = runner.artifact.inputs[0].shape
    for step in range(12):
        values = (rng.standard_normal(shape) * float(10.0 ** rng.integers(-3, 4))).astype(np.float32) * (step != 5)
        np.testing.assert_array_equal(runner.run_next([values]).outputs[0], reference.step([values])[0])


@pytest.mark.parametrize("seed", range(4))
def test_the_states_of_an_lstm(seed: int, tmp_path: Path) -> None:
    """LiteRT's sigmoid and tanh are polynomials, the C library's are not; tflite-micro reads the weights as floats."""
    rng, path = np.random.default_rng(seed), tmp_path / "model.tflite"
    path.write_bytes(_lstm(rng, shifted=bool(seed % 2), time_major=seed < 2, clip=0.7 if seed else 0.0))
    artifact = compile_model(path, CompileOptions("none", objective="bytes"), tmp_path / "out")
    assert [o.claim.exactness for o in artifact.operators] == [Exactness.UNPROVEN]
    runner, reference = LocalRunner(tmp_path / "out"), TFLiteReference(path.read_bytes())
    runner.reset()
    reference.reset()
    for step in range(6):
        values = rng.standard_normal(runner.artifact.inputs[0].shape) * 10.0 ** rng.integers(-2, 3)
        values = values.astype(np.float32) * (step != 3)
        found = runner.run_next([values]).outputs[0]
        np.testing.assert_allclose(found, reference.step([values])[0], rtol=0, atol=1e-6)
        assert np.ptp(found) > 0.1
    assert reference.what == "LiteRT's reference kernels"


@pytest.mark.parametrize("accelerator", ["ethos-u55-256", "none"])
def test_a_compiled_model_says_whose_kernels(accelerator: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(hybrid(np.random.default_rng(1), "CONV_2D", several=False))
    artifact = compile_model(path, CompileOptions(accelerator, objective="bytes", effort="quick"), tmp_path / "out")
    (operator,) = artifact.operators
    assert (operator.claim.exactness, operator.claim.reference) == (Exactness.EXACT, LITERT)
