"""An NPU that you can run: partition a Relax module, lower it, plan its memory, run it (docs/howto/relax-npu.md)."""

from __future__ import annotations

import tempfile

import numpy as np
import tvm
from tvm import relax

from fvp_runner.host.runner import LocalRunner
from npu_memplan.relax import Arithmetic, build_artifact, lower_for_ethosu, partition_for_ethosu, with_arithmetic

op, generator = relax.op, np.random.default_rng(0)


def residual_block() -> tvm.IRModule:
    """Two convolutions, their sum and a pool, int8 in and out: real numbers between stored values."""
    builder = relax.BlockBuilder()

    def real(values, scale, zero=0):
        return op.dequantize(values, relax.const(scale, "float32"), relax.const(zero, "int8"))

    def stored(values, scale, zero):
        return builder.emit(op.quantize(values, relax.const(scale, "float32"), relax.const(zero, "int8"), -1, "int8"))

    def convolution(values, scale, out_scale):
        weights = relax.const(generator.integers(-127, 128, (3, 3, 8, 8)).astype("int8"))
        bias = relax.const(generator.integers(-2000, 2000, 8).astype("int32"))
        layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        sums = op.nn.conv2d(values, real(weights, 0.004), padding=1, **layout)
        return stored(op.add(sums, real(bias, scale * 0.004)), out_scale, 4)

    x = relax.Var("x", relax.TensorType((1, 16, 16, 8), "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = convolution(real(x, 0.05, -3), 0.05, 0.1103)
            second = convolution(real(first, 0.1103, 4), 0.1103, 0.1307)
            total = stored(op.add(real(first, 0.1103, 4), real(second, 0.1307, 4)), 0.1709, 1)
            pooled = op.nn.max_pool2d(real(total, 0.1709, 1), (2, 2), (2, 2), layout="NHWC")
            result = builder.emit_output(stored(pooled, 0.1709, 1))
        builder.emit_func_output(result)
    return with_arithmetic(builder.get(), Arithmetic.REAL)


module = residual_block()
partitioned = partition_for_ethosu(module, "ethos-u55-128")
lowered = lower_for_ethosu(partitioned, "ethos-u55-128")
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
with tempfile.TemporaryDirectory() as folder:
    artifact = build_artifact(lowered, f"{folder}/block", accelerator="ethos-u55-128")
    print(f"{artifact.plan.usage[0].used_bytes} bytes of memory for all tensors")
    runner = LocalRunner(f"{folder}/block")
    for _ in range(3):
        image = generator.integers(-128, 128, (1, 16, 16, 8)).astype("int8")
        result = runner.run([image])
        np.testing.assert_array_equal(result.outputs[0], machine["main"](tvm.runtime.tensor(image)).numpy())
        print(f"{result.npu_cycles} cycles, equal to TVM on the CPU, bit for bit")
