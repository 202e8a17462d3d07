"""NCHW modules in QDQ form, as the ONNX and PyTorch frontends make them, run wholly on the NPU within one step."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.relax.layout import has_nchw, to_nhwc
from npu_memplan.ethosu.relax.partition import host_operators, partition_for_ethosu
from tests.support.on_model import only_graph, run_program


class Network:
    """Builds a residual CNN in NCHW: every operator between dequantize and quantize, shared dequantisations."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.builder = relax.BlockBuilder()

    def emit(self, expression: Any) -> Any:
        return self.builder.emit(expression)

    def stored(self, value: Any, scale: float, zero: int) -> Any:
        """quantize then dequantize."""
        s, z = relax.const(np.float32(scale)), relax.const(np.int8(zero))
        quantised = self.emit(relax.op.quantize(value, s, z, axis=1, out_dtype="int8"))
        return self.emit(relax.op.dequantize(quantised, s, z, axis=1))

    def constant(self, values: np.ndarray, scales: np.ndarray) -> Any:
        zeros = np.zeros(scales.shape, values.dtype)
        return self.emit(relax.op.dequantize(relax.const(values), relax.const(scales), relax.const(zeros), axis=0))

    def conv(self, x: Any, shape: tuple[int, ...], scale: float, **attributes: Any) -> Any:
        weights = self.rng.integers(-127, 128, shape).astype(np.int8)
        scales = self.rng.uniform(0.002, 0.01, shape[0]).astype(np.float32)
        y = self.emit(relax.op.nn.conv2d(x, self.constant(weights, scales), **attributes))
        bias = self.constant(self.rng.integers(-500, 500, shape[0]).astype(np.int32), scales * np.float32(scale))
        return self.emit(relax.op.add(y, self.emit(relax.op.reshape(bias, (1, shape[0], 1, 1)))))

    def module(self) -> Any:
        image = relax.Var("image", relax.TensorType((1, 3, 16, 16), "int8"))
        with self.builder.function("main", [image]):
            with self.builder.dataflow():
                x = self.emit(
                    relax.op.dequantize(image, relax.const(np.float32(1 / 128)), relax.const(np.int8(4)), axis=1)
                )
                stem = self.stored(
                    self.emit(relax.op.nn.relu(self.conv(x, (16, 3, 3, 3), 1 / 128, padding=1))), 0.02, -128
                )
                left = self.stored(self.conv(stem, (16, 16, 1, 1), 0.02), 0.05, 3)
                both = self.stored(self.emit(relax.op.nn.relu(self.emit(relax.op.add(left, stem)))), 0.05, -128)
                deep = self.conv(both, (16, 1, 3, 3), 0.05, padding=1, strides=2, groups=16)
                deep = self.stored(self.emit(relax.op.nn.relu(deep)), 0.04, -128)
                pooled = self.stored(self.emit(relax.op.nn.max_pool2d(deep, 2, 2)), 0.04, -128)
                flat = self.emit(relax.op.reshape(pooled, (1, 16 * 16)))  # mixes channels with rows: needs a transpose
                weights = self.rng.integers(-127, 128, (10, 256)).astype(np.int8)
                kernel = self.constant(weights, np.array(0.01, np.float32))
                logits = self.emit(relax.op.matmul(flat, self.emit(relax.op.permute_dims(kernel))))
                logits = self.emit(
                    relax.op.quantize(logits, relax.const(np.float32(0.3)), relax.const(np.int8(1)), out_dtype="int8")
                )
                result = self.builder.emit_output(logits)
            self.builder.emit_func_output(result)
        return self.builder.finalize()


