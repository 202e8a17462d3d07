"""A network with int16 activations and int8 weights (16x8), the whole way: on the NPU, equal to tflite-micro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner import runner
from fvp_runner.references.interpreters import Reference
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.inputs import load_inputs
from tests.support.tflite_builder import ModelBuilder

SCALE = 1e-3  # of activations
SAME, VALID, RELU = 0, 1, 1


def network(last: str) -> bytes:
    """Convolution, depthwise convolution, a sum of both, a pool, a product, and `last` on ten values."""
    rng = np.random.default_rng(16)
    b = ModelBuilder()

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape).astype(np.int8)

    def bias(channels: int, scale: Any) -> int:
        return b.constant(rng.integers(-(1 << 20), 1 << 20, channels).astype(np.int64), SCALE * scale)

    window: dict[str, Any] = {"Padding": SAME, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": RELU}
    window |= {"DilationHFactor": 1, "DilationWFactor": 1}
    scales = rng.uniform(0.0005, 0.001, 16).astype(np.float32)
    x = b.tensor((1, 12, 12, 4), "int16", SCALE)
    wide, deep = (b.tensor((1, 12, 12, 16), "int16", SCALE) for _ in range(2))
    b.operator(
        "CONV_2D", [x, b.constant(weights(16, 3, 3, 4), scales), bias(16, scales)], [wide], "Conv2DOptions", 3, **window
    )
    kernels = b.constant(weights(1, 3, 3, 16), scales, axis=3)
    depthwise = {"DepthMultiplier": 1, **window}
    b.operator("DEPTHWISE_CONV_2D", [wide, kernels, bias(16, scales)], [deep], "DepthwiseConv2DOptions", 3, **depthwise)
    total, pooled = b.tensor((1, 12, 12, 16), "int16", 1.5 * SCALE), b.tensor((1, 6, 6, 16), "int16", 1.5 * SCALE)
    b.operator("ADD", [wide, deep], [total], "AddOptions", 2)
    pool = {"Padding": VALID, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    b.operator("MAX_POOL_2D", [total], [pooled], "Pool2DOptions", 2, **pool)
    flat = b.tensor((1, 576), "int16", 1.5 * SCALE)
    b.operator("RESHAPE", [pooled, b.constant(np.array([1, 576], np.int32))], [flat], "ReshapeOptions", 1)
    logits, y = b.tensor((1, 10), "int16", 2.0**-10), b.tensor((1, 10), "int16", 2.0**-15)
    product = [flat, b.constant(weights(10, 576), 1e-4), bias(10, 1.5e-4)]
    b.operator("FULLY_CONNECTED", product, [logits], "FullyConnectedOptions", 4)
    if last == "SOFTMAX":
        b.operator(last, [logits], [y], "SoftmaxOptions", Beta=1.0)
    else:
        b.operator(last, [logits], [y])
    return b.made([x], [y]).finish()


@pytest.mark.parametrize("last", ["TANH", "SOFTMAX"])
def test_equals_the_reference(last: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(network(last))
    artifact = compile_model(path, CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out")
    assert not [o.kind for o in artifact.operators if o.agent is Agent.HOST]
    assert artifact.notes == ()
    machine, reference = runner.create("local", tmp_path / "out"), Reference(path.read_bytes())
    for seed in (1, 2):
        inputs = load_inputs(artifact, [f"random:{seed}"])
        (ours,), (theirs,) = machine.run(inputs).outputs, reference.run(inputs)
        assert np.array_equal(ours.reshape(-1), theirs.reshape(-1))
        assert len(set(theirs.reshape(-1).tolist())) > 5
