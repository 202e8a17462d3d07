"""A reshape is a tensor of its own, whatever is changed in place before or behind it."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tests.relax.test_memory_views import CC, X, same_as_tvm, same_in_plain_c


@I.ir_module
class ReshapedAndChanged:
    """A reshape gives a tensor of its own, in whatever order its result and its argument are changed and read."""

    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((256,), "float32")):
        for i in range(256):
            with T.sblock("b"):
                v = T.axis.remap("S", [i])
                x[v] = x[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4, 64), "float32")):
        cls = ReshapedAndChanged
        a = R.negative(x)
        f = R.reshape(a, (256,))
        b = R.call_tir_inplace(cls.double, (f,), inplace_indices=[0], out_ty=R.Tensor((256,), "float32"))
        g = R.reshape(b, (4, 64))
        c = R.call_tir_inplace(cls.double, (b,), inplace_indices=[0], out_ty=R.Tensor((256,), "float32"))
        return R.add(a, g), R.negative(c)


def test_a_reshape_is_a_copy_where_one_of_both_is_changed_in_place():
    same_as_tvm(ReshapedAndChanged, [X])


def test_calls_in_place_behind_reshapes_stay_without_copies():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 64), "float32")):
            with R.dataflow():
                a = R.reshape(R.exp(x), (256,))
                b = R.reshape(R.add(a, a), (8, 32))
                c = R.reshape(R.tanh(b), (4, 64))
                d = R.add(c, x)
                R.output(d)
            return d

    module = relax.transform.DataflowUseInplaceCalls()(Module)
    assert "call_tir_inplace" in module.script()
    planned = same_as_tvm(module, [X])
    assert dict(planned["main"].attrs["npu.pools"]) == {"workspace": 1024}


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_a_reshape_that_is_changed_in_plain_c(tmp_path):
    same_in_plain_c(ReshapedAndChanged, tmp_path)
