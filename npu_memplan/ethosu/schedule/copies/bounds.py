"""Cycles that no schedule of copies goes below, for one order of operations, one choice of blocks and one plan of maps.

Invariant: a bound of `course`'s clock, never an estimate. It is the most of four, each of which holds by itself:
the constants' port, each constant once; the kernels as if constants came from wherever is sooner and kept no memory
busy; all memories at once, since what a copy spares one it writes to another; and what the port must still bring when
an operation ends, because only what is free beside the maps can be there already.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ...arch import Architecture
from ...time import MemoryMap
from ...time.cost import Demand, Load
from .course import Course, Run

_WEIGHTS = 8  # steps between counting one memory and counting the other


def least_cycles(line: Course, free_bytes: Sequence[int]) -> int:
    """The bound. `free_bytes`: of the pool of copies while each operation runs, copies not counted."""
    ends, run = [], Run(line.with_least_needs())
    for index in range(len(line)):
        run.step(index, False)
        ends.append(run.clock.engines.end)
    return int(max(run.cycles, _port(line, _size(line)), _memories(line), _brought_late(line, ends, free_bytes)))


def _size(line: Course) -> int:
    return sum(piece.size_bytes for piece in line.pieces)


def port_cycles(size_bytes: float, accelerator: Architecture, where: MemoryMap) -> float:
    """Cycles of the constants' memory for so many bytes."""
    return size_bytes / accelerator.port_bytes / where.regions[0].clock_scale


def _port(line: Course, size_bytes: float) -> float:
    return port_cycles(size_bytes, line.program.accelerator, line.where)


def _memories(line: Course) -> float:
    """No memory's busy time is above the total, so no mean of them is; each piece is copied or not, as is less."""
    steps = [line.step(index) for index in range(len(line))]
    names = sorted({load.memory.name for step in steps for load in step.slow.loads})
    far = line.where.regions[0].name
    most = 0.0
    for near in names:
        for part in range(_WEIGHTS + 1):
            weights = {far: part / _WEIGHTS, near: 1.0 if near == far else 1 - part / _WEIGHTS}
            total = sum(_weighed(s.slow.loads, weights) for i, s in enumerate(steps) if i not in line.reads)
            for piece in line.pieces:
                sizes = (stop - start for start, stop in piece.spans)
                moved = [load for size in sizes for load in line.transfer(size).loads]
                copied = [load for i in piece.readers for load in steps[i].fast.loads]
                there = [load for i in piece.readers for load in steps[i].slow.loads]
                total += min(_weighed([*moved, *copied], weights), _weighed(there, weights))
            most = max(most, total)
    return most


def _weighed(loads: Sequence[Load], weights: Mapping[str, float]) -> float:
    return sum(load.cycles * weights.get(load.memory.name, 0.0) for load in loads)


def _brought_late(line: Course, ends: Sequence[float], free_bytes: Sequence[int]) -> float:
    """When operation k ends, at most the free bytes hold constants of later ones; the port brings the others then.

    Kernels that may have been started by then are left out: they may have read in place. Behind the last that is
    brought come the kernels that follow its reader, one after the other.
    """
    count = len(line)
    sizes = [0] * count
    for piece in line.pieces:
        sizes[piece.readers[0]] += piece.size_bytes
    before = [0, *accumulate(sizes)]
    steps = [line.step(index) for index in range(count)]
    work = [min(unit_cycles(step.slow), unit_cycles(step.fast)) for step in steps]
    behind = [0.0, *accumulate(reversed(work))]  # of the last n operations
    # the latest end by bytes brought until j and kernels behind j, of all j from an operation on
    latest = [0.0] * (count + 1)
    for j in range(count - 1, -1, -1):
        latest[j] = max(latest[j + 1], _port(line, before[j + 1]) + behind[count - 1 - j])
    kernels = [i for i in range(count) if not steps[i].slow.is_transfer]
    started = line.program.accelerator.max_outstanding_kernels - 1
    most = 0.0
    for k in range(count):
        later = bisect_right(kernels, k) + started
        if later < len(kernels):
            first = kernels[later]
            most = max(most, ends[k] + latest[first] - _port(line, before[first] + free_bytes[k]))
    return most


def unit_cycles(needs: Demand) -> float:
    """No kernel ends sooner after the one before it than its multipliers or its output unit work."""
    return 0.0 if needs.is_transfer else float(max(needs.multipliers, needs.output))
