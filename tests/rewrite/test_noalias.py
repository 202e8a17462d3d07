"""Kernels in place keep `tirx.noalias` where it holds; TVM applies that of the last kernel, by name, to all."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.extract.tir import nodes_of
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


def test_a_kernel_in_place_is_right_beside_one_with_noalias():
    planned = PlanMemory(poison=0xA5)(Quantized)
    kernels = {gv.name_hint: f for gv, f in planned.functions.items() if isinstance(f, tirx.PrimFunc)}
    assert "transposed" in kernels
    assert all("tirx.noalias" in f.attrs for f in kernels.values())
    assert results_are_equal(planned)


def test_where_one_kernel_lacks_noalias_all_do():
    function = Quantized["transposed"].without_attr("tirx.noalias")
    module = tvm.IRModule({**dict(Quantized.functions.items()), Quantized.get_global_var("transposed"): function})
    planned = PlanMemory(poison=0xA5)(module)
    kernels = [f for f in planned.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert kernels
    assert not any("tirx.noalias" in f.attrs for f in kernels)
    assert results_are_equal(planned)


def declared(planned, name: str) -> list[str]:
    """How each buffer on a pool is declared, in textual order."""
    return [stmt.data.op.name for stmt in nodes_of(planned[name].body, tirx.DeclBuffer)]


def test_only_storages_that_share_bytes_are_declared_over_their_pool():
    planned = PlanMemory()(Quantized)
    assert declared(planned, "add") == ["tirx.address_of"]
    assert declared(planned, "quantize") == ["tirx.buffer_data"] * 2  # in place
    apart = PlanMemory(overlaps=False)(Quantized)
    assert declared(apart, "quantize") == ["tirx.address_of"] * 2


def results_are_equal(planned) -> bool:
    x = np.random.default_rng(0).standard_normal((1, 32, 32, 16), dtype=np.float32)
    results = []
    for module in (Quantized, planned):
        vm = relax.VirtualMachine(tvm.compile(module, target="llvm", relax_pipeline=pipeline(plan=False)), tvm.cpu())
        results.append(vm["main"](tvm.runtime.tensor(x)).numpy())
    return bool(np.array_equal(*results))
