"""What a problem says of every access: branches, loops, what is used for certain; and that a lost slice is found."""

from __future__ import annotations

from dataclasses import replace
from functools import partialmethod

import numpy as np
import pytest

pytest.importorskip("tvm")

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan import planners
from npu_memplan.compiler import compile_model
from npu_memplan.errors import InternalError
from npu_memplan.ethosu.program.overlap import WebBuilder
from npu_memplan.extract import extract
from npu_memplan.frontend.tflite import lifted
from npu_memplan.options import CompileOptions
from npu_memplan.problem import AccessHistory, BranchPoints, BufferAccess, Pool, Problem
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.verify import Constraint, verify
from tests.states.test_cross_call_tensors import conv
from tests.support.tflite_builder import ModelBuilder

POOLS = (Pool("sram"),)


@I.ir_module
class Chosen:
    """A map is written by either side of an `if`; `work` has a loop with an allocation in it."""

    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((8,), "int32"), o: T.Buffer((8,), "int32")):
        for i in range(8):
            o[i] = x[i] * 2

    @T.prim_func(s_tir=True)
    def work(x: T.Buffer((4, 8), "int32"), o: T.Buffer((8,), "int32")):
        sums = T.alloc_buffer((8,), "int32")
        for j in range(8):
            sums[j] = 0
        for i in range(4):
            row = T.alloc_buffer((8,), "int32")
            for j in range(8):
                row[j] = x[i, j] + sums[j]
            for j in range(8):
                sums[j] = row[7 - j]
        for j in range(8):
            o[j] = sums[j]

    @R.function
    def main(x: R.Tensor((4, 8), "int32"), go: R.Tensor((), "bool")):
        cls = Chosen
        y = R.call_tir(cls.work, (x,), out_ty=R.Tensor((8,), "int32"))
        if go:
            a = R.call_tir(cls.double, (y,), out_ty=R.Tensor((8,), "int32"))
            z = R.call_tir(cls.double, (a,), out_ty=R.Tensor((8,), "int32"))
        else:
            z = R.call_tir(cls.double, (y,), out_ty=R.Tensor((8,), "int32"))
        r = R.call_tir(cls.double, (z,), out_ty=R.Tensor((8,), "int32"))
        return r


def without(problem: Problem, buffer: str, *points: int) -> Problem:
    """`problem` without the writes to a buffer at some points."""
    kept = [
        replace(a, writes=tuple(w for w in a.writes if w.point not in points)) if a.buffer == buffer else a
        for a in problem.accesses
    ]
    return replace(problem, accesses=tuple(kept))


def test_loops_are_one_step_and_branches_are_known():
    problem = extract(Chosen, POOLS)
    known = {a.buffer: a for a in problem.accesses}
    # points: 0 zero, 1 and 2 the loop, 3 copy, 4 the condition, 5 and 6 one side, 7 the other one, 8 behind
    assert problem.branches == (BranchPoints(5, 7, 8),)
    assert known["work.sums"] == AccessHistory("work.sums", (BufferAccess(3),), (BufferAccess(0), BufferAccess(1)))
    assert "work.row" not in known  # nothing outside of the loop's step touches it
    assert known["y"] == AccessHistory("y", (BufferAccess(5), BufferAccess(7)), (BufferAccess(3),))
    assert known["go"] == AccessHistory("go", (BufferAccess(4),), ())
    assert known["r"] == AccessHistory("r", (BufferAccess(9),), (BufferAccess(8),))


def test_a_plan_of_it_is_right_and_of_less_is_not():
    problem = extract(Chosen, POOLS)
    plan = planners.plan(problem)
    assert verify(problem, plan) == ()
    merged = next(a.buffer for a in problem.accesses if BufferAccess(7) in a.writes)
    (violation,) = verify(without(problem, merged, 7), plan)
    assert (violation.constraint, violation.point) == (Constraint.UNWRITTEN, 8)
    (violation,) = verify(without(problem, "y", 3), plan)
    assert (violation.constraint, violation.buffer, violation.point) == (Constraint.UNWRITTEN, "y", 5)


def joined_by_two_calls() -> bytes:
    """The result is one convolution beside another one whose rows an operator of the CPU has put in another order."""
    graph, shape = ModelBuilder(), (1, 6, 6, 8)
    data, turned, result = (graph.tensor(s, "int8", 0.05, 3) for s in (shape, shape, (1, 6, 6, 16)))
    order = graph.constant(np.array([3, 1, 5, 0, 4, 2], np.int32))
    parts = [conv(graph, data, shape), turned]
    graph.operator("GATHER", [conv(graph, data, shape), order], [turned], "GatherOptions", Axis=1)
    graph.operator("CONCATENATION", parts, [result], "ConcatenationOptions", Axis=3)
    return graph.made([data], [result]).finish()


def test_a_slice_that_is_lost_between_two_calls_is_found(tmp_path, monkeypatch):
    """Without what one NPU call hands over to the next, the second one fills its part of a buffer of its own."""
    network = tmp_path / "vela.tflite"
    network.write_bytes(compile_tflite(joined_by_two_calls(), VelaOptions()).network)
    compile_model(network, CompileOptions(objective="bytes", effort="quick"), tmp_path / "right")
    monkeypatch.setattr(lifted, "with_cross_call_tensors", lambda network: network)
    monkeypatch.setattr(WebBuilder, "read", partialmethod(WebBuilder.read, partly=True))  # lifting refuses it otherwise
    with pytest.raises(InternalError, match=r"unwritten bytes: bytes \[\d+, \d+\) of '\w+' are read at point \d+"):
        compile_model(network, CompileOptions(objective="bytes", effort="quick"), tmp_path / "wrong")
