"""Programs of every construct: equal on poisoned pools to the unplanned run; a storage at wrong bytes is noticed."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax

from npu_memplan.extract.program import steps
from npu_memplan.rewrite.pools import PoolSlot
from npu_memplan.transform import KeptPools, PlanMemory, memory_plan_faults, pipeline, plan_memory
from tests.support.relax_constructs import CONSTRUCTS
from tests.support.zoo import ZOO

OF_THE_ZOO = [n for n in ZOO if not n.endswith(("int8", "model", "quant")) and n not in ("onnx_cnn", "torch_exported")]


def leaves(value) -> list[bytes]:
    """Tensors as bytes, shapes as text, left to right."""
    if hasattr(value, "numpy"):
        return [value.numpy().tobytes()]
    if isinstance(value, tvm.runtime.ShapeTuple):
        return [str(list(value)).encode()]
    return [leaf for item in value for leaf in leaves(item)]


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_planned_equals_unplanned(name):
    program = CONSTRUCTS[name]()
    planned = PlanMemory(share=program.share, poison=0xA5)(program.module)
    kept = KeptPools(planned) if program.share else None
    plain, own = (
        relax.VirtualMachine(tvm.compile(m, target="llvm", relax_pipeline=pipeline(plan=False)), tvm.cpu())
        for m in (relax.transform.LambdaLift()(program.module), planned)
    )
    for function, arguments, symbols in program.calls:
        pools = kept(function, **symbols) if kept is not None else ()
        wanted = leaves(plain[function](*(make() for make in arguments)))
        assert leaves(own[function](*(make() for make in arguments), *pools)) == wanted, symbols


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_right_plan_has_no_faults(name):
    program = CONSTRUCTS[name]()
    faults, _ = memory_plan_faults(PlanMemory(share=program.share)(program.module))
    assert not faults


def clobbered(program, problem, slots):
    """Names (live across a step, written in it) of two storages that must be apart; the first pair there is."""
    allowed = {frozenset((o.first, o.second)) for o in problem.overlaps}
    allowed |= {frozenset(pair) for g in problem.aliases for pair in combinations([n for n, _ in g.members], 2)}
    for step in steps(program.nodes):
        for written in (a.storage.name for a in step.accesses if a.writes):
            for buffer in problem.buffers:
                if (
                    written in slots
                    and {buffer.name, written} <= set(slots)
                    and buffer.name != written
                    and buffer.lives_at(step.point)
                    and (buffer.lives_at(step.point + 1) or step.origin is None)  # None: a library's call
                    and slots[buffer.name].pool == slots[written].pool
                    and frozenset((buffer.name, written)) not in allowed
                ):
                    return buffer.name, written
    return None


def broken(monkeypatch, module, share):
    """`module` planned, with one storage on top of another that lives on, or else at no multiple of its elements."""
    moved = []
    lay = plan_memory.lay

    def moving(extracted):
        laid, problem, program = lay(extracted), extracted.problem, extracted.program
        slots = laid.slots
        if not moved and slots:
            pair = clobbered(program, problem, slots)
            name = pair[1] if pair else min(slots, key=lambda n: problem.buffer(n).size_bytes)
            moved.append(pair or (name,))
            there = slots[pair[0]] if pair else PoolSlot(slots[name].pool, slots[name].offset + 2)
            aliases = [{n for n, _ in g.members} for g in problem.aliases]
            group = next((g for g in aliases if name in g), {name})
            slots = {**slots, **dict.fromkeys(group, there)}
        return replace(laid, slots=slots)

    monkeypatch.setattr(plan_memory, "lay", moving)
    return PlanMemory(share=share)(module), moved


@pytest.mark.parametrize("name", [*CONSTRUCTS, *OF_THE_ZOO])
def test_a_storage_moved_onto_another_is_noticed(name, monkeypatch):
    program = CONSTRUCTS[name]() if name in CONSTRUCTS else ZOO[name]()
    module, moved = broken(monkeypatch, program.module, getattr(program, "share", False))
    faults, _ = memory_plan_faults(module)
    assert bool(faults) == bool(moved), moved
    assert moved or name == "issue_20191"  # which has nothing to place


def test_there_are_thirty_programs():
    assert len(CONSTRUCTS) + len(OF_THE_ZOO) >= 30
