"""The example network as an ONNX QDQ export equals ONNX's own reference, image by image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the package onnx (pip install npu_memplan[onnx])")
from onnx.reference import ReferenceEvaluator  # noqa: E402

from fvp_runner import runner  # noqa: E402
from npu_memplan.compiler import compile_model  # noqa: E402
from npu_memplan.options import CompileOptions  # noqa: E402
from npu_memplan.problem import Agent  # noqa: E402
from tests.support.digits_network import digits  # noqa: E402
from tests.support.digits_onnx import exported  # noqa: E402


def test_logits_equal_those_of_onnx(tmp_path: Path) -> None:
    network = digits()
    model = exported(network, tmp_path / "digits.onnx")
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out")
    assert {o.kind for o in artifact.operators if o.agent is Agent.HOST} <= {"QuantizeLinear", "DequantizeLinear"}
    npu, reference = runner.create("local", tmp_path / "out"), ReferenceEvaluator(onnx.load(model))
    steps = []
    for image in network.images[:16]:
        found = npu.run([image[None]]).outputs[0]
        (wanted,) = reference.run(None, {"image": image[None]})
        steps.append(round(float(np.abs(found - wanted).max() / network.tensors["logits"].scale)))
    assert max(steps) <= 1
    assert steps.count(0) >= 14, steps  # TFLite's two roundings leave less than half of the images without a step
