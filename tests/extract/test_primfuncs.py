"""Inside PrimFuncs: what is planned, what is left alone, and for how long it lives."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan import planners
from npu_memplan.extract import ExtractionError, extract
from npu_memplan.extract.program import element_bytes, size_bytes
from npu_memplan.problem import Lifetime, Pool
from npu_memplan.rewrite import rewrite
from npu_memplan.transform import PlanMemory, Workspace, pipeline

POOLS = (Pool("sram"),)


def lifetimes(module, name):
    return extract(module, POOLS).buffer(name).lifetimes


@I.ir_module
class AllocInLoop:
    """`inner` and `other` are made anew in every iteration; `outer` is carried through all of them."""

    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((4, 8), "int32"), o: T.Buffer((4, 8), "int32")):
        outer = T.alloc_buffer((8,), "int32")
        for j in range(8):
            outer[j] = 0
        for i in range(4):
            inner = T.alloc_buffer((8,), "int32")
            other = T.alloc_buffer((8,), "int32")
            for j in range(8):
                inner[j] = x[i, j] + outer[j]
            for j in range(8):
                outer[j] = inner[7 - j]
            for j in range(8):
                other[j] = outer[j] * 2
            for j in range(8):
                o[i, j] = other[7 - j]

    @R.function
    def main(x: R.Tensor((4, 8), "int32")):
        cls = AllocInLoop
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((4, 8), "int32"))
        return y


def test_allocations_of_one_iteration_share_and_carried_ones_live_for_the_whole_loop():
    assert lifetimes(AllocInLoop, "work.outer") == (Lifetime(0, 5),)
    assert lifetimes(AllocInLoop, "work.inner") == (Lifetime(1, 3),)
    assert lifetimes(AllocInLoop, "work.other") == (Lifetime(3, 5),)
    assert lifetimes(AllocInLoop, "y") == (Lifetime(1, 5),)  # its first rows wait for the last
    assert lifetimes(AllocInLoop, "x") == (Lifetime(0, 5),)  # read in every iteration
    assert not extract(AllocInLoop, POOLS).overlaps  # "dies here" is not true inside a loop


def test_a_planned_loop_computes_the_same():
    planned = PlanMemory(use_workspace_io=True)(AllocInLoop)
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    workspace = Workspace(planned)
    workspace.input("x")[...] = x
    vm = relax.VirtualMachine(tvm.compile(planned, target="llvm", relax_pipeline=pipeline()), tvm.cpu())
    vm["main"](*workspace.tensors)
    carried, rows = np.zeros(8, np.int32), []
    for row in x:
        carried = (row + carried)[::-1]
        rows.append((carried * 2)[::-1])
    np.testing.assert_array_equal(workspace.output("y"), rows)


@I.ir_module
class LeftAlone:
    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((4, 8), "int8"), o: T.Buffer((4, 8), "int8")):
        planned = T.alloc_buffer((4, 8), "int8")
        local = T.alloc_buffer((8,), "int8", scope="local")
        for i, j in T.grid(4, 8):
            planned[i, j] = x[i, j]
        for j in range(8):
            local[j] = planned[0, j]
        for i in T.parallel(4):
            private = T.alloc_buffer((8,), "int8")
            for j in range(8):
                private[j] = planned[i, j] + local[j]
            for j in range(8):
                o[i, j] = private[7 - j]

    @R.function
    def main(x: R.Tensor((4, 8), "int8")):
        cls = LeftAlone
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((4, 8), "int8"))
        return y


def test_other_scopes_and_parallel_loops_are_left_alone():
    problem = extract(LeftAlone, POOLS)
    assert {b.name for b in problem.buffers} == {"x", "y", "work.planned"}
    planned = rewrite(LeftAlone, problem, planners.plan(problem))
    left: list[str] = []
    tvm_ffi.structural_walk(planned["work"].body, (tirx.AllocBuffer, lambda s: left.append(s.buffer.name)))
    assert sorted(left) == ["local", "private"]


@I.ir_module
class Pointers:
    """What hands a pointer on may do anything with it; what it looks at through a view is the storage."""

    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((16,), "int8"), o: T.Buffer((16,), "int8")):
        a = T.alloc_buffer((16,), "int8")
        b = T.alloc_buffer((16,), "int8")
        T.evaluate(T.call_extern("int32", "external", x.data, a.data))
        for i in range(16):
            b[i] = a[i]
        v = T.decl_buffer((4, 4), "int8", data=b.data)
        for i, j in T.grid(4, 4):
            o[i * 4 + j] = v[j, i]

    @R.function
    def main(x: R.Tensor((16,), "int8")):
        cls = Pointers
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((16,), "int8"))
        return y


def test_pointers_and_views_keep_their_storage_alive():
    problem = extract(Pointers, POOLS)
    assert problem.buffer("work.a").lifetimes == (Lifetime(0, 2),)
    assert problem.buffer("work.b").lifetimes == (Lifetime(1, 3),)
    # x and a meet in a call that nothing is known of; b is reached through a view.
    assert {(o.first, o.second) for o in problem.overlaps} == {("work.a", "work.b")}


def test_sizes_round_up():
    assert element_bytes("int4") == 1
    assert element_bytes("bool") == 1
    assert element_bytes("float32x4") == 16
    assert size_bytes((3, 5), "int4") == 15
    assert size_bytes((), "float64") == 8


def test_bounded_sizes_take_the_largest_value():
    n = tvm.tirx.Var("n", "int64")
    assert size_bytes((n, 4), "float32") is None
    assert size_bytes((n + 2, 4), "float32", {n: 10}) == 12 * 4 * 4
    assert size_bytes((n * n,), "int8", {n: 10}) == 100


@I.ir_module
class Branching:
    """A branch inside a PrimFunc around allocations."""

    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((8,), "int32"), o: T.Buffer((8,), "int32")):
        if x[0] > 0:
            a = T.alloc_buffer((8,), "int32")
            for i in range(8):
                a[i] = x[i] + 1
            for i in range(8):
                o[i] = a[7 - i]
        else:
            b = T.alloc_buffer((8,), "int32")
            for i in range(8):
                b[i] = x[i] - 1
            for i in range(8):
                o[i] = b[7 - i]

    @R.function
    def main(x: R.Tensor((8,), "int32")):
        cls = Branching
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((8,), "int32"))
        return y


def test_allocations_of_two_branches_share():
    problem = extract(Branching, POOLS)
    assert not problem.buffer("work.a").meets(problem.buffer("work.b"))
    assert problem.buffer("x").lifetimes == (Lifetime(0, 2), Lifetime(3, 4))


@pytest.mark.parametrize("first", [3, -3])
def test_a_planned_branch_computes_the_same(first):
    planned = PlanMemory(use_workspace_io=True)(Branching)
    x = np.array([first, 1, 2, 3, 4, 5, 6, 7], np.int32)
    workspace = Workspace(planned)
    workspace.input("x")[...] = x
    vm = relax.VirtualMachine(tvm.compile(planned, target="llvm", relax_pipeline=pipeline()), tvm.cpu())
    vm["main"](*workspace.tensors)
    np.testing.assert_array_equal(workspace.output("y"), (x + (1 if first > 0 else -1))[::-1])


def test_inputs_of_unknown_shape_cannot_lie_in_a_pool():
    @I.ir_module
    class Dynamic:
        @R.function
        def main(x: R.Tensor(("n",), "int8")):
            y = R.add(x, x)
            return y

    with pytest.raises(
        ExtractionError, match=r"input 'x' of 'main' has the shape \(n\), which is not known at compile"
    ):
        extract(Dynamic, POOLS)
