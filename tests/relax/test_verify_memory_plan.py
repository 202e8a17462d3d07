"""VerifyMemoryPlan: right plans pass, whatever made them; every broken one is named."""

from __future__ import annotations

import random
import re

import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from npu_memplan.extract.build import build, prepare
from npu_memplan.extract.walk import walk
from npu_memplan.options import NO_NPU, CompileOptions
from npu_memplan.planners import plan
from npu_memplan.problem import Placement, Plan, PlanStatus, Pool
from npu_memplan.request import Request
from npu_memplan.rewrite.main import rewrite_program
from npu_memplan.rewrite.pools import PoolSlot, pools_of
from npu_memplan.transform import Legalize, MemoryPlanError, PlanMemory, VerifyMemoryPlan, memory_plan_faults
from npu_memplan.transform.verification.accesses import Nest, executions, number
from npu_memplan.verify import Constraint, verify


def stock(module):
    """`module` planned by TVM's own pass."""
    for step in ("LegalizeOps", "ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite", "StaticPlanBlockMemory"):
        module = getattr(relax.transform, step)()(module)
    return module


def module_of(zoo, name):
    """A program of the zoo, which may be missing."""
    entry = zoo.ZOO[name]()
    if entry is None:
        pytest.skip(f"{name} needs an extra")
    return entry.module


@pytest.mark.parametrize("overlaps", [True, False])
def test_our_plans_are_right(program, zoo, overlaps):
    planned = PlanMemory(overlaps=overlaps, poison=0xA5)(module_of(zoo, program))
    assert memory_plan_faults(planned) == ((), ())
    assert VerifyMemoryPlan()(planned).same_as(planned)


def test_a_pool_may_be_called_like_a_parameter(zoo):
    module = module_of(zoo, "matmul_residual")
    name = module["main"].params[0].name
    assert memory_plan_faults(PlanMemory([Pool(name)])(module)) == ((), ())


TVMS_FAULTS = {"issue_20191", "nested_if"}
"""Where TVM's planner takes a storage of one branch in the other (apache/tvm #20191)."""


def test_tvms_plans_are_right_but_for_20191(program, zoo):
    planned = stock(module_of(zoo, program))
    faults, undecided = memory_plan_faults(planned)
    assert not undecided
    if program not in TVMS_FAULTS:
        assert not faults
        return
    assert [f.kind.name for f in faults] == ["NO_MEMORY"]
    with pytest.raises(
        MemoryPlanError, match=r"1 fault:\n  main, call \d+ \(storage\): 'storage' is used where it was"
    ):
        VerifyMemoryPlan()(planned)


def broken(module, rng):
    """`module` planned, but with one storage at other bytes; and which one."""
    module = prepare(Legalize()(module))
    program = walk(module)
    problem, _ = build(program, Request(CompileOptions(NO_NPU, objective="bytes"), (Pool("sram"),), io_in_pools=False))
    found = plan(problem)
    pools, slots = pools_of(problem, found, program)
    aliases = {name: group for group in problem.aliases for name, _ in group.members}
    alone = [name for name in slots if name not in aliases]
    offsets = {s.offset for s in slots.values()} | {0, 64}
    name = rng.choice(alone)
    moved = slots | {name: PoolSlot(0, rng.choice(sorted(offsets - {slots[name].offset})))}
    size = max(s.offset + problem.buffer(n).size_bytes for n, s in moved.items())
    pools[0] = type(pools[0])(pools[0].name, max(size, pools[0].size))
    return rewrite_program(module, program, pools, moved), problem, moved


CONSTRUCTS = ("attention", "cnn_nchw_branchy", "cnn_nhwc", "mlp", "nested_if", "relax_calls")


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_moved_storage_is_noticed(name, zoo):
    """Against an oracle: the plan as a problem. What its verifier forbids, the module's must find."""
    entry, noticed, tried = zoo.ZOO[name](), 0, 0
    for seed in range(6):
        module, problem, moved = broken(entry.module, random.Random(seed))
        placements = tuple(Placement(n, "sram", s.offset) for n, s in moved.items())
        wrong = any(
            v.constraint is Constraint.OVERLAP
            for v in verify(problem, Plan(placements, (), PlanStatus.FEASIBLE, "test"))
        )
        faults, _ = memory_plan_faults(module)
        tried += wrong
        noticed += bool(faults) and wrong
        assert wrong or not [f for f in faults if f.kind.name != "MISALIGNED"]  # no false alarm
    assert tried
    assert noticed == tried


