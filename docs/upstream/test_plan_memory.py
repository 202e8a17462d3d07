"""`PlanMemory` where StaticPlanBlockMemory stands: well-formed, equal results, no more bytes.

pip install "apache-tvm==0.27.*" "apache-tvm-ffi>=0.1.14,<0.1.15" pytest msgspec click rich
PYTHONPATH=CLONE_OF_THIS_REPOSITORY python -m pytest test_plan_memory.py
"""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.ir.instrument import WellFormedInstrument
from tvm.script import ir as I
from tvm.script import relax as R

from npu_memplan.transform import PlanMemory, VerifyMemoryPlan, pool_sizes


@I.ir_module
class Convolution:
    @R.function
    def main(x: R.Tensor((1, 4, 16, 16), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")):
        a = R.nn.relu(R.nn.conv2d(x, w, padding=1))
        b = R.nn.max_pool2d(a, pool_size=(2, 2), strides=(2, 2))
        return R.nn.softmax(b)


@I.ir_module
class Branches:
    """The program of apache/tvm #20191."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), cond: R.Tensor((), "bool")):
        if cond:  # noqa: SIM108
            y = R.reshape(R.reshape(x, (32,)), (4, 8))
        else:
            y = R.reshape(R.reshape(x, (32,)), (4, 8))
        return y


@I.ir_module
class AnyLength:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        return R.add(R.nn.softmax(R.matmul(x, R.permute_dims(x))), R.sum(x))


@I.ir_module
class InDataflow:
    """The program of apache/tvm #17488."""

    @R.function
    def main() -> R.Tensor((10,), "float32"):
        with R.dataflow():
            gv = R.builtin.alloc_tensor(R.shape([10]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            R.output(gv)
        return gv


def passes_of(planner):
    """TVM's default pipeline with `planner` where its own stands."""
    passes = relax.transform
    return [
        passes.LegalizeOps(),
        passes.RewriteDataflowReshape(),
        passes.ToNonDataflow(),
        passes.RemovePurityChecking(),
        passes.CallTIRRewrite(),
        *planner,
        passes.LowerAllocTensor(),
        passes.KillAfterLastUse(),
        passes.LowerRuntimeBuiltin(),
        passes.ComputePrimValue(),
        passes.VMShapeLower(),
        passes.AttachGlobalSymbol(),
    ]


def run(mod, planner, arguments):
    with tvm.target.Target("llvm"), tvm.transform.PassContext(instruments=[WellFormedInstrument()]):
        for one in passes_of(planner):
            mod = one(mod)
    vm = relax.VirtualMachine(tvm.compile(mod, target="llvm", relax_pipeline=None), tvm.cpu())
    return [vm["main"](*map(tvm.runtime.tensor, given)).numpy() for given in arguments]


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    "mod, arguments",
    [
        (Convolution, [(random(1, 4, 16, 16), random(8, 4, 3, 3))]),
        (Branches, [(random(4, 8), np.array(side)) for side in (True, False)]),
        (AnyLength, [(random(n, 8),) for n in (1, 5, 64)]),
    ],
)
def test_results_are_equal_on_poisoned_pools(mod, arguments):
    expected = run(mod, [], arguments)
    found = run(mod, [PlanMemory(poison=0xA5), VerifyMemoryPlan()], arguments)
    assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


def test_one_plan_for_tensors_and_what_kernels_allocate():
    tensors = 2 * 8 * 16 * 16 * 4  # convolution and relu live together where whole storages are reused
    assert sum(pool_sizes(PlanMemory()(Convolution)).values()) < tensors


def test_sizes_follow_the_symbols():
    mod = PlanMemory()(AnyLength)
    assert [sum(pool_sizes(mod, {"n": n}).values()) for n in (1, 64)] < [200, 64 * 64 * 4 * 2]


def test_an_allocation_in_a_dataflow_block_is_no_error():
    PlanMemory()(InDataflow)
