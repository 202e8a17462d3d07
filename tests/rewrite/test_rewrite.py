"""The rewritten module: its form, its attributes, and that it runs on exactly the planned bytes; proven distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tvm")
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan import planners, verify
from npu_memplan.extract import extract
from npu_memplan.problem import Placement, Pool
from npu_memplan.rewrite import rewrite
from npu_memplan.transform import PlanMemory, Workspace, WorkspaceError, map_inputs, map_outputs, pipeline
from npu_memplan.vocabulary import POOLS


@I.ir_module
class Small:
    @T.prim_func(s_tir=True)
    def scale(x: T.Buffer((4, 4), "int32"), w: T.Buffer((4,), "int32"), o: T.Buffer((4, 4), "int32")):
        T.func_attr({"tirx.noalias": True})
        twice = T.alloc_buffer((4, 4), "int32")
        for i, j in T.grid(4, 4):
            twice[i, j] = x[i, j] * 2
        for i, j in T.grid(4, 4):
            o[i, j] = twice[3 - i, j] * w[j]

    @R.function
    def main(x: R.Tensor((4, 4), "int32")):
        cls = Small
        a = R.call_tir(cls.scale, (x, R.const([1, 2, 3, 4], "int32")), out_ty=R.Tensor((4, 4), "int32"))
        b = R.call_tir(cls.scale, (a, R.const([5, 6, 7, 8], "int32")), out_ty=R.Tensor((4, 4), "int32"))
        c = R.call_tir(cls.scale, (b, R.const([5, 6, 7, 8], "int32")), out_ty=R.Tensor((4, 4), "int32"))
        return c


def expected(x):
    for w in ([1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 8]):
        x = (x * 2)[::-1] * np.array(w, np.int32)
    return x


def execute(module, x):
    """Runs a planned module in a poisoned workspace."""
    workspace = Workspace(module)
    vm = relax.VirtualMachine(tvm.compile(module, target="llvm", relax_pipeline=pipeline(plan=False)), tvm.cpu())
    workspace.input("x")[...] = x
    vm["main"](*workspace.tensors)
    return workspace.output("c").copy()


SRAM = (Pool("sram"),)


def planned(pools=SRAM, planner="auto"):
    problem = extract(Small, pools)
    plan = planners.plan(problem, planner)
    return problem, plan, rewrite(Small, problem, plan)


X = np.arange(16, dtype=np.int32).reshape(4, 4) - 5


def test_text_round_trip():
    _, _, module = planned()
    tvm.ir.assert_structural_equal(tvm.script.from_source(module.script(show_meta=True)), module)


def test_runs_on_the_planned_bytes():
    _, _, module = planned()
    np.testing.assert_array_equal(execute(module, X), expected(X))


def test_parameters_are_what_is_not_planned_then_the_pools_that_are_used():
    _, plan, module = planned((Pool("fast", 64), Pool("slow")))
    main = module["main"]
    assert [p.name for p in main.params] == ["fast", "slow"]
    assert [(str(n), int(b)) for n, b in main.attrs[POOLS]] == [(u.pool, u.used_bytes) for u in plan.usage]
    functions = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    used = {u.pool: max(1, u.used_bytes) for u in plan.usage}
    for function in functions:
        parameter, *pools = function.params
        assert parameter.name == "w"
        assert pools
        assert all(int(p.shape[0]) == used[p.name] for p in pools)
        text = function.script()
        assert all(f"{p.name}[" in text for p in pools)
    np.testing.assert_array_equal(execute(module, X), expected(X))


def test_two_parameters_in_one_pool_may_alias():
    _, _, module = planned()
    assert all("tirx.noalias" not in f.attrs for f in module.functions.values() if isinstance(f, tirx.PrimFunc))


def test_a_function_is_cloned_per_placement_and_shared_when_it_is_the_same():
    problem, plan, module = planned(planner="linear")
    clones = [gv.name_hint for gv, f in module.functions.items() if isinstance(f, tirx.PrimFunc)]
    assert sorted(clones) == ["scale", "scale_1", "scale_2"]
    # The second and third call ping-pong: give both the same places and one function serves both.
    where = {p.buffer: p for p in plan.placements}
    b, again = where["scale.twice_1"], Placement("scale.twice_2", "sram", where["scale.twice_1"].offset_bytes)
    assert b.pool == "sram"
    same = replace(plan, placements=tuple(again if p.buffer == "scale.twice_2" else p for p in plan.placements))
    shared = rewrite(Small, problem, same)
    assert len([f for f in shared.functions.values() if isinstance(f, tirx.PrimFunc)]) == 3
    np.testing.assert_array_equal(execute(shared, X), expected(X))


def test_original_is_untouched():
    before = Small.script(show_meta=True)
    planned()
    assert Small.script(show_meta=True) == before


def test_a_broken_plan_gives_wrong_results():
    problem, plan, _ = planned()
    broken = replace(plan, placements=tuple(replace(p, offset_bytes=0) for p in plan.placements))
    assert not np.array_equal(execute(rewrite(Small, problem, broken), X), expected(X))


def test_places_of_inputs_and_outputs():
    problem, plan, module = planned()
    x, c = map_inputs(module)["x"], map_outputs(module)["c"]
    assert (x.dtype, x.shape, x.size_bytes) == ("int32", (4, 4), 64)
    assert x.offset_bytes == plan.placement("x").offset_bytes
    assert c.offset_bytes == plan.placement("c").offset_bytes
    assert problem.name == "main"


def test_errors_name_what_there_is():
    module = PlanMemory()(Small)
    with pytest.raises(
        WorkspaceError, match=r"has no inputs and outputs in pools; plan it with PlanMemory\(use_workspace_io"
    ):
        map_inputs(module)
    _, _, in_pools = planned()
    with pytest.raises(WorkspaceError, match="no tensor 'y' in the workspace; there are: x"):
        Workspace(in_pools).input("y")


def test_workspace_io_equals_private_io():
    module = PlanMemory([Pool("arena", 4096)], use_workspace_io=True)(Small)
    np.testing.assert_array_equal(execute(module, X), expected(X))


@I.ir_module
class Conv:
    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((8, 8, 4), "int8"), o: T.Buffer((6, 6, 4), "int8")):
        for y, z, f, c, r, s in T.grid(6, 6, 4, 4, 3, 3):
            if c == 0 and r == 0 and s == 0:
                o[y, z, f] = T.int8(0)
            o[y, z, f] = o[y, z, f] + x[y + r, z + s, c]

    @R.function
    def main(x: R.Tensor((8, 8, 4), "int8")):
        cls = Conv
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((6, 6, 4), "int8"))
        return y


@I.ir_module
class StridedPool:
    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((8, 8, 4), "int8"), o: T.Buffer((4, 4, 4), "int8")):
        for y, z, c, r, s in T.grid(4, 4, 4, 2, 2):
            if r == 0 and s == 0:
                o[y, z, c] = T.int8(-128)
            o[y, z, c] = T.max(o[y, z, c], x[y * 2 + r, z * 2 + s, c])

    @R.function
    def main(x: R.Tensor((8, 8, 4), "int8")):
        cls = StridedPool
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((4, 4, 4), "int8"))
        return y


@I.ir_module
class Pad:
    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((8, 8, 4), "int8"), o: T.Buffer((10, 10, 4), "int8")):
        for y, z, c in T.grid(10, 10, 4):
            o[y, z, c] = T.if_then_else(y >= 1 and y < 9 and z >= 1 and z < 9, x[y - 1, z - 1, c], T.int8(0))

    @R.function
    def main(x: R.Tensor((8, 8, 4), "int8")):
        cls = Pad
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((10, 10, 4), "int8"))
        return y


VALUES = np.random.default_rng(3).integers(-128, 127, (8, 8, 4), dtype=np.int8)


def run_at(module, problem, plan, distance: int):
    """The result with the output `distance` bytes behind the input."""
    base = 512
    placements = (Placement("x", "arena", base), Placement("y", "arena", base + distance))
    planned = rewrite(module, problem, replace(plan, placements=placements))
    workspace = Workspace(planned)
    workspace.input("x")[...] = VALUES
    vm = relax.VirtualMachine(tvm.compile(planned, target="llvm", relax_pipeline=pipeline()), tvm.cpu())
    vm["main"](*workspace.tensors)
    return workspace.output("y").copy(), replace(plan, placements=placements)


@pytest.mark.parametrize("module", [Conv, StridedPool, Pad], ids=["conv", "pool", "pad"])
def test_the_proven_distance_is_right_and_a_little_more_is_wrong(module):
    problem = extract(module, (Pool("arena"),), alignment=1)
    (overlap,) = problem.overlaps
    assert (overlap.first, overlap.second, overlap.lowest) == ("x", "y", None)
    plan = planners.plan(problem)
    apart, _ = run_at(module, problem, plan, 1024)
    for distance in (overlap.highest, overlap.highest - 1, overlap.highest - 7):
        result, placed = run_at(module, problem, plan, distance)
        assert not [v for v in verify.verify(problem, placed) if v.other]
        np.testing.assert_array_equal(result, apart)
    # The proof rounds by what two pixels write at most: three pixels further the input is damaged.
    broken, placed = run_at(module, problem, plan, overlap.highest + 12)
    assert not np.array_equal(broken, apart)
    assert [v for v in verify.verify(problem, placed) if v.other]


def test_the_planner_uses_it():
    problem = extract(Conv, (Pool("arena"),), alignment=1)
    plan = planners.plan(problem)
    assert plan.usage[0].used_bytes < 8 * 8 * 4 + 6 * 6 * 4 - 100
    verify.check(problem, plan)
