"""The example network as an ONNX QDQ export equals ONNX's own reference, image by image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the package onnx (pip install npu_memplan[onnx])")
from digits_network import Digits, digits  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_graph import Graph  # noqa: E402

from fvp_runner import runner  # noqa: E402
from npu_memplan.options import CompileOptions  # noqa: E402
from npu_memplan.pipeline import compile_model  # noqa: E402
from npu_memplan.problem import Agent  # noqa: E402

POOLED_STEP = 0.251  # of the largest pooled value, 64.0, over 255


def exported(network: Digits, path: Path) -> Path:
    """Per-channel weights, biases in int32, a quantisation behind every operator; logits as the result."""
    g = Graph()

    def scaling(name: str) -> tuple[float, int]:
        if name == "pooled":  # TFLite's pool keeps its input's scale; ONNX exports calibrate one for it
            return POOLED_STEP, -128
        tensor = network.tensors[name]
        return tensor.scale, tensor.zero_point

    def weighted(kind: str, x: str, layer: str, source: str, **attributes: object) -> str:
        scales = network.scales(layer)
        w = g.weights(f"{layer}w", network.stored_weights(layer), scales)
        bias = network.tensors[f"{layer}/bias"].array()
        b = g.bias(f"{layer}b", bias, scales, scaling(source)[0])
        return g.node(kind, [x, w, b], layer, **attributes)

    def conv(x: str, layer: str, source: str, relu: bool = True, **attributes: object) -> str:
        y = weighted("Conv", x, layer, source, **attributes)
        return g.stored(g.node("Relu", [y], f"{layer}_relu") if relu else y, f"{layer}_dq", *scaling(layer))

    image = g.stored("image", "image_dq", *scaling("image"))
    stem = conv(image, "stem", "image", pads=[1] * 4)
    down = conv(stem, "down", "stem", strides=[2, 2], pads=[0, 0, 1, 1])
    left = conv(down, "left", "down", pads=[1] * 4)
    right = conv(left, "right", "left", relu=False, pads=[1] * 4)
    total = g.node("Relu", [g.node("Add", [right, down], "sum")], "residual")
    residual = g.stored(total, "residual_dq", *scaling("residual"))
    depthwise = conv(residual, "depthwise", "residual", pads=[1] * 4, group=32)
    pointwise = conv(depthwise, "pointwise", "depthwise")
    pooled = g.stored(g.node("GlobalAveragePool", [pointwise], "pool"), "pooled_dq", *scaling("pooled"))
    flat = g.node("Flatten", [pooled], "flat")
    logits = weighted("Gemm", flat, "classes", "pooled", transB=1)
    g.stored(logits, "out", *scaling("logits"))
    return g.save(path, (1, 1, 16, 16), 10)


def test_logits_equal_those_of_onnx(tmp_path: Path) -> None:
    network = digits()
    model = exported(network, tmp_path / "digits.onnx")
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm"), tmp_path / "out")
    assert {o.kind for o in artifact.operators if o.agent is Agent.HOST} <= {"QUANTIZE", "DEQUANTIZE"}
    npu, reference = runner.create("host", tmp_path / "out"), ReferenceEvaluator(onnx.load(model))
    steps = []
    for image in network.images[:16]:
        found = npu.run([image[None]]).outputs[0]
        (wanted,) = reference.run(None, {"image": image[None]})
        steps.append(round(float(np.abs(found - wanted).max() / network.tensors["logits"].scale)))
    assert max(steps) <= 1
    assert steps.count(0) >= 14, steps  # TFLite's two roundings leave less than half of the images without a step
