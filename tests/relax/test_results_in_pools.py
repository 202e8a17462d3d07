"""Results of a function outlast it: nothing may take their bytes, not even at the last point."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import npu_memplan as nm
from npu_memplan.transform import PlanMemory, Workspace


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