def shifted(module, pattern, replacement):
    """`module` with its text changed."""
    text = module.script(show_meta=True)
    changed = re.sub(pattern, replacement, text, count=1)
    assert changed != text
    return tvm.script.from_source(changed)


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "kind", "text"),
    [
        ("mlp", r"address_of\(workspace\[128\]\)", "address_of(workspace[64])", "MOVED", "earlier"),
        ("mlp", r"alloc_storage\(R.shape\(\[4224\]\)", "alloc_storage(R.shape([4000])", "OUTSIDE", "4000 bytes"),
        ("packed_calls", r"(view\(workspace, R.shape\(\[6, 3\]\).*), 0\)", r"\1, 64)", "MOVED", "earlier"),
        ("mlp", r"cls.relu\(workspace\)", "R.tuple()", "OVERWRITTEN", "written since"),
    ],
)
def test_a_changed_text_is_noticed(name, pattern, replacement, kind, text, zoo):
    planned = PlanMemory()(zoo.ZOO[name]().module)
    with pytest.raises(MemoryPlanError) as caught:
        VerifyMemoryPlan()(shifted(planned, pattern, replacement))
    assert kind in {f.kind.name for f in caught.value.faults}
    assert text in str(caught.value)


def test_a_changed_formula_is_noticed(zoo):
    planned = PlanMemory()(zoo.ZOO["dynamic_convs"]().module)
    stored = r"results\[T.int64\((\d+)\)\] = (?!T.int64\(0\))(.*)"
    noticed = []
    for match in re.finditer(stored, planned.script()):
        other = shifted(planned, re.escape(match[0]), f"results[T.int64({match[1]})] = T.int64(0)")
        noticed.append({f.kind.name for f in memory_plan_faults(other)[0]})
    assert len(noticed) >= 2
    assert all(noticed)


@I.ir_module
class Freed:
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        storage = R.memory.alloc_storage(R.shape([64]), 0, "global", "float32")
        a = R.memory.alloc_tensor(storage, 0, R.shape([16]), "float32")
        _1 = R.call_packed("twice", x, a, ty_args=(R.Tuple,))
        _2 = R.memory.kill_storage(storage)
        b = R.builtin.alloc_tensor(R.shape([16]), "float32", 0, "global")
        _3 = R.call_packed("twice", a, b, ty_args=(R.Tuple,))
        return b


def test_freed_memory_is_not_read():
    with pytest.raises(MemoryPlanError, match="which was freed before"):
        VerifyMemoryPlan()(Freed)


@pytest.mark.parametrize("values", [None, [{"h": 5, "w": 9}, {"h": 40, "w": 3}]])
def test_symbolic_plans_at_several_sizes(zoo, values):
    planned = PlanMemory()(zoo.ZOO["dynamic_convs"]().module)
    assert memory_plan_faults(planned, values) == ((), ())


def test_a_choice_inside_an_expression_hides_its_loads() -> None:
    """As in a padding: what lies outside is not read."""
    source, target = (tirx.decl_buffer((n,), "int8", name=name) for n, name in ((4, "source"), (6, "target")))
    i = tirx.Var("i", "int64")
    inside = tirx.if_then_else(tirx.And(i >= 1, i < 5), tirx.BufferLoad(source, [i - 1]), tirx.IntImm("int8", 0))
    nest = Nest()
    nest.visit(tirx.For(i, 0, 6, tirx.ForKind.SERIAL, tirx.BufferStore(target, inside, [i])))
    load, store = nest.accesses
    assert [list(executions(access, {}, 1)[1]) for access in (load, store)] == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    n = tirx.Var("n", "int64")
    least = tirx.if_then_else(n > 0, 12 // n, tirx.IntImm("int64", 7))
    assert [number(least, {n: value}) for value in (0, 5)] == [7, 2]