def on_the_host(module: Any, image: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return np.asarray(machine["main"](tvm.runtime.tensor(image)).numpy())


def test_a_module_in_nchw_runs_wholly_on_the_npu() -> None:
    module = Network().module()
    image = np.random.default_rng(2).integers(-128, 128, (1, 3, 16, 16)).astype(np.int8)
    partitioned = partition_for_ethosu(module)
    assert host_operators(partitioned) == ()
    found = run_program(lower(only_graph(partitioned), accelerator("ethos-u55-256")), {"image": image})[0]
    wanted = on_the_host(module, image)
    assert len(np.unique(wanted)) > 5
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_the_layout_pass_keeps_every_value() -> None:
    module = Network().module()
    converted = to_nhwc(module)
    assert has_nchw(module)
    assert not has_nchw(converted)
    image = np.random.default_rng(3).integers(-128, 128, (1, 3, 16, 16)).astype(np.int8)
    assert np.abs(on_the_host(module, image).astype(int) - on_the_host(converted, image)).max() <= 1


def test_axes_of_equal_extents_still_change_places() -> None:
    """Eight channels of 8 x 8: the shape says nothing about the order."""
    network = Network()
    image = relax.Var("image", relax.TensorType((1, 8, 8, 8), "int8"))
    with network.builder.function("main", [image]):
        with network.builder.dataflow():
            x = network.emit(relax.op.dequantize(image, relax.const(np.float32(0.01)), relax.const(np.int8(4)), axis=1))
            y = network.conv(x, (8, 8, 3, 3), 0.01, padding=1)
            y = network.emit(
                relax.op.quantize(y, relax.const(np.float32(0.02)), relax.const(np.int8(0)), axis=1, out_dtype="int8")
            )
            result = network.builder.emit_output(y)
        network.builder.emit_func_output(result)
    module = network.builder.finalize()
    values = np.random.default_rng(5).integers(-128, 128, (1, 8, 8, 8)).astype(np.int8)
    partitioned = partition_for_ethosu(module)
    assert host_operators(partitioned) == ()
    found = run_program(lower(only_graph(partitioned), accelerator("ethos-u55-256")), {"image": values})[0]
    assert np.abs(found.astype(int) - on_the_host(module, values).astype(int)).max() <= 1


@pytest.mark.skipif(importlib.util.find_spec("onnx") is None, reason="needs the package onnx")
def test_an_onnx_export_goes_the_same_way() -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
    from tvm.relax.frontend.onnx import from_onnx

    rng = np.random.default_rng(4)
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, values: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(values, name))
        return name

    def stored(x: str, name: str, scale: float, zero: int) -> str:
        pair = [constant(f"{name}_s", np.array(scale, np.float32)), constant(f"{name}_z", np.array(zero, np.int8))]
        nodes.append(helper.make_node("QuantizeLinear", [x, *pair], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *pair], [name]))
        return name

    x = stored("image", "x", 1 / 128, 0)
    weights = constant("w", rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8))
    pair = [constant("ws", rng.uniform(0.002, 0.01, 8).astype(np.float32)), constant("wz", np.zeros(8, np.int8))]
    nodes.append(helper.make_node("DequantizeLinear", [weights, *pair], ["wd"], axis=0))
    nodes.append(helper.make_node("Conv", [x, "wd"], ["y"], pads=[1] * 4, kernel_shape=[3, 3]))
    nodes.append(helper.make_node("Relu", ["y"], ["r"]))
    nodes.append(helper.make_node("GlobalAveragePool", [stored("r", "o", 0.02, -128)], ["g"]))
    stored("g", "out", 0.02, -128)
    info = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("image", (1, 3, 9, 9)), ("out", (1, 8, 1, 1)))
    ]
    graph = helper.make_graph(nodes, "m", info[:1], info[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model)
    image = rng.uniform(-1, 1, (1, 3, 9, 9)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"image": image})
    partitioned = partition_for_ethosu(from_onnx(model))
    assert host_operators(partitioned) == ()
    quantised = np.clip(np.rint(image * 128), -128, 127).astype(np.int8)
    found = run_program(lower(only_graph(partitioned), accelerator("ethos-u55-256")), {"image": quantised})[0]
    assert np.abs((found.astype(np.float32) + 128) * 0.02 - wanted).max() <= 0.0201
