"""Cycles that no schedule of copies goes below, for one order of operations and one plan of maps.

Invariant: a bound of `course`'s clock, never an estimate, whether kernels run in their own blocks or in the best for
where their constants are. It is the most of four, each of which holds by itself:
the constants' port, each constant once; the kernels as if constants came from wherever is sooner and kept no memory
busy; all memories at once, since what a copy spares one it writes to another; and what the port must still bring when
an operation ends, because only what is free beside the maps can be there already. The last one takes what has passed
a memory for worked off; where three ask at once the clock lets one pass before, so it may be a little too high.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from ...arch import Architecture
from ...hazards.blockdep import blockdep
from ...program.access import Role
from ...stream.commands import Operation
from ...stream.isa import Register
from ...time import MemoryMap
from ...time.cost import Demand, Load
from .course import Course, Run

_BLOCK = (Register.OFM_BLK_HEIGHT_M1, Register.OFM_BLK_WIDTH_M1, Register.OFM_BLK_DEPTH_M1)
_WEIGHTS = 8  # steps between counting one memory and counting the other


def least_cycles(line: Course, free_bytes: Sequence[int]) -> int:
    """The bound. `free_bytes`: of the pool of copies while each operation runs, copies not counted."""
    ends, run = [], Run(with_least_needs(line))
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
    forms = [line.forms(index) for index in range(len(line))]
    names = sorted({load.memory.name for slow, _ in forms for load in slow[0].loads})
    far = line.where.regions[0].name
    most = 0.0
    for near in names:
        for part in range(_WEIGHTS + 1):
            weights = {far: part / _WEIGHTS, near: 1.0 if near == far else 1 - part / _WEIGHTS}
            total = sum(_weighed(slow, weights) for i, (slow, _) in enumerate(forms) if i not in line.reads)
            for piece in line.pieces:
                sizes = (stop - start for start, stop in piece.spans)
                copied = sum(_weighed((line.transfer(size),), weights) for size in sizes)
                copied += sum(_weighed(forms[i][1], weights) for i in piece.readers)
                total += min(copied, sum(_weighed(forms[i][0], weights) for i in piece.readers))
            most = max(most, total)
    return most


def _weighed(forms: Sequence[Demand], weights: Mapping[str, float]) -> float:
    """Of one operation, in the form in which it is least."""
    return min(sum(load.cycles * weights.get(load.memory.name, 0.0) for load in needs.loads) for needs in forms)


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
    work = [min(unit_cycles(needs) for needs in _all(line, index)) for index in range(count)]
    behind = [0.0, *accumulate(reversed(work))]  # of the last n operations
    # the latest end by bytes brought until j and kernels behind j, of all j from an operation on
    latest = [0.0] * (count + 1)
    for j in range(count - 1, -1, -1):
        latest[j] = max(latest[j + 1], _port(line, before[j + 1]) + behind[count - 1 - j])
    kernels = [i for i in range(count) if not line.step(i).slow.is_transfer]
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


def least_work(line: Course) -> list[float]:
    """From each operation to the end, the last one's end included, `unit_cycles` of kernels wherever constants are."""
    steps = (line.step(index) for index in reversed(range(len(line))))
    return [*accumulate((min(unit_cycles(s.slow), unit_cycles(s.fast)) for s in steps), initial=0.0)][::-1]


def _all(line: Course, index: int) -> tuple[Demand, ...]:
    return tuple(needs for forms in line.forms(index) for needs in forms)


def with_least_needs(line: Course) -> Course:
    """The same kernels as no choice of copies or blocks makes them faster: each needs the least of all its forms."""
    steps = []
    before: tuple[Demand, ...] = ()  # forms of the last kernel
    for index in range(len(line)):
        step = line.step(index)
        if not step.slow.is_transfer:
            forms, depends = _all(line, index), step.slow.operation.get(Register.BLOCKDEP)
            if before:
                depends = max(_blockdeps(before, forms, line.program.accelerator, depends))
                counts = [needs.blocks for needs in before]
                depends = -(-depends * max(counts) // min(counts))  # as many of their smaller blocks
            needs = _least(forms) if index in line.reads else step.slow
            operation = step.slow.operation.with_registers({Register.BLOCKDEP: depends})
            step, before = replace(step, slow=needs.of(operation)), forms
        steps.append(step)
    return line.otherwise(steps)


def _blockdeps(
    before: Sequence[Demand], forms: Sequence[Demand], accelerator: Architecture, known: int
) -> Iterator[int]:
    """How far a kernel may run ahead into the one before it, in all blocks of both, if further than is `known`."""
    yield known
    if known == accelerator.max_blockdep:
        return
    earlier, later = ({_block(needs.operation): needs.operation for needs in found} for found in (before, forms))
    if len(earlier) * len(later) > 1:
        yield from (blockdep(one, other, accelerator) for one in earlier.values() for other in later.values())


def _block(kernel: Operation) -> tuple[int, ...]:
    return tuple(kernel[register] for register in _BLOCK)


def _least(forms: Sequence[Demand]) -> Demand:
    """The least of several needs of one kernel, part by part. Constants keep the soonest of their arrivals and no
    memory busy: read in place they spare the memory that copies of them take, and the other way round.
    """
    least: dict[tuple[Role, bool], Load] = {}
    for load in (load for needs in forms for load in needs.loads):
        known = least.setdefault((load.role, load.writes), load)
        if (load.cycles, load.asking) < (known.cycles, known.asking):
            least[load.role, load.writes] = load
    for role in (Role.WEIGHTS, Role.SCALES, Role.IFM2):
        arrivals = [load for needs in forms for load in needs.loads if load.role is role]
        if arrivals:
            soonest = min(arrivals, key=lambda load: load.latency + load.asking)
            least[role, soonest.writes] = replace(soonest, cycles=0.0)
    return replace(
        forms[0],
        multipliers=min(needs.multipliers for needs in forms),
        output=min(needs.output for needs in forms),
        loads=tuple(least.values()),
        blocks=max(needs.blocks for needs in forms),
        jobs=max(needs.jobs for needs in forms),
    )
