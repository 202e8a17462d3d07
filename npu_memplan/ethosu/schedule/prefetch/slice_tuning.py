"""Slice sizes of single operations, tuned by optimistic cycles.

Invariant: deterministic, and the work is bounded by the operations of the programs that are evaluated. Optimistic
cycles hold for maps at their present offsets; a sliced operation keeps its maps while all of its slices run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from random import Random

from ...program.program import NpuProgram
from ...stream.isa import Register
from .free_space import FreeCapacity, OccupiedRange
from .search import WORK, CopySearch
from .slices import Slicer, weights_of
from .timed_program import TimedProgram

_LOOKED_AT = 2_500  # operations of programs with other slices
_COUNTS = (1, 2, 3, 4, 6)  # slices of an operation
_LEAST_BYTES = 1024  # of weights: others stay as they are
_TOGETHER = (1, 1, 2)  # weights that are cut otherwise at once
_PART = 8  # of WORK, for each


def tune_slices(
    slicer: Slicer,
    most_bytes: int,
    timed_program: Callable[[NpuProgram], TimedProgram],
    held: Sequence[OccupiedRange],
    limit_bytes: int,
    cycles: int,
) -> Mapping[int, int]:
    """For single operations of the slicer's program the most bytes of a slice, that lower the optimistic
    cycles below `cycles`, those with `most_bytes` for all; empty where none do.

    `held`: what lies below `limit_bytes`, in operations of that program. `timed_program`: of a program with slices.
    Slices that were looked at, whatever sizes made them, are not looked at again.
    """
    readers: dict[object, list[int]] = {}  # of the same weights: they have the same slices
    for index, operation in enumerate(slicer.program.operations):
        if slicer.weight_bytes(operation) > _LEAST_BYTES:
            readers.setdefault(weights_of(operation), []).append(index)
    groups = list(readers.values())
    chosen: dict[int, int] = {}
    draw, seen, made = Random(0), [chosen], list[object]()
    left = _LOOKED_AT if groups else 0
    while left > 0:
        tried = dict(chosen)
        for group in draw.sample(groups, min(len(groups), draw.choice(_TOGETHER))):
            size = slicer.weight_bytes(slicer.program.operations[group[0]])
            tried |= dict.fromkeys(group, -(-size // draw.choice(_COUNTS)))
        left -= len(slicer.program.operations)
        if tried in seen:
            continue
        seen.append(tried)
        parts = slicer.parts(most_bytes, tried)
        depths = [[part.get(Register.OFM_DEPTH_M1) for part in slices] for slices in parts]
        if depths in made:
            continue
        made.append(depths)
        timed = timed_program(slicer.joined(parts))
        there = stretched(held, [len(slices) for slices in parts])
        space = FreeCapacity(list(there), limit_bytes, len(timed))
        search = CopySearch(timed, space)
        search.further(WORK // _PART)
        if search.best.cycles < cycles:
            cycles, chosen = search.best.cycles, tried
    return chosen


def stretched(held: Sequence[OccupiedRange], counts: Sequence[int]) -> Iterator[OccupiedRange]:
    """What is held, in operations of a program that has so many for each."""
    ends = [*accumulate(counts)]
    for h in held:
        yield OccupiedRange(ends[h.first] - counts[h.first], ends[h.last] - 1, h.start, h.stop)
