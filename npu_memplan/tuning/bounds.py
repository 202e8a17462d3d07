"""Cycles that no choice of copies goes below, for the operations of a program as they are and its maps where they lie.

Invariant: a bound, never an estimate; `ethosu/schedule/prefetch/bounds/` says of what.
"""

from __future__ import annotations

from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.prefetch.bounds import least_cycles, port_cycles
from ..ethosu.schedule.prefetch.free_space import FreeCapacity
from ..ethosu.schedule.prefetch.reads import constant_blocks, in_place
from ..ethosu.schedule.prefetch.timed_program import TimedProgram
from ..ethosu.stream.isa import Op, Register
from ..ethosu.time import MemoryMap
from ..stages import Planned
from .placed import PlacedCall, npu_calls
from .prefetch_candidate import held
from .ranking import Ranking
from .weight_prefetch import fast_pool


def port_bound(planned: Planned, memory_map: MemoryMap) -> int:
    """Cycles of the constants' port, each constant once: what no program of the same constants goes below."""
    return sum(_port(in_place(call.program), memory_map) for call in npu_calls(planned.extracted.program))


def bound_of(planned: Planned, rank: Ranking) -> int:
    """Cycles of all NPU calls: the port's for all constants once, or what the kernels and the free bytes allow."""
    problem, plan, memory_map = planned.extracted.problem, planned.plan, rank.memory_map
    fast = fast_pool(problem.pools, memory_map)
    total = 0
    for call in npu_calls(planned.extracted.program):
        program = in_place(call.program)
        if fast is None:
            total += _port(program, memory_map)
            continue
        places = call.places(problem, plan)
        timed = TimedProgram(
            program, constant_blocks(program), places.__getitem__, rank.demand_cache(program.accelerator), fast + 1
        )
        total += least_cycles(timed, _free(planned, call, program, fast))
    return total


def _free(planned: Planned, call: PlacedCall, in_place: NpuProgram, fast: int) -> list[int]:
    """Bytes of the pool beside the maps while each operation of the program without copies runs."""
    pool = planned.extracted.problem.pools[fast]
    (used,) = (usage.used_bytes for usage in planned.plan.usage if usage.pool == pool.name)
    there = {b.name for b in in_place.buffers}
    copies = {b.name for b in call.program.buffers} - there
    operations = call.program.operations
    left = [
        index
        for index, operation in enumerate(operations)
        if operation.op is not Op.DMA_START or operation.addresses[Register.DMA0_DST][0] not in copies
    ]
    others = held(planned, call, fast, {call.storages[name] for name in copies})
    size = used if pool.size_bytes is None else pool.size_bytes
    space = FreeCapacity(others, size, len(operations), grain=1)  # what another plan may align otherwise
    free_bytes = space.free_bytes
    return [free_bytes[index] for index in left]


def _port(program: NpuProgram, memory_map: MemoryMap) -> int:
    return round(
        port_cycles(sum(constant.size_bytes for constant in constant_blocks(program)), program.accelerator, memory_map)
    )
