"""`VerifyMemoryPlan` on plans of TVM's own planner, right and wrong ones.

pip install "apache-tvm==0.27.*" "apache-tvm-ffi>=0.1.14,<0.1.15" pytest msgspec click rich
PYTHONPATH=CLONE_OF_THIS_REPOSITORY python -m pytest test_verify_memory_plan.py
"""

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan.transform import MemoryPlanError, VerifyMemoryPlan


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        a = R.exp(x)
        b = R.add(a, x)
        c = R.multiply(b, a)
        return R.negative(c)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), cond: R.Tensor((), "bool")):
        if cond:  # noqa: SIM108
            y = R.reshape(R.reshape(x, (32,)), (4, 8))
        else:
            y = R.reshape(R.reshape(x, (32,)), (4, 8))
        return y


@I.ir_module
class Shared:
    """`a` and `b` live together and share a storage, as `a` of apache/tvm #20190 did."""

    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            y[i] = x[i] * T.float32(2)

    @T.prim_func(s_tir=True)
    def add(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), z: T.Buffer((8,), "float32")):
        for i in range(8):
            z[i] = x[i] + y[i]

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        R.func_attr({"relax.force_pure": True})
        cls = Shared
        storage = R.memory.alloc_storage(R.shape([32]), 0, "global", "float32")
        a = R.memory.alloc_tensor(storage, 0, R.shape([8]), "float32")
        _ = cls.double(x, a)
        b = R.memory.alloc_tensor(storage, 0, R.shape([8]), "float32")
        _1 = cls.double(x, b)
        c = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
        _2 = cls.add(a, b, c)
        return c


@I.ir_module
class Reshaped:
    """`b` takes the storage of `a` while a reshape of `a` is still read, as plans did before apache/tvm #20134."""

    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            y[i] = x[i] * T.float32(2)

    @T.prim_func(s_tir=True)
    def add(x: T.Buffer((2, 4), "float32"), y: T.Buffer((8,), "float32"), z: T.Buffer((8,), "float32")):
        for i, j in T.grid(2, 4):
            z[i * 4 + j] = x[i, j] + y[i * 4 + j]

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        R.func_attr({"relax.force_pure": True})
        cls = Reshaped
        storage = R.memory.alloc_storage(R.shape([32]), 0, "global", "float32")
        a = R.memory.alloc_tensor(storage, 0, R.shape([8]), "float32")
        _ = cls.double(x, a)
        view = R.call_packed("vm.builtin.reshape", a, R.shape([2, 4]), ty_args=R.Tensor((2, 4), "float32"))
        b = R.memory.alloc_tensor(storage, 0, R.shape([8]), "float32")
        _1 = cls.double(x, b)
        c = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
        _2 = cls.add(view, b, c)
        return c


@I.ir_module
class TooSmall:
    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            y[i] = x[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        R.func_attr({"relax.force_pure": True})
        cls = TooSmall
        storage = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
        a = R.memory.alloc_tensor(storage, 0, R.shape([8]), "float32")
        _ = cls.double(x, a)
        b = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
        _1 = cls.double(a, b)
        return b


def planned(mod):
    passes = relax.transform
    return tvm.transform.Sequential(
        [
            passes.LegalizeOps(),
            passes.ToNonDataflow(),
            passes.RemovePurityChecking(),
            passes.CallTIRRewrite(),
            passes.StaticPlanBlockMemory(),
        ]
    )(mod)


def test_a_right_plan_comes_back_unchanged():
    mod = planned(Chain)
    assert VerifyMemoryPlan()(mod).same_as(mod)


@pytest.mark.parametrize(
    "mod, text",
    [
        (lambda: planned(Branches), "'storage' is used where it was not made"),
        (lambda: Shared, "written since"),
        (lambda: Reshaped, "written since"),
        (lambda: TooSmall, "a tensor at [0, 32) lies in a storage of 16 bytes"),
    ],
)
def test_a_wrong_plan_is_an_error_that_says_where(mod, text):
    with pytest.raises(MemoryPlanError) as error:
        VerifyMemoryPlan()(mod())
    assert text in str(error.value)
