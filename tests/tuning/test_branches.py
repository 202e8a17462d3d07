"""Independent operations in another order: fewer bytes for less time, and the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from npu_memplan import planners
from npu_memplan.ethosu.program.program import BufferRole, NpuOperation, NpuProgram
from npu_memplan.ethosu.schedule.order import reorder_operations
from npu_memplan.stages import Planned
from npu_memplan.tuning.candidate import called_once, rebuild_problem


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
