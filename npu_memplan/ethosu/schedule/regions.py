"""Where a program's buffers are before a plan says so: what choices of a schedule are weighed with.

Invariant: constants are in region 0, tables inside the NPU, everything else in the last region, the NPU's own memory.
"""

from __future__ import annotations

from collections.abc import Callable

from ..program.program import BufferRole, NpuProgram
from ..stream.isa import SHRAM_REGION
from ..time.memory import MemoryMap


def place_of(role: BufferRole, memory_map: MemoryMap) -> tuple[int, int]:
    """Region and base address of a buffer."""
    if role is BufferRole.LUT:
        return SHRAM_REGION, 0
    return 0 if role is BufferRole.CONSTANTS else max(memory_map.regions), 0


def places(program: NpuProgram, memory_map: MemoryMap) -> Callable[[str], tuple[int, int]]:
    """Region and base address by buffer of `program`."""
    return lambda name: place_of(program.buffer(name).role, memory_map)
