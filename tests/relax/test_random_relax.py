"""Drawn programs: strides, builtins that alias, loops, triangles, changes in place, clashing names are planned right.

`python -m benchmarks.random_relax --count 1000` tries more of them, each in a fork.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from benchmarks.random_relax import faults_of
from npu_memplan import analysis
from npu_memplan.transform import MemoryPlanError, PlanMemory, VerifyMemoryPlan, memory_plan_faults
from npu_memplan.vocabulary import RUN_TIME
from tests.support.random_relax import random_program, register_functions


@pytest.mark.parametrize("seed", range(12))
def test_a_drawn_program_computes_the_same_bytes(seed):
    register_functions()
    assert faults_of(random_program(seed)) == []


@I.ir_module
class Strided:
    """Rows of 12 elements of which 8 are used; columns; a parameter whose rows are apart."""

    @T.prim_func(s_tir=True)
    def rows(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8, 8), "float32")):
        t = T.alloc_buffer((8, 8), "float32", strides=(12, 1))
        for i, j in T.grid(8, 8):
            t[i, j] = a[i, j]
        for i, j in T.grid(8, 8):
            b[i, j] = t[7 - i, j]

    @T.prim_func(s_tir=True)
    def columns(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8, 8), "float32")):
        t = T.alloc_buffer((8, 8), "float32", strides=(1, 8))
        for i, j in T.grid(8, 8):
            t[i, j] = a[i, j]
        for i, j in T.grid(8, 8):
            b[i, j] = t[i, j] + T.float32(1)

    @T.prim_func(s_tir=True)
    def apart(a: T.Buffer((8, 8), "float32", strides=(12, 1)), b: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            b[i, j] = a[i, j]

    @R.function
    def main(x: R.Tensor((8, 8), "float32")):
        cls = Strided
        y = R.call_tir(cls.rows, (x,), out_ty=R.Tensor((8, 8), "float32"))
        z = R.call_tir(cls.columns, (y,), out_ty=R.Tensor((8, 8), "float32"))
        w = R.call_tir(cls.apart, (z,), out_ty=R.Tensor((8, 8), "float32"))
        return w


def test_an_allocation_takes_what_its_strides_reach():
    sizes = {b.name: b.size_bytes for b in analysis.problem(Strided, io_in_pools=False).buffers}
    assert sizes["rows.t"] == (7 * 12 + 8) * 4
    assert sizes["columns.t"] == 64 * 4


def test_in_place_is_by_address_not_by_index():
    found = analysis.problem(Strided, io_in_pools=False).overlaps
    assert not [o for o in found if "columns.t" in (o.first, o.second) and o.permits(0)]


def test_a_tensor_whose_strides_are_checked_stays_at_run_time():
    left = {str(name): str(why) for name, why in PlanMemory()(Strided)["main"].attrs[RUN_TIME]}
    assert left["z"] == "'a' of apart has strides or an offset of its own"


@tvm.register_global_func("npu_memplan.test.same_with_context", override=True)
def _same_with_context(context, tensor):
    return tensor


@I.ir_module
class Builtin:
    @R.function(pure=False)
    def main(x: R.Tensor((4, 16), "float32")):
        a = R.exp(x)
        v = R.call_builtin_with_ctx("npu_memplan.test.same_with_context", (a,), ty_args=[R.Tensor((4, 16), "float32")])
        b = R.add(x, x)
        c = R.multiply(b, b)
        return R.add(v, c)


def test_what_a_builtin_gives_back_may_be_its_argument(run):
    x = (np.random.default_rng(0).standard_normal((4, 16)) * 0.5).astype("float32")
    planned = PlanMemory(poison=0xA5)(Builtin)
    assert memory_plan_faults(planned) == ((), ())
    assert run(planned, [[x]])[0][0].tobytes() == run(Builtin, [[x]])[0][0].tobytes()


@I.ir_module
class Overwritten:
    """A plan, as TVM would write it, that takes the bytes of a tensor which a builtin may have handed on."""

    @T.prim_func(s_tir=True)
    def twice(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        for i in range(16):
            b[i] = a[i] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        cls = Overwritten
        storage = R.memory.alloc_storage(R.shape([64]), 0, "global", "float32")
        a = R.memory.alloc_tensor(storage, 0, R.shape([16]), "float32")
        cls.twice(x, a)
        v = R.call_builtin_with_ctx("npu_memplan.test.same_with_context", (a,), ty_args=[R.Tensor((16,), "float32")])
        b = R.memory.alloc_tensor(storage, 0, R.shape([16]), "float32")
        cls.twice(x, b)
        c = R.builtin.alloc_tensor(R.shape([16]), "float32", 0, "global")
        cls.twice(v, c)
        return c


def test_the_verifier_knows_that_it_may_be():
    with pytest.raises(MemoryPlanError) as caught:
        VerifyMemoryPlan()(Overwritten)
    assert [f.kind.name for f in caught.value.faults] == ["OVERWRITTEN"]


@I.ir_module
class Constant:
    @T.prim_func(s_tir=True)
    def increase(a: T.Buffer((4, 16), "float32")):
        for i, j in T.grid(4, 16):
            a[i, j] = a[i, j] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4, 16), "float32")):
        cls = Constant
        c = R.const(np.arange(64, dtype="float32").reshape(4, 16))
        z = R.call_tir_inplace(cls.increase, (c,), inplace_indices=[0], out_ty=[R.Tensor((4, 16), "float32")])
        return R.add(z, x)


def test_a_constant_that_is_changed_in_place_stays_what_it_is(run):
    x = np.zeros((4, 16), "float32")
    first, second = run(PlanMemory(poison=0xA5)(Constant), [[x], [x]])
    assert first[0].tobytes() == second[0].tobytes() == np.arange(1, 65, dtype="float32").tobytes()


@I.ir_module
class Result:
    """What a packed function writes lies behind a tensor that ends at no multiple of 64."""

    @R.function(pure=False)
    def main(x: R.Tensor((3, 5), "float32")):
        a = R.exp(x)
        b = R.call_dps_packed("npu_memplan.test.twice", (x,), out_ty=R.Tensor((3, 5), "float32"))
        c = R.add(b, a)
        return R.add(c, b)


def test_a_result_of_a_packed_function_begins_where_a_tensor_can():
    storages = {b.name: b.alignment for b in analysis.problem(Result, io_in_pools=False).buffers}
    assert storages["b"] == 64


def test_results_in_pools_may_be_smaller_than_their_bound():
    source = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [source]):
        value = source
        for _ in range(3):
            value = builder.emit(relax.op.permute_dims(builder.emit(relax.op.permute_dims(value))))
        builder.emit_func_output(value)
    planned = PlanMemory(use_workspace_io=True, bounds={"n": 64})(builder.get())
    assert memory_plan_faults(planned) == ((), ())


def nested(depth):
    """A module with an `if` in an `if`, `depth` times."""
    builder = relax.BlockBuilder()
    x, c = relax.Var("x", R.Tensor((8, 8), "float32")), relax.Var("c", R.Tensor((), "bool"))
    with builder.function("main", [x, c]):
        opened, first = [], x
        for _ in range(depth):
            builder._begin_binding_block()
            first = builder.emit(relax.op.add(first, x))
            opened.append(first)
        value = relax.SeqExpr([builder._end_block()], first)
        for before in reversed(opened[:-1]):
            builder._begin_binding_block()
            other = builder.emit(relax.op.negative(before))
            side = relax.SeqExpr([builder._end_block()], other)
            chosen = builder.emit(relax.If(c, value, side))
            value = relax.SeqExpr([builder._end_block()], chosen)
        builder._begin_binding_block()
        side = relax.SeqExpr([builder._end_block()], x)
        builder.emit_func_output(builder.emit(relax.If(c, value, side)))
    return builder.get()


def test_an_if_in_an_if_hundreds_of_times():
    planned = PlanMemory()(nested(280))
    assert memory_plan_faults(planned) == ((), ())
