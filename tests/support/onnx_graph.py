"""Small ONNX graphs in QDQ form, node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """Nodes and constants of a small ONNX graph with one image and one output."""

    def __init__(self, dtype: type = np.int8) -> None:
        self.rng = np.random.default_rng(4)
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, values: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def stored(self, x: str, name: str, scale: float, zero: int) -> str:
        """QuantizeLinear then DequantizeLinear; `zero` is that of int8."""
        shift = 128 if self.dtype is np.uint8 else 0
        s = self.constant(f"{name}_s", np.array(scale, np.float32))
        z = self.constant(f"{name}_z", np.array(zero + shift, self.dtype))
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, s, z], f"{name}_q"), s, z], name)

    def weights(self, name: str, values: np.ndarray, scales: np.ndarray) -> str:
        zeros = np.zeros(scales.shape, values.dtype)
        parts = [
            self.constant(f"{name}_{suffix}", v) for suffix, v in (("v", values), ("s", scales), ("z", zeros))
        ]  # fmt: skip
        return self.node("DequantizeLinear", parts, name, **({"axis": 0} if scales.ndim else {}))

    def bias(self, name: str, values: np.ndarray, scales: np.ndarray, scale: float) -> str:
        """A bias in units of input scale x weight scales."""
        return self.weights(name, values.astype(np.int32), (scales * np.float32(scale)).astype(np.float32))

    def conv(self, x: str, name: str, shape: tuple[int, ...], scale: float, **attributes: Any) -> str:
        scales = self.rng.uniform(0.002, 0.01, shape[0]).astype(np.float32)
        w = self.weights(f"{name}w", self.rng.integers(-127, 128, shape).astype(np.int8), scales)
        b = self.bias(f"{name}b", self.rng.integers(-300, 300, shape[0]), scales, scale)
        pads = [shape[2] // 2] * 4
        return self.node("Conv", [x, w, b], name, pads=pads, kernel_shape=list(shape[2:]), **attributes)

    def save(
        self, path: Path, shape: tuple[Any, ...] = (1, 3, 8, 8), classes: int = 5, result: tuple[int, ...] = ()
    ) -> Path:
        """Write the model; its result is [N, classes], or `result`."""
        inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, result or (shape[0], classes))]
        graph = helper.make_graph(self.nodes, "m", inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        onnx.save(model, path)
        return path
