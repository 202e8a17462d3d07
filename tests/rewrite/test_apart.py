"""A kernel keeps its promise that nothing aliases exactly where the plan keeps it, in every call."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from npu_memplan.transform import PlanMemory, pipeline


@I.ir_module
class Lines:
    """A product (its operands outlast it), and sums that may lie on what they read."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        a = R.exp(x)
        b = R.matmul(x, R.permute_dims(a))
        c = R.add(b, b)
        d = R.matmul(c, a)
        e = R.multiply(d, d)
        return R.add(e, x)


def promised(module) -> dict[str, bool]:
    """Name -> whether a planned PrimFunc says that nothing aliases."""
    return {
        gv.name_hint: "tirx.noalias" in f.attrs
        for gv, f in module.functions.items()
        if isinstance(f, tirx.PrimFunc) and gv.name_hint != "npu_memplan_poison"
    }


def places(function) -> list[tuple[int, int]]:
    """Bytes of the storages that a planned PrimFunc finds at known offsets of its pool."""
    found: list[tuple[int, int]] = []

    def look(declared) -> None:
        offset = int(declared.data.args[0].indices[0])
        extents = [int(e) for e in declared.buffer.shape]
        found.append((offset, offset + int(np.prod(extents)) * 4))

    tvm_ffi.structural_walk(function.body, (tirx.DeclBuffer, look))
    return found


@pytest.mark.parametrize("overlaps", [True, False])
def test_the_promise_stays_where_no_bytes_are_shared(overlaps):
    small = relax.transform.BindSymbolicVars({"n": 4}, "main")(Lines)
    planned = PlanMemory(overlaps=overlaps)(small)
    kept = set()
    for name, promise in promised(planned).items():
        ranges = sorted(set(places(planned[name])))  # one storage may be given twice
        assert promise == all(a[1] <= b[0] for a, b in itertools.pairwise(ranges)), name
        kept.add(promise)
    assert kept == ({True, False} if overlaps else {True})


def test_with_symbols_what_may_lie_on_its_input_promises_nothing():
    found = promised(PlanMemory()(Lines))
    assert set(found.values()) == {True, False}
    assert found["matmul"]  # reads what lives on
    assert all(promised(PlanMemory(overlaps=False)(Lines)).values())


@pytest.mark.parametrize("n", [1, 4, 9])
def test_results_are_those_of_the_unplanned_module(n):
    x = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
    results = []
    for module in (Lines, PlanMemory(poison=0xA5)(Lines), PlanMemory(overlaps=False, poison=0xA5)(Lines)):
        vm = relax.VirtualMachine(tvm.compile(module, target="llvm", relax_pipeline=pipeline()), tvm.cpu())
        results.append(vm["main"](tvm.runtime.tensor(x)).numpy().tobytes())
    assert len(set(results)) == 1


def test_one_call_that_overlaps_takes_it_from_all_that_share_the_function():
    @I.ir_module
    class Twice:
        @R.function
        def main(x: R.Tensor((64,), "float32")):
            a = R.exp(x)
            b = R.negative(a)  # a lives on
            c = R.negative(b)  # on b
            return R.subtract(R.multiply(c, a), x)

    assert not promised(PlanMemory()(Twice))["tir_negative"]
    assert promised(PlanMemory(overlaps=False)(Twice))["tir_negative"]
