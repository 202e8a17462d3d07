"""Proven distances, executed: right at the distance itself, wrong where running the loops says it breaks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan import planners, verify
from npu_memplan.extract import extract
from npu_memplan.problem import Placement, Pool
from npu_memplan.rewrite import rewrite
from npu_memplan.transform import Workspace, pipeline


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


X = np.random.default_rng(3).integers(-128, 127, (8, 8, 4), dtype=np.int8)


def run_at(module, problem, plan, distance: int):
    """The result with the output `distance` bytes behind the input."""
    base = 512
    placements = (Placement("x", "arena", base), Placement("y", "arena", base + distance))
    planned = rewrite(module, problem, replace(plan, placements=placements))
    workspace = Workspace(planned)
    workspace.input("x")[...] = X
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
