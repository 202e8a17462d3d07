"""Tensor replacement: feature maps leave a fast pool that is too small for all of them, between two uses.

Invariant: the result is planned, verified and compared by its cycles, as any other candidate is.
"""

from __future__ import annotations

from ..ethosu.schedule.replacement import chosen, replaced
from ..ethosu.time import MemoryMap
from ..stages import Extracted
from .rebuild import npu_programs, rebuild_problem
from .weight_prefetch import fast_pool


def replace_maps(extracted: Extracted, memory_map: MemoryMap) -> Extracted | None:
    """The program with unused maps in the first writable pool besides the fast one; None where no map stays unused for
    long, or there is no such pool.
    """
    pools = extracted.problem.pools
    fast = fast_pool(pools, memory_map)
    slow = next((i for i, pool in enumerate(pools) if i != fast and not pool.read_only), None)
    if fast is None or slow is None or (limit := pools[fast].size_bytes) is None:
        return None
    changed = {}
    for variable, program in npu_programs(extracted).items():
        if away := chosen(program, limit):
            changed[variable.name_hint] = replaced(program, away, slow + 1)
    return rebuild_problem(extracted, changed) if changed else None
