"""Every host operator equals its reference on generated models, at least three of each type, whatever compiler and
level makes the C: all in one program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.kernels import LITERT_NAME, TFLiteReference
from npu_memplan.exactness import (
    EXACT,
    EXACT_AS_A_WHOLE,
    LIBRARY,
    LITERT,
    MICRO,
    Code,
    Exactness,
    operator_claim,
    reference_of,
)
from npu_memplan.frontend.host_ops import supported_names
from npu_memplan.frontend.tflite.lifted import import_tflite
from npu_memplan.models.flatbuffer import UnsupportedModelError
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.in_steps import equals_reference
from tests.support.many_operators import LEVELS, Together, assert_equals_references, networks_that_differ, run_sanitized
from tests.support.operator_table import plain_values, row
from tests.support.tflite_builder import TensorSpec, write_model

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")

MODELS = 3


def claimed(dtype: str) -> Iterator[str]:
    yield from sorted(EXACT[Code.HOST][dtype])
    if dtype == "float32":
        yield from sorted(LIBRARY)


def values(rng: np.random.Generator, network: Network) -> list[np.ndarray]:
    """Inputs over the whole range of quantised types; none below zero where the reference stops there."""
    found, from_zero = [], network.cpu_operators[0].name == "RSQRT"
    for tensor in (network.tensors[i] for i in network.inputs):
        if tensor.dtype in ("int8", "uint8", "int16"):
            limits = np.iinfo(tensor.dtype)
            least = tensor.zero_point if from_zero else limits.min
            found.append(rng.integers(least, limits.max, tensor.shape, tensor.dtype, endpoint=True))
        else:
            found.append(plain_values(rng, tensor.shape, tensor.dtype))
    return found


@pytest.mark.parametrize("dtype", list(EXACT[Code.HOST]))
def test_generated_models(dtype: str, tmp_path: Path) -> None:
    networks, inputs, expected, wrong = [], [], [], []
    rng = np.random.default_rng(len(dtype))
    for kind in claimed(dtype):
        for number in range(MODELS):
            case = row(kind, dtype, number)
            model = case.build()
            reference = TFLiteReference(model, case.name)
            network = read_network(model, case.name)
            networks.append(network)
            inputs.append(values(rng, network))
            expected.append(reference.run(inputs[-1]))
            if (reference.what == "tflite-micro") != (reference_of(kind, dtype) == MICRO):
                wrong.append(f"{case.name} ran in {reference.what}")
    together = Together(networks, inputs, tmp_path)
    found = run_sanitized(together)
    for network, ours, theirs in zip(networks, found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if a.dtype != b.dtype or not np.array_equal(a.reshape(-1), b.reshape(-1), equal_nan=a.dtype.kind == "f"):
                wrong.append(network.name)
    assert wrong == []
    assert networks_that_differ(together, LEVELS, found) == []


def test_parts_of_other_scales(tmp_path: Path) -> None:
    """LiteRT rescales them while it concatenates, in float32."""
    models, rng = {}, np.random.default_rng(4)
    for number in range(8):
        scales = [float(rng.uniform(0.01, 0.1)) for _ in range(4)]
        parts = [TensorSpec((3, 50), "uint8", scale, int(rng.integers(256))) for scale in scales[:3]]
        y = TensorSpec((3, 150), "uint8", 0.03 if number % 2 else scales[3], int(rng.integers(256)))
        models[f"parts{number}"] = write_model("CONCATENATION", parts, [y], ("ConcatenationOptions", {"Axis": 1}))
    assert_equals_references(models, values, tmp_path)


def of_four_bits(kind: str, number: int) -> bytes:
    """An int8 model whose weights are packed to 4 bits."""
    case = row(kind, "int8", number)
    b = case.make(np.random.default_rng(number))
    _, inputs, _, _, _, _ = b.operators[0]
    spec = b.tensors[inputs[1]]
    assert spec.data is not None
    small = np.clip(spec.data.reshape(-1).astype(int) // 16, -8, 7)
    small = np.pad(small, (0, small.size % 2))
    packed = ((small[0::2] & 15) | ((small[1::2] & 15) << 4)).astype(np.uint8)
    b.tensors[inputs[1]] = replace(spec, dtype="int4", data=packed)
    return b.finish()


def test_weights_of_four_bits(tmp_path: Path) -> None:
    kinds = "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"
    models = {f"{kind}{number}": of_four_bits(kind, number) for kind in kinds for number in range(MODELS)}
    assert_equals_references(models, values, tmp_path, what="tflite-micro")


def test_four_bits_with_a_scale_for_each_unit(tmp_path: Path) -> None:
    """tflite-micro refuses them, and LiteRT rounds once: halves of a step on the NPU and on the CPU would differ."""
    x, y = TensorSpec((90, 16), "int8", 0.01, 29), TensorSpec((90, 12), "int8", 0.004, -44)
    rng = np.random.default_rng(5)
    scales = tuple(np.float32(rng.uniform(0.01, 0.02, 12)).tolist())
    weights = TensorSpec((12, 16), "int4", scales, data=rng.integers(0, 256, 96, np.uint8))
    bias = TensorSpec((12,), "int32", data=rng.integers(-900, 900, 12, np.int32))
    model = write_model("FULLY_CONNECTED", [x, weights, bias], [y], ("FullyConnectedOptions", {}))
    assert_equals_references({"units": model}, values, tmp_path, what=LITERT_NAME)
    (operator,) = equals_reference(model, tmp_path, 3, CompileOptions("ethos-u55-128", npu_compiler="tvm")).operators
    assert (operator.agent, operator.claim.exactness, operator.claim.reference) == (Agent.HOST, Exactness.EXACT, LITERT)


def test_exponentials_up_to_infinity(tmp_path: Path) -> None:
    """LiteRT's tables of int16 have numbers of float32 above exp(80), infinity above exp(88.7)."""
    specs = [TensorSpec((2, 1000), "int16", scale, 0) for scale in (0.0025, 0.0027, 0.0034, 0.05)]
    models = {
        f"exp{i}": write_model("EXP", [spec], [replace(spec, scale=0.01)], ("ExpOptions", {}))
        for i, spec in enumerate(specs)
    }
    assert_equals_references(models, values, tmp_path, what=LITERT_NAME)


