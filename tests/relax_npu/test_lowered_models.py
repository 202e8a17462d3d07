"""Whole models by native lowering, also of float biases: on the NPU, equal to tflite-micro."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.relax.normalise import normalise
from npu_memplan.ethosu.relax.partition import host_operators, partition_for_ethosu
from npu_memplan.extract import extract
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.planners import plan
from npu_memplan.problem import Agent, BufferKind, Pool
from tests.support.against_reference import equals_reference
from tests.support.on_model import only_graph, run_program
from tests.support.real_data import Models

SMALL = ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "person_detect", "ad01_int8", "str_ww_ref_model",
         "hello_world_int8", "micro_speech_quantized", "trained_lstm_int8")  # fmt: skip
LARGE = ("mobilenet_v2_pt2tflite_int8", "tf2_mobilenet_v2_1.0_224_ptq")
# bytes of TVM v0.14's pool with hill_climb; its inputs and outputs lie outside
LEGACY_BYTES = {
    "kws_ref_model": 22080,
    "pretrainedResnet_quant": 69312,
    "vww_96_int8": 74480,
    "person_detect": 75680,
    "mobilenet_v2_pt2tflite_int8": 1509728,
}


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_equals_the_reference(name: str, shared_model: Models) -> None:
    equals_reference(shared_model(name).read_bytes(), "ethos-u55-256", 11)


@pytest.mark.parametrize("name", LEGACY_BYTES)
def test_arenas_are_below_the_legacy_ones(name: str, shared_model: Models) -> None:
    """With inputs and outputs outside of the arena, as the legacy numbers count them."""
    module = build_module(shared_model(name)).module
    problem = extract(module, [Pool("sram", agents=frozenset(Agent))], reuse_inputs=False)
    outside = {b.name for b in problem.buffers if b.kind in (BufferKind.INPUT, BufferKind.OUTPUT)}
    inside = replace(
        problem,
        buffers=tuple(b for b in problem.buffers if b.name not in outside),
        overlaps=tuple(o for o in problem.overlaps if not {o.first, o.second} & outside),
        conflicts=tuple(c for c in problem.conflicts if not set(c) & outside),
        accesses=(),
        branches=(),
    )
    assert plan(inside).usage[0].used_bytes < LEGACY_BYTES[name]


class Network:
    """pad, convolution with a float bias, average pool, flatten, bias + product: quantised around each."""

    def __init__(self, pad_mode: str = "constant", bias_size: float = 1.0, pad_scale: float = 0.02) -> None:
        rng = np.random.default_rng(3)
        b = relax.BlockBuilder()
        image = relax.Var("image", relax.TensorType((1, 4, 8, 8), "int8"))

        def scaling(scale: float, zero: int) -> tuple[Any, Any]:
            return relax.const(np.float32(scale)), relax.const(np.int8(zero))

        def stored(value: Any, scale: float, zero: int) -> Any:
            pair = scaling(scale, zero)
            return b.emit(relax.op.dequantize(b.emit(relax.op.quantize(value, *pair, out_dtype="int8")), *pair))

        def weights(*shape: int) -> Any:
            values = relax.const(rng.integers(-127, 128, shape).astype(np.int8))
            scales = relax.const(rng.uniform(0.002, 0.01, shape[0]).astype(np.float32))
            return b.emit(relax.op.dequantize(values, scales, relax.const(np.zeros(shape[0], np.int8)), axis=0))

        def bias(size: int) -> Any:
            return relax.const((rng.normal(0, 1, size) * bias_size).astype(np.float32))

        with b.function("main", [image]):
            with b.dataflow():
                x = b.emit(relax.op.dequantize(image, *scaling(0.02, -5)))
                pad = b.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 0, 1, 0, 1], pad_mode=pad_mode, pad_value=0.5))
                y = b.emit(relax.op.nn.conv2d(stored(pad, pad_scale, -5), weights(8, 4, 3, 3), strides=2))
                y = b.emit(relax.op.add(y, b.emit(relax.op.reshape(bias(8), (1, 8, 1, 1)))))
                y = stored(b.emit(relax.op.nn.relu(y)), 0.03, -128)
                flat = b.emit(relax.op.reshape(b.emit(relax.op.nn.avg_pool2d(y, 4, 4)), (1, 8)))
                kernel = b.emit(relax.op.permute_dims(weights(5, 8)))
                product = b.emit(relax.op.matmul(stored(flat, 0.02, -128), kernel))
                logits = b.emit(relax.op.quantize(b.emit(relax.op.add(bias(5), product)), *scaling(0.05, 3)))
                result = b.emit_output(logits)
            b.emit_func_output(result)
        self.module = b.finalize()


IMAGE = np.random.default_rng(2).integers(-128, 128, (1, 4, 8, 8)).astype(np.int8)


def on_the_host(module: Any) -> np.ndarray:
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return np.asarray(machine["main"](tvm.runtime.tensor(IMAGE)).numpy()).astype(int)


@pytest.mark.parametrize("pad_scale", [0.02, 0.03])  # behind the pad: as before it, or quantised anew
def test_all_of_it_runs_on_the_npu(pad_scale: float) -> None:
    module = Network(pad_scale=pad_scale).module
    partitioned = partition_for_ethosu(module)
    assert host_operators(partitioned) == ()
    (found,) = run_program(lower(only_graph(partitioned), accelerator("ethos-u55-256")), {"image": IMAGE})
    wanted = on_the_host(module)
    assert len(np.unique(wanted)) == 5
    assert np.abs(found.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize(
    "options, left",
    [
        ({}, set()),
        ({"pad_mode": "reflect"}, {"nn.pad"}),  # the value cannot be said in stored values
        ({"bias_size": 1e6}, {"nn.conv2d", "add", "matmul"}),  # no int32 holds it
    ],
)
def test_values_stay_what_they_were(options: dict[str, Any], left: set[str]) -> None:
    module = Network(**options).module
    assert np.abs(on_the_host(normalise(module)) - on_the_host(module)).max() <= 1
    assert left == {o.kind for o in host_operators(partition_for_ethosu(module))}
