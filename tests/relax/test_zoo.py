"""Every program of the zoo computes on planned, poisoned pools what it computes without a plan."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
import tvm_ffi
from tvm import tirx

from npu_memplan.problem import Pool
from npu_memplan.transform import PlanMemory


def same(expected, actual) -> None:
    """Bit for bit, NaNs included."""
    assert len(expected) == len(actual)
    for want, got in zip(expected, actual, strict=True):
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()


def allocations(module) -> list[str]:
    """What PrimFuncs still allocate themselves."""
    found: list[str] = []
    for function in module.functions.values():
        if isinstance(function, tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, lambda s: found.append(s.buffer.name)))
    return found


def test_planned_equals_unplanned(program, unplanned, run):
    entry, expected = unplanned(program)
    planned = PlanMemory([Pool("sram")], poison=0xA5)(entry.module)
    assert allocations(planned) == []  # also those of symbolic shapes lie in the pools
    same(expected, run(planned, entry.inputs))
    # A second run changes nothing, and the text says everything.
    tvm.ir.assert_structural_equal(PlanMemory([Pool("sram")])(planned), planned)
    if not program.startswith("kws"):  # parsing its text alone takes 4 s
        tvm.ir.assert_structural_equal(tvm.script.from_source(planned.script(show_meta=True)), planned)


@pytest.mark.parametrize("name", ["nested_if", "packed_calls", "dynamic_match_cast"])
def test_tvms_own_default_pipeline_takes_planned_modules(name, unplanned, run):
    entry, expected = unplanned(name)
    same(expected, run(PlanMemory(poison=0xA5)(entry.module), entry.inputs, default=True))


def test_issue_20191_is_the_identity(zoo, run):
    entry = zoo.ZOO["issue_20191"]()
    planned = PlanMemory(poison=0xA5)(entry.module)
    for arguments, (output,) in zip(entry.inputs, run(planned, entry.inputs), strict=True):
        np.testing.assert_array_equal(output, arguments[0])


def test_zoo_has_at_least_twelve_kinds(zoo):
    assert len(zoo.ZOO) >= 12
