"""`recompute=True`: training steps in pools that are too small without it, with the same results bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import npu_memplan as nm
from npu_memplan.planners.model import PlanningError
from npu_memplan.transform import PlanMemory, memory_plan_faults
from npu_memplan.transform.legalize import legalize
from tests.support.relax_results import build_for_host, results, used_bytes
from tests.support.training_programs import TINY_GATED, step_arguments, training_step

TOKENS = 8


def test_a_training_step_fits_in_fewer_bytes_with_the_same_results():
    step = legalize(training_step(TINY_GATED, TOKENS))
    whole = used_bytes(PlanMemory(planner="first-fit")(step))
    limit = whole * 6 // 10
    planned = PlanMemory([nm.Pool("sram", limit)], "first-fit", recompute=True, poison=0xA5)(step)
    assert used_bytes(planned) <= limit
    calls, percent = planned["main"].attrs["npu.recomputed"]
    assert int(calls) > 0
    assert 0 < float(percent) < 60
    assert memory_plan_faults(planned) == ((), ())
    arguments = step_arguments(TINY_GATED, step)
    assert results(build_for_host(planned), arguments) == results(build_for_host(step), arguments)


@I.ir_module
class Late:
    """`a` and its reshape are read early and late; `m` is made while most is live."""

    @R.function
    def main(x: R.Tensor((64,), "float32"), w: R.Tensor((64,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.reshape(a, (8, 8))
            s = R.sum(b, axis=[0, 1])
            c = R.concat([R.add(x, s), R.multiply(x, w), R.add(w, s)], axis=0)
            m = R.max(c, axis=[0])
            late = R.multiply(R.permute_dims(b, [1, 0]), m)
            R.output(late)
        return late


def names_of_calls(module) -> list[str]:
    bindings = [b for block in module["main"].body.blocks for b in block.bindings]
    called = [b.value for b in bindings if isinstance(b.value, tvm.ir.Call)]
    return [a.name_hint for c in called for a in [c.op, *c.args] if isinstance(a, tvm.ir.GlobalVar)]


def test_names_of_bytes_follow_what_was_made_last():
    whole = used_bytes(PlanMemory()(Late))
    planned = PlanMemory([nm.Pool("sram", whole - 4)], recompute=True, poison=0xA5)(Late)
    assert used_bytes(planned) < whole
    assert len(names_of_calls(planned)) > len(names_of_calls(PlanMemory()(Late)))
    generator = np.random.default_rng(1)
    arguments = [generator.standard_normal(64).astype("float32") for _ in range(2)]
    assert results(build_for_host(planned), arguments) == results(build_for_host(Late), arguments)


def test_nothing_runs_again_where_everything_fits():
    planned = PlanMemory([nm.Pool("sram", 1 << 20)], recompute=True)(Late)
    assert "npu.recomputed" not in planned["main"].attrs
    tvm.ir.assert_structural_equal(planned, PlanMemory([nm.Pool("sram", 1 << 20)])(Late))


def test_a_pool_below_what_one_call_needs_is_an_error_with_numbers():
    with pytest.raises((PlanningError, tvm.error.InternalError), match=r"'main' needs \d+ bytes, \d+ with what can be"):
        PlanMemory([nm.Pool("sram", 64)], recompute=True)(Late)


@I.ir_module
class Changed:
    """`a` is changed in place before it is read again: it must not be made again."""

    @T.prim_func(s_tir=True, private=True)
    def twice(y: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.sblock("twice"):
                v = T.axis.spatial(64, i)
                y[v] = y[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor((64,), "float32"), w: R.Tensor((64,), "float32")):
        cls = Changed
        with R.dataflow():
            a = R.exp(x)
            b = R.call_tir_inplace(cls.twice, (a,), inplace_indices=[0], out_ty=R.Tensor((64,), "float32"))
            s = R.sum(b, axis=[0])
            c = R.concat([R.add(x, s), R.multiply(x, w), R.add(w, s)], axis=0)
            m = R.max(c, axis=[0])
            late = R.multiply(b, m)
            R.output(late)
        return late


def test_what_is_changed_in_place_is_not_made_again():
    whole = used_bytes(PlanMemory()(Changed))
    with pytest.raises((PlanningError, tvm.error.InternalError), match="can be computed again"):
        PlanMemory([nm.Pool("sram", whole - 4)], recompute=True)(Changed)
