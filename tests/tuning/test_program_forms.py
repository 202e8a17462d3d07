"""Other forms of a program give the same results: another order, other blocks, other slices, tables where they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npu_memplan import planners
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U55_65, ETHOS_U85
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.program.access import Role, accesses
from npu_memplan.ethosu.program.program import BufferRole, NpuOperation, NpuProgram
from npu_memplan.ethosu.schedule.constants import loaded_early, may_lie_beside, read_table
from npu_memplan.ethosu.schedule.order import reorder_operations
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.stages import Planned
from npu_memplan.tuning.candidate import ProgramCandidate, called_once, cycles_by_model, reblock_worst, rebuild_problem
from npu_memplan.tuning.ranking import Ranking, npu_calls
from tests.support.on_model import npu_graph, random_inputs, run_program
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator


def bytes_over_time(program: NpuProgram) -> list[int]:
    """Of maps, while each operation runs."""
    sizes = {b.name: b.size_bytes for b in program.buffers if b.role not in (BufferRole.CONSTANTS, BufferRole.LUT)}
    inputs = {b.name for b in program.buffers if b.role is BufferRole.INPUT}
    live = {name: span for name, span in program.live_ranges().items() if name in sizes}
    return [
        sum(sizes[name] for name, (first, last) in live.items() if (first <= i or name in inputs) and i <= last)
        for i in range(len(program.operations))
    ]


def test_a_shortcut_is_made_before_the_branch_that_it_goes_around(
    planned: Callable[..., Planned], stream: Callable[[Planned], Any]
) -> None:
    before = planned("pretrainedResnet_quant", "tvm", 60_000)
    (call,) = called_once(before.extracted)
    memory_map = before.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    program = reorder_operations(call.program, memory_map.with_constants_near())
    assert reorder_operations(program, memory_map.with_constants_near()) is program
    assert program != call.program
    assert sorted(map(id, program.operations)) == sorted(map(id, call.program.operations))
    old, new = bytes_over_time(call.program), bytes_over_time(program)
    assert max(new) <= max(old)
    assert sum(new) < sum(old)
    assert_same_meaning(call.program, program)
    extracted = rebuild_problem(before.extracted, {call.invoke.function: program})
    after = Planned(extracted, planners.plan(extracted.problem))
    one, other = stream(before), stream(after)
    assert one.run(one.commands) == other.run(other.commands)


@pytest.mark.parametrize("name", ["kws_ref_model", "hello_world_int8"])
def test_a_chain_stays_as_it_is(planned: Callable[..., Planned], name: str) -> None:
    before = planned(name, "tvm", 120_000)
    (call,) = called_once(before.extracted)
    memory_map = before.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    assert reorder_operations(call.program, memory_map.with_constants_near()) is call.program


def assert_same_meaning(old: NpuProgram, new: NpuProgram) -> None:
    """Whatever reads or overwrites a byte, a table's included, does so behind the same operation as before."""

    def pairs(program: NpuProgram) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        last: dict[tuple[str, int], list[tuple[NpuOperation, bool]]] = {}
        for index, operation in enumerate(program.operations):
            for name, spans, writes in program.accesses(index):
                if program.buffer(name).role is BufferRole.CONSTANTS:
                    continue
                for page in dict.fromkeys(page for a, b in spans for page in range(a // 256, -(-b // 256))):
                    known = last.setdefault((name, page), [])
                    found.update((id(other), id(operation)) for other, wrote in known if wrote or writes)
                    known.append((operation, writes))
        return found

    assert pairs(old) == pairs(new)


BLOCKS = {r for r in Register if r.name.startswith("OFM_BLK_")} | {
    *(Register.IFM_IB_END, Register.IFM2_IB_START, Register.AB_START, Register.BLOCKDEP)
}


def ranking(planned: Planned) -> Ranking:
    memory_map = planned.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    return Ranking(memory_map)


@pytest.mark.parametrize(("name", "npu_compiler"), [("pretrainedResnet_quant", "tvm"), ("kws_ref_model", "vela")])
def test_fewer_cycles_under_every_model_and_the_same_results(
    planned: Callable[..., Planned], stream: Callable[[Planned], Any], name: str, npu_compiler: str
) -> None:
    before = planned(name, npu_compiler)
    rank = ranking(before)
    candidate = ProgramCandidate(before, rank(before))
    found = reblock_worst(candidate, rank, cycles_by_model(candidate, rank))
    assert found is not None
    was, now = cycles_by_model(candidate, rank), found.cycles
    assert now < was
    assert all(new <= old for new, old in zip(now, was, strict=True))
    after = found.build(rank)
    assert rank(after) == Ranking(rank.memory_map)(after)
    assert {p.buffer: p.offset_bytes for p in after.plan.placements} == {
        p.buffer: p.offset_bytes for p in before.plan.placements
    }
    (old,), (new,) = (npu_calls(one.extracted.program) for one in (before, after))
    for was_one, is_one in zip(old.program.operations, new.program.operations, strict=True):
        rest = [{r: v for r, v in o.registers.items() if r not in BLOCKS} for o in (was_one, is_one)]
        assert rest[0] == rest[1]
        assert was_one.addresses == is_one.addresses
    first, second = stream(before), stream(after)
    assert second.run(second.commands, fuzz=4) == first.run(first.commands)


def _two_tables() -> bytes:
    """TANH of 16 bits, whose table fills the memory for tables on Ethos-U85, and LOGISTIC of 8 bits."""
    b = ModelBuilder()
    shape = (1, 8, 8, 16)
    x, y = b.tensor(shape, "int16", 8 / 32768, 0), b.tensor(shape, "int16", 1 / 32768, 0)
    p, z = b.tensor(shape, "int8", 1 / 128, 0), b.tensor(shape, "int8", 1 / 256, -128)
    b.operator("TANH", [x], [y], None, 2)
    b.operator("QUANTIZE", [y], [p], "QuantizeOptions", 2)
    b.operator("LOGISTIC", [p], [z], None, 2)
    return b.made([x], [y, z]).finish()


def _softmax() -> bytes:
    x, y = TensorSpec((1, 10), "int8", 0.08, 3), TensorSpec((1, 10), "int8", 1 / 256, -128)
    return single_operator("SOFTMAX", [x], [y], "SoftmaxOptions", 2, Beta=1.0).finish()


def _lowered(model: bytes, npu: str) -> tuple[Lowered, dict[str, np.ndarray]]:
    graph = npu_graph(model, npu)
    return lower(graph, accelerator(npu)), random_inputs(graph, 1)


@pytest.mark.parametrize("npu", [a.name for a in (*ETHOS_U55_65, *ETHOS_U85)])
def test_tables_lie_where_the_npu_reads_them(npu: str) -> None:
    found = 0
    for model in (_two_tables(), _softmax()):
        program = _lowered(model, npu)[0].program
        target = program.accelerator
        for index, operation in enumerate(program.operations):
            if operation.op is Op.DMA_START:
                continue
            parts = [a.parts[0][1][0] for a in accesses(program.at_zero(index), target) if a.role is Role.LUT]
            tables = [range(*(int(at) - target.lut_address for at in part)) for part in parts]
            assert [read_table(operation)] == (tables or [None])
            found += len(tables)
    assert found >= 2


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U85])
def test_no_table_is_loaded_over_one_that_is_still_read(npu: str) -> None:
    lowered, inputs = _lowered(_two_tables(), npu)
    program = lowered.program
    assert [o.op is Op.DMA_START for o in program.operations].count(True) == 2
    early = replace(lowered, program=loaded_early(program))
    for ours, theirs in zip(run_program(early, inputs), run_program(lowered, inputs), strict=True):
        assert np.array_equal(ours, theirs)
    assert not may_lie_beside(program, range(1, len(program.operations)))  # from the first kernel on
