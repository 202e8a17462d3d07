"""Cycles of the constants' port: what no program of the same constants goes below.

Invariant: a bound, never an estimate.
"""

from __future__ import annotations

from ..ethosu.schedule.prefetch.least_work import port_cycles
from ..ethosu.schedule.prefetch.reads import constant_blocks, in_place
from ..ethosu.time import MemoryMap
from ..stages import Planned
from .placed import npu_calls


def port_bound(planned: Planned, memory_map: MemoryMap) -> int:
    """Cycles of the port for each constant once, of all NPU calls."""
    total = 0
    for call in npu_calls(planned.extracted.program):
        program = in_place(call.program)
        size_bytes = sum(constant.size_bytes for constant in constant_blocks(program))
        total += round(port_cycles(size_bytes, program.accelerator, memory_map))
    return total
