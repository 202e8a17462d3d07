"""Kernels scheduled for GPUs compile, and are the same with a plan: only addresses differ. None is run here."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.s_tir import dlight
from tvm.script import ir as I
from tvm.script import relax as R

from npu_memplan.transform import PlanMemory, pipeline
from tests.support.relax_programs import Shape, transformer

TARGETS = {
    "cuda": {"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024, "thread_warp_size": 32},
    "opencl": {"kind": "opencl"},
    "webgpu": {"kind": "webgpu"},
}


@I.ir_module
class Attention:
    """Normalisation, scores, softmax and mean: each reduces across threads."""

    @R.function
    def main(
        x: R.Tensor((1, 16, 64), "float32"), w: R.Tensor((64, 64), "float32"), g: R.Tensor((64,), "float32")
    ) -> R.Tensor((1, 16, 64), "float32"):
        with R.dataflow():
            n = R.nn.rms_norm(x, g, axes=[-1])
            q = R.matmul(n, w)
            s = R.matmul(q, R.permute_dims(n, axes=[0, 2, 1]))
            p = R.nn.softmax(s, axis=-1)
            y = R.add(R.matmul(p, n), x)
            z = R.subtract(y, R.mean(y, axis=[-1], keepdims=True))
            R.output(z)
        return z


def kernels(module, target) -> dict[str, str]:
    """Name -> source of the device functions that `module` compiles to."""
    executable = tvm.compile(module, target=target, relax_pipeline=pipeline(plan=False))
    text = ""
    stack = [executable.mod]
    while stack:
        module = stack.pop()
        stack += list(module.imports)
        if module.kind not in ("relax.VMExecutable", "llvm"):
            text += module.inspect_source() + "\n"
    found = re.findall(
        r"^(?:__kernel void|extern \"C\" __global__ void.*?|fn) (\w+)_kernel(\([^;]*?\) ?\{.*?^\})", text, re.M | re.S
    )
    return dict(found)


BLOCK = Shape(layers=1, hidden=64, heads=4, inner=128, vocabulary=96, gated=True)

MODULES = {
    "attention": lambda: Attention,
    "transformer block": lambda: transformer(BLOCK, new=16),
    "transformer block, any length": lambda: transformer(BLOCK),
    "transformer block, decode": lambda: transformer(BLOCK, new=1, cached=True),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "transformer block") for kind in TARGETS),
        ("cuda", "attention"),
        ("opencl", "transformer block, decode"),
        pytest.param("webgpu", "transformer block, any length", marks=pytest.mark.slow),
    ],
)
def test_kernels_are_those_of_the_unplanned_module(kind, name):
    gpu = dlight.gpu
    rules = [gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback()]
    target = tvm.target.Target(TARGETS[kind], "llvm")
    with target:
        scheduled = dlight.ApplyDefaultSchedule(*rules)(relax.transform.LegalizeOps()(MODULES[name]()))
        planned = PlanMemory()(scheduled)
        plain, own = kernels(scheduled, target), kernels(planned, target)
    assert len(own) >= 6
    assert any("red_buf" in body for body in plain.values())
    for kernel, body in own.items():
        assert body == plain[kernel if kernel in plain else re.sub(r"_\d+$", "", kernel)], kernel
