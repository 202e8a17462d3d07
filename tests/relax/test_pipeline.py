"""`relax_pipeline`: one line that plans and builds, as an object and by name."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax

import npu_memplan as nm
from npu_memplan.planners import PlanningError
from npu_memplan.transform import ConfigError, PlanMemory, pass_context


def storages(module, pipeline) -> int:
    """How many storages the compiled `main` allocates at run time."""
    text = tvm.compile(module, target="llvm", relax_pipeline=pipeline).as_text()
    return text.split("@main")[-1].count("vm.builtin.alloc_storage")


def test_one_line_plans_and_builds(zoo, unplanned):
    entry, expected = unplanned("cnn_nhwc")
    for pipeline in (nm.relax_pipeline(), "npu_memplan"):
        vm = relax.VirtualMachine(tvm.compile(entry.module, target="llvm", relax_pipeline=pipeline), tvm.cpu())
        result = vm["main"](*map(tvm.runtime.tensor, entry.inputs[0])).numpy()
        np.testing.assert_array_equal(result, expected[0][0])
        assert storages(entry.module, pipeline) < storages(entry.module, nm.relax_pipeline(plan=False))


def test_what_is_planned_stays_as_it_is(zoo):
    planned = PlanMemory([nm.Pool("fast", 24 * 1024), nm.Pool("slow")])(zoo.ZOO["cnn_nhwc"]().module)
    again, once = (nm.relax_pipeline(plan=plan)(planned) for plan in (True, False))
    tvm.ir.assert_structural_equal(again, once)


def test_options_are_those_of_plan_memory(zoo):
    module = zoo.ZOO["cnn_nhwc"]().module
    pools = [nm.Pool("fast", 24 * 1024), nm.Pool("slow")]
    given = nm.relax_pipeline(pools, "first-fit", overlaps=False)(module)
    tvm.ir.assert_structural_equal(
        given, nm.relax_pipeline(plan=False)(PlanMemory(pools, "first-fit", overlaps=False)(module))
    )


def test_a_pool_that_is_too_small_stops_the_compilation(zoo):
    with pytest.raises(PlanningError, match="1024"):
        tvm.compile(zoo.ZOO["mlp"]().module, "llvm", relax_pipeline=nm.relax_pipeline([nm.Pool("sram", 1024)]))
    with pass_context(opt_level=3, config={"npu_memplan.pools": [nm.Pool("sram", 1024)]}), pytest.raises(PlanningError):
        tvm.compile(zoo.ZOO["mlp"]().module, "llvm", relax_pipeline="npu_memplan")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "first-fit"}, "unknown planning option 'algorithm'; known: pools, "),
        ({"pools": "sram"}, "pools must be a list of at least one"),
        ({"alignment": 3}, "alignment is 3; give a power of two"),
        ({"plan": False, "overlaps": False}, "plan=False plans nothing, so 'overlaps' has no meaning"),
        ({"planner": "none"}, "no planner is called 'none'"),
    ],
)
def test_options_are_checked(options, message, zoo):
    with pytest.raises(ConfigError, match=message):
        nm.relax_pipeline(**options)(zoo.ZOO["mlp"]().module)
