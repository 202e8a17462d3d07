"""What the port of constants and the kernels take at least, whatever is copied.

Invariant: bounds of the estimate's clock; they add up over constants, and over operations.
"""

from __future__ import annotations

from itertools import accumulate

from ...arch import Architecture
from ...time import MemoryMap
from ...time.cost import ResourceUse
from .timed_program import TimedProgram


def port_cycles(size_bytes: float, accelerator: Architecture, memory_map: MemoryMap) -> float:
    """Cycles of the constants' memory for so many bytes."""
    return size_bytes / accelerator.port_bytes / memory_map.regions[0].clock_scale


def unit_cycles(needs: ResourceUse) -> float:
    """No kernel puts out its last block sooner after the one before it has put out its own: it is multiplied from then
    on, and put out block by block after that.
    """
    if needs.is_transfer:
        return 0.0
    work = (needs.multipliers, needs.output)
    return max(work) + min(work) / needs.blocks


def least_work(timed: TimedProgram) -> list[float]:
    """Until the end, when what ran before an operation has put out: `unit_cycles` of kernels wherever constants are."""
    steps = (timed.step(index) for index in reversed(range(len(timed))))
    return [*accumulate((min(unit_cycles(s.slow), unit_cycles(s.fast)) for s in steps), initial=0.0)][::-1]
