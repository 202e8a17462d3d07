"""Constants in pools: where they lie, that programs read them there, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from npu_memplan.extract import ExtractionError
from npu_memplan.planners import PlanningError
from npu_memplan.problem import Pool
from npu_memplan.transform import (
    ConfigError,
    ConstantMemoryPools,
    ConstantPoolInfo,
    PlanMemory,
    PoolInfoProperties,
    Workspace,
    config,
    pipeline,
)
from npu_memplan.vocabulary import CONSTANT_POOLS, INITIALISE, PLACED_CONSTANTS, POOLS

FLASH = Pool("flash", read_only=True)


@I.ir_module
class Dense:
    """Equal bytes three times (once in another shape), and branches with constants of their own."""

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool")):
        a = R.matmul(x, R.const([[1.5, -2, 3, 4]] * 4, "float32"))
        b = R.add(a, R.const([[1.5, -2, 3, 4]] * 4, "float32"))
        d = R.multiply(R.reshape(b, (16,)), R.const([1.5, -2, 3, 4] * 4, "float32"))
        if c:  # noqa: SIM108
            e = R.subtract(d, R.const([0.25], "float32"))
        else:
            e = R.add(d, R.const(list(range(16)), "float32"))
        return (e, R.const([7], "int32"))


X = np.arange(16, dtype=np.float32).reshape(4, 4) / 3
INPUTS = [[X, np.array(True)], [X, np.array(False)]]


def attribute(module, name: str) -> list:
    """An attribute of a planned main as Python values."""
    found = module["main"].attrs[name]
    return [{str(k): v for k, v in e.items()} if hasattr(e, "items") else (str(e[0]), int(e[1])) for e in found]


@pytest.fixture(scope="module")
def expected(run):
    """What Dense computes without a plan."""
    return run(Dense, INPUTS)


def same(left, right) -> None:
    assert [[a.tobytes() for a in row] for row in left] == [[a.tobytes() for a in row] for row in right]


@pytest.mark.parametrize(
    "constant_pools",
    [[FLASH], [Pool("near", 64, read_only=True), FLASH], [Pool("tcm")], [Pool("workspace")]],
    ids=["read-only", "two", "writable", "shared"],
)
def test_the_vm_reads_constants_at_their_places(constant_pools, run, expected):
    planned = PlanMemory(constant_pools=constant_pools, poison=0xA5)(Dense)
    same(expected, run(planned, INPUTS))
    tvm.ir.assert_structural_equal(tvm.script.from_source(planned.script(show_meta=True)), planned)
    tvm.ir.assert_structural_equal(PlanMemory(constant_pools=constant_pools)(planned), planned)


def test_equal_bytes_are_stored_once():
    planned = PlanMemory(constant_pools=[FLASH])(Dense)
    placed = attribute(planned, PLACED_CONSTANTS)
    assert sorted(int(e["size_bytes"]) for e in placed) == [4, 64, 64]
    assert attribute(planned, CONSTANT_POOLS) == [("flash", 64 + 64 + 4)]
    assert [name for name, _ in attribute(planned, POOLS)] == ["workspace"]


def test_pools_fill_in_their_order():
    near, far = Pool("near", 64, read_only=True), Pool("far", 80, read_only=True)
    planned = PlanMemory(constant_pools=[near, far])(Dense)
    used = dict(attribute(planned, CONSTANT_POOLS))
    assert used == {"near": 64, "far": 68}
    assert [name for name, _ in attribute(planned, CONSTANT_POOLS)] == ["near", "far"]


def test_constants_keep_the_planner_s_alignment():
    placed = attribute(PlanMemory(constant_pools=[FLASH], alignment=128)(Dense), PLACED_CONSTANTS)
    assert {int(e["offset_bytes"]) % 128 for e in placed} == {0}


def test_what_does_not_fit_is_an_error_with_the_numbers():
    with pytest.raises(PlanningError, match="do not fit pool 'flash': required 132 bytes, available 100") as caught:
        PlanMemory(constant_pools=[Pool("flash", 100, read_only=True)])(Dense)
    assert (caught.value.required_bytes, caught.value.available_bytes, caught.value.excess_bytes) == (132, 100, 32)


def test_a_shared_pool_holds_both_and_is_one_capacity():
    pool = Pool("sram", 1024)
    planned = PlanMemory([pool], constant_pools=[pool])(Dense)
    placed = attribute(planned, PLACED_CONSTANTS)
    assert {str(e["pool"]) for e in placed} == {"sram"}
    alone = dict(attribute(PlanMemory([pool])(Dense), POOLS))["sram"]
    assert alone + 132 <= dict(attribute(planned, POOLS))["sram"] <= 1024
    with pytest.raises(PlanningError, match="do not fit pool 'sram'"):
        PlanMemory([Pool("sram", alone)], constant_pools=[Pool("sram", alone)])(Dense)


def test_a_pool_cannot_be_two_things():
    with pytest.raises(ExtractionError, match="pool 'sram' is given twice and differently"):
        PlanMemory([Pool("sram", 64)], constant_pools=[Pool("sram", 65)])(Dense)
    with pytest.raises(ConfigError, match="pool 'flash' is read-only, so only constants can lie there"):
        PlanMemory([FLASH])(Dense)


@I.ir_module
class Scaled:
    @R.function
    def main(x: R.Tensor((8,), "int32")):
        a = R.multiply(x, R.const([1, 2, 3, 4, 5, 6, 7, 8], "int32"))
        b = R.add(a, R.const(5, "int32"))
        return b


@pytest.mark.parametrize("shared", [False, True], ids=["own pool", "shared pool"])
def test_writable_pools_are_initialised_once_by_the_caller(shared):
    tcm = Pool("tcm")
    planned = PlanMemory([tcm] if shared else None, constant_pools=[tcm], use_workspace_io=True)(Scaled)
    vm = relax.VirtualMachine(tvm.compile(planned, target="llvm", relax_pipeline=pipeline()), tvm.cpu())
    workspace = Workspace(planned)
    vm[str(planned["main"].attrs[INITIALISE])](*workspace.tensors)
    for start in (0, 100):  # a run leaves constants alone
        x = np.arange(start, start + 8, dtype=np.int32)
        workspace.input("x")[...] = x
        vm["main"](*workspace.tensors)
        np.testing.assert_array_equal(workspace.output("b"), x * np.arange(1, 9) + 5)


def test_legacy_constant_pools_and_the_scope(run, expected):
    pools = ConstantMemoryPools([ConstantPoolInfo("flash", ["llvm"], PoolInfoProperties(size_hint_bytes=4096))])
    planned = PlanMemory(constant_pools=pools)(Dense)
    with config({"npu_memplan.constant_pools": [Pool("flash", 4096, read_only=True)]}):
        tvm.ir.assert_structural_equal(PlanMemory()(Dense), planned)
    same(expected, run(planned, INPUTS))