def test_a_tensor_without_elements(tmp_path: Path) -> None:
    x = TensorSpec((2, 0, 3), "int8", 0.05, 3)
    model = write_model("RELU", [x], [x])
    assert equals_reference(model, tmp_path, 1, CompileOptions("none")).outputs[0].size_bytes == 0


def test_the_fewest_bytes_of_weights_of_four_bits(tmp_path: Path) -> None:
    """Vela refuses them, and smaller pools are too small for native lowering: neither ends the search."""
    (operator,) = equals_reference(of_four_bits("CONV_2D", 0), tmp_path, 1, CompileOptions(objective="bytes")).operators
    assert operator.claim.exactness is Exactness.EXACT


def test_vela_reads_no_four_bits() -> None:
    with pytest.raises(UnsupportedModelError, match=r"weights of 4 bits \(tensor 1 't1' int8.*--npu-compiler tvm"):
        import_tflite(of_four_bits("CONV_2D", 0))


def test_every_host_operator_is_claimed_for_some_type() -> None:
    claims = {kind for kinds in EXACT[Code.HOST].values() for kind in kinds} | set(LIBRARY)
    assert set(supported_names()) - claims - EXACT_AS_A_WHOLE == set()


def test_a_function_of_the_c_library_is_named() -> None:
    found = operator_claim(Code.HOST, "LOGISTIC", "float32")
    assert (found.exactness, found.reference) == (Exactness.ULPS, MICRO)
    assert found.reason == "expf of the C library: equal with the local runner's; newlib's is equal where measured"
    assert operator_claim(Code.HOST, "TANH", "float32").reason.endswith("newlib's is within 2 ulp")
