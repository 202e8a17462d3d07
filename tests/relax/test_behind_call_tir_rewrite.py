"""`PlanMemory` where TVM's pipeline has StaticPlanBlockMemory: kernels write into arguments already."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.relax.ir.instrument import WellFormedInstrument
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.transform import PlanMemory, VerifyMemoryPlan, memory_plan_faults
from npu_memplan.vocabulary import POOLS, RUN_TIME
from tests.relax.conftest import flatten

passes = relax.transform
BEFORE = (
    passes.LegalizeOps,
    passes.RewriteDataflowReshape,
    passes.ToNonDataflow,
    passes.RemovePurityChecking,
    passes.CallTIRRewrite,
)
BEHIND = (
    passes.RewriteCUDAGraph,
    passes.LowerAllocTensor,
    passes.KillAfterLastUse,
    passes.LowerRuntimeBuiltin,
    passes.ComputePrimValue,
    passes.VMShapeLower,
    passes.AttachGlobalSymbol,
)


def through(module, wanted):
    """`module` after passes whose results are all well-formed."""
    with tvm.target.Target("llvm"), tvm.transform.PassContext(instruments=[WellFormedInstrument()]):
        for one in wanted:
            module = one(module)
    return module


@pytest.mark.parametrize(
    "name",
    ["mlp", "attention", "cnn_nhwc", "nested_if", "relax_calls", "in_place_call", "packed_calls", "dynamic_convs"],
)
def test_the_plan_is_that_of_the_module_before(name, unplanned):
    entry, expected = unplanned(name)
    early = through(entry.module, [PlanMemory()])
    late = through(entry.module, [*(p() for p in BEFORE), PlanMemory(poison=0xA5), VerifyMemoryPlan()])
    assert [list(map(str, p)) for p in late["main"].attrs[POOLS]] == [
        list(map(str, p)) for p in early["main"].attrs[POOLS]
    ]
    assert len(late["main"].attrs[RUN_TIME]) == len(early["main"].attrs[RUN_TIME])
    built = tvm.compile(through(late, [p() for p in BEHIND]), target="llvm", relax_pipeline=None)
    vm = relax.VirtualMachine(built, tvm.cpu())
    for inputs, results in zip(entry.inputs, expected, strict=True):
        found = flatten(vm["main"](*map(tvm.runtime.tensor, inputs)))
        assert [a.tobytes() for a in found] == [a.tobytes() for a in results]


@I.ir_module
class Stubs:
    """Kernels that are elsewhere: nothing is known of them but that the last tensor is new."""

    @T.prim_func(s_tir=True)
    def unary(source: T.handle, target: T.handle):
        T.evaluate(0)

    @T.prim_func(s_tir=True)
    def binary(one: T.Buffer((8,), "float32"), other: T.Buffer((8,), "float32"), target: T.Buffer((8,), "float32")):
        T.evaluate(0)

    @R.function
    def main(x: R.Tensor((8,), "float32"), condition: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.call_tir(Stubs.unary, (x,), R.Tensor((8,), "float32"))
            b = R.call_tir(Stubs.unary, (a,), R.Tensor((8,), "float32"))
            c = R.call_tir(Stubs.binary, (a, b), R.Tensor((8,), "float32"))
            d = R.call_tir(Stubs.unary, (c,), R.Tensor((8,), "float32"))
            R.output(d)
        return d


def test_stubs_live_as_call_tir_says():
    planned = through(Stubs, [*(p() for p in BEFORE), PlanMemory()])
    assert dict(planned["main"].attrs[POOLS]) == {"workspace": 96}  # a, b and c live together
    assert memory_plan_faults(planned) == ((), ())
    assert not [entry for entry in planned["main"].attrs[RUN_TIME] if entry[0] in ("alloc", "alloc1", "alloc2")]


@I.ir_module
class SameOnBothSides:
    @R.function
    def main(x: R.Tensor((64,), "float32"), condition: R.Tensor((), "bool")):
        y = R.exp(x)
        if condition:  # noqa: SIM108
            z = y
        else:
            z = y
        return R.add(z, x)


def test_an_if_that_chooses_nothing_copies_nothing(run):
    planned = PlanMemory(poison=0xA5)(SameOnBothSides)
    assert dict(planned["main"].attrs[POOLS]) == {"workspace": 256}
    assert not [gv for gv in planned.functions if gv.name_hint.startswith("copy")]
    inputs = [[np.arange(64, dtype="float32") / 64, np.array(c)] for c in (True, False)]
    assert [a[0].tobytes() for a in run(planned, inputs)] == [a[0].tobytes() for a in run(SameOnBothSides, inputs)]
