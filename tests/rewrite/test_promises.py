"""Kernels in place are right beside one that promises no aliasing: TVM takes the last promise, by name, for all."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.transform import PlanMemory, pipeline


@I.ir_module
class Quantized:
    """Bytes made in place of floats, four bytes for one; and a kernel that nobody calls."""

    @T.prim_func(s_tir=True)
    def transposed(x: T.Buffer((64, 10), "int8"), y: T.Buffer((10, 64), "int8")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "transposed"})
        for i, j in T.grid(10, 64):
            with T.sblock("copy"):
                v, w = T.axis.remap("SS", [i, j])
                y[v, w] = x[w, v]

    @R.function
    def main(x: R.Tensor((1, 32, 32, 16), "float32")):
        a = R.add(x, x)
        b = R.quantize(a, R.const(0.039393551647663116, "float32"), R.const(-128, "int8"), out_dtype="int8")
        return R.maximum(b, R.const(-100, "int8"))


def test_a_kernel_in_place_is_right_beside_one_that_promises():
    planned = PlanMemory(poison=0xA5)(Quantized)
    kernels = {gv.name_hint: f for gv, f in planned.functions.items() if isinstance(f, tirx.PrimFunc)}
    assert "transposed" in kernels
    assert not [name for name, f in kernels.items() if f.attrs is not None and "tirx.noalias" in f.attrs]
    x = np.random.default_rng(0).standard_normal((1, 32, 32, 16), dtype=np.float32)
    results = []
    for module in (Quantized, planned):
        vm = relax.VirtualMachine(tvm.compile(module, target="llvm", relax_pipeline=pipeline(plan=False)), tvm.cpu())
        results.append(vm["main"](tvm.runtime.tensor(x)).numpy())
    np.testing.assert_array_equal(*results)
