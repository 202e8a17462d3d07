"""Pools outlast a function: those that the caller keeps grow when a call needs more; results keep their bytes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import npu_memplan as nm
from npu_memplan.problem import Pool
from npu_memplan.transform import KeptPools, PlanMemory, Workspace, pipeline, pool_sizes
from npu_memplan.transform.workspace import WorkspaceError


@I.ir_module
class Steps:
    """Two entries, of any length and of one token, and a function that both call."""

    @R.function
    def scale(x: R.Tensor((1, 16), "float32")) -> R.Tensor((1, 16), "float32"):
        return R.multiply(R.exp(x), x)

    @R.function
    def prefill(x: R.Tensor(("s", 16), "float32"), w: R.Tensor((16, 16), "float32")):
        a = R.matmul(x, w)
        b = R.nn.softmax(R.matmul(a, w), axis=-1)
        c = R.sum(R.add(b, a), axis=[0], keepdims=True)
        return Steps.scale(c)

    @R.function
    def decode(x: R.Tensor((1, 16), "float32"), w: R.Tensor((16, 16), "float32")):
        a = R.matmul(x, w)
        b = R.add(R.matmul(a, w), a)
        return R.subtract(Steps.scale(b), x)


def on_vm(module):
    return relax.VirtualMachine(tvm.compile(module, target="llvm", relax_pipeline=pipeline(plan=False)), tvm.cpu())


def test_functions_share_pools_that_grow():
    planned = PlanMemory([Pool("sram", 128), Pool("dram")], share=True, poison=0xA5)(Steps)
    plain, shared = on_vm(Steps), on_vm(planned)
    pools = KeptPools(planned)
    generator = np.random.default_rng(0)
    w = tvm.runtime.tensor(generator.standard_normal((16, 16), dtype=np.float32))
    allocated = []
    for s in (3, None, 3, 70, None, 5, 90):
        name = "decode" if s is None else "prefill"
        x = tvm.runtime.tensor(generator.standard_normal((s or 1, 16), dtype=np.float32))
        arguments = pools(name, s=s) if s else pools(name)
        assert shared[name](x, w, *arguments).numpy().tobytes() == plain[name](x, w).numpy().tobytes()
        allocated.append(pools.sizes["dram"])
    assert allocated[0] == allocated[1] == allocated[2] < allocated[3] == allocated[4] == allocated[5] <= allocated[6]
    assert allocated[3] == pool_sizes(planned, {"s": 70}, "prefill")["dram"]
    large, small = tvm.runtime.tensor(np.zeros((900, 16), np.float32)), pools("decode")
    with pytest.raises(
        Exception, match=r"this call needs more of pool dram than the \d+ bytes that are there; KeptPools"
    ):
        shared["prefill"](large, w, *small)


def test_functions_that_others_call_keep_pools_of_their_own():
    planned = PlanMemory(share=True)(Steps)
    assert [p.name for p in planned["prefill"].params] == ["x", "w", "workspace"]
    assert [p.name for p in planned["scale"].params] == ["x"]
    tvm.ir.assert_structural_equal(tvm.script.from_source(planned.script(show_meta=True)), planned)
    with pytest.raises(
        WorkspaceError, match=r"function 'scale' makes its pools itself; plan it with PlanMemory\(share"
    ):
        KeptPools(planned)("scale")


def test_what_outlasts_a_call_is_not_in_a_kept_pool():
    @I.ir_module
    class Kept:
        @R.function(pure=False)
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            y = R.exp(x)
            return R.call_packed("npu_memplan.test.itself", y, ty_args=(R.Tensor((8,), "float32"),))

    left = {str(n): str(why) for n, why in PlanMemory(share=True)(Kept)["main"].attrs["npu.run_time"]}
    assert left["y"].startswith("it may outlast the call")
    assert "y" not in {str(n) for n, _ in PlanMemory()(Kept)["main"].attrs["npu.run_time"]}


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((64,), "float32")):
        a = R.exp(x)
        b = R.nn.relu(a)
        return (b, a)


@I.ir_module
class Sides:
    @R.function
    def main(x: R.Tensor((64,), "float32"), c: R.Tensor((), "bool")):
        if c:
            a = R.exp(x)
            b = R.add(a, a)
            t = (b, a)
        else:
            e = R.negative(x)
            f = R.nn.relu(e)
            t = (f, e)
        return t


@I.ir_module
class Nested:
    @R.function
    def main(x: R.Tensor((64,), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")):
        if c:
            if d:
                a = R.exp(x)
                b = R.add(a, a)
                s = (b, a)
            else:
                g = R.negative(x)
                s = (g, g)
            t = s
        else:
            e = R.negative(x)
            f = R.nn.relu(e)
            t = (f, e)
        return t


@pytest.mark.parametrize(("module", "choices"), [(Chain, 0), (Sides, 1), (Nested, 2)])
def test_a_result_that_the_last_operator_reads_keeps_its_bytes(module, choices):
    planned = PlanMemory(use_workspace_io=True)(module)
    vm = relax.VirtualMachine(tvm.compile(planned, "llvm", relax_pipeline=nm.transform.pipeline()), tvm.cpu())
    plain = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    outputs = [str(o["name"]) for o in planned["main"].attrs["npu.placed_outputs"]]
    for bits in range(1 << choices):
        flags = [np.array(bool(bits >> i & 1)) for i in range(choices)]
        workspace = Workspace(planned)
        for parameter, value in zip(module["main"].params, [x, *flags], strict=True):
            workspace.input(parameter.name)[...] = value
        vm["main"](*workspace.tensors)
        wanted = plain["main"](*(tvm.runtime.tensor(v) for v in (x, *flags)))
        for name, want in zip(outputs, wanted, strict=True):
            np.testing.assert_array_equal(workspace.output(name), want.numpy())
