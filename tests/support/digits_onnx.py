"""The example network as an ONNX QDQ export."""

from __future__ import annotations

from pathlib import Path

from tests.support.digits_network import Digits
from tests.support.onnx_graph import Graph

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
