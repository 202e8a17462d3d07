"""Cycles that no schedule of copies goes below, for one order of operations and one plan of maps.

Invariant: a bound of `course`'s clock, never an estimate, whether kernels run in their own blocks or in the best for
where their constants are. It is the most of four, each of which holds by itself:
the constants' port, each constant once; the kernels as if constants came from wherever they can sooner, and those that
can be copied kept no memory busy; all memories at once, since what a copy spares one it writes to another; and what
the port must still bring when an operation ends, because only what is free beside the maps can be there already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
_UNFINISHED = 2  # operations before a copy that may have begun and not ended: at most, `greedy.Copy`


def least_cycles(line: Course, free_bytes: Sequence[int], in_slices: bool = False) -> int:
    """The bound. `free_bytes`: of the pool of copies while each operation runs, copies not counted. `in_slices`: about
    what no slices of the operations go below, for which copies have room where those of the whole have none.
    """
    stays, ends = frozenset[int]() if in_slices else staying(line, free_bytes), []
    run = Run(with_least_needs(line, stays))
    for index in range(len(line)):
        run.step(index, False)
        ends.append(run.clock.engines.end)
    late = _brought_late(line, *_least_brought(line, stays), ends, free_bytes)
    return int(max(run.cycles, _memories(line, stays), late))


def staying(line: Course, free_bytes: Sequence[int]) -> frozenset[int]:
    """Pieces that are read in place, since a copy has no room while its readers run, though nothing else is copied."""
    sizes = enumerate(piece.size_bytes for piece in line.pieces)
    spans = [slice(piece.readers[0], piece.readers[-1] + 1) for piece in line.pieces]
    return frozenset(k for k, size in sizes if size > min(free_bytes[spans[k]]))


def _least_brought(line: Course, stays: Collection[int]) -> tuple[list[float], list[float]]:
    """Of each operation, cycles of the constants' memory for what it reads first and may be copied before, and for
    what it certainly reads in place. More may be copied than is read: up to the grain, or of small operands.
    """
    count, far = len(line), line.where.regions[0].name
    copied, in_place = [0.0] * count, [0.0] * count
    for k, piece in enumerate(line.pieces):
        for i in piece.readers:
            in_place[i] += min(needs.passage.cycles_of(far) for needs in line.forms(i)[0])
        if k not in stays:
            port = port_cycles(piece.size_bytes, line.program.accelerator, line.where)
            copied[piece.readers[0]] += min(port, sum(in_place[i] for i in piece.readers))
            for i in piece.readers:
                in_place[i] = 0.0
    return copied, in_place


def port_cycles(size_bytes: float, accelerator: Architecture, where: MemoryMap) -> float:
    """Cycles of the constants' memory for so many bytes."""
    return size_bytes / accelerator.port_bytes / where.regions[0].clock_scale


def _memories(line: Course, stays: Collection[int]) -> float:
    """No memory's busy time is above the total, so no mean of them is; each piece is copied or not, as is less, but for
    those that stay.
    """
    forms = [line.forms(index) for index in range(len(line))]
    names = sorted({load.memory.name for slow, _ in forms for load in slow[0].loads})
    far = line.where.regions[0].name
    most = 0.0
    for near in names:
        for part in range(_WEIGHTS + 1):
            weights = {far: part / _WEIGHTS, near: 1.0 if near == far else 1 - part / _WEIGHTS}
            total = sum(_weighed(slow, weights) for i, (slow, _) in enumerate(forms) if i not in line.reads)
            for k, piece in enumerate(line.pieces):
                least = sum(_weighed(forms[i][0], weights) for i in piece.readers)
                if k not in stays:
                    sizes = (stop - start for start, stop in piece.spans)
                    copied = sum(_weighed((line.transfer(size),), weights) for size in sizes)
                    least = min(least, copied + sum(_weighed(forms[i][1], weights) for i in piece.readers))
                total += least
            most = max(most, total)
    return most


def _weighed(forms: Sequence[Demand], weights: Mapping[str, float]) -> float:
    """Of one operation, in the form in which it is least."""
    return min(sum(load.cycles * weights.get(load.memory.name, 0.0) for load in needs.loads) for needs in forms)


def _brought_late(
    line: Course, copied: Sequence[float], in_place: Sequence[float], ends: Sequence[float], free_bytes: Sequence[int]
) -> float:
    """When a kernel ends, at most the free bytes hold constants of later ones; the port brings the others then.

    Loads that begin at or after a time keep their memory busy from then on for as long as all of them take, and the
    clock does not end before. (It may end an operation before its memory has worked off what that asked for: of three
    that share one, each is only as late as if there were two. So kernels behind the last that is brought add nothing.)
    No load has begun, when a kernel ends, of what is read in place by kernels that cannot be in flight with it, nor of
    copies that hold no bytes while it runs: one that holds bytes from `_UNFINISHED` operations before it on waits for
    all kernels before those; a transfer among those operations is none, so that it waits for one kernel less.
    """
    accelerator, count = line.program.accelerator, len(line)
    later = [*accumulate(reversed(copied), initial=0.0)][::-1]  # from an operation on
    read = [*accumulate(reversed(in_place), initial=0.0)][::-1]
    transfers = [line.step(i).slow.is_transfer for i in range(count)]
    kernels = [i for i in range(count) if not transfers[i]]
    most, ended = later[0] + read[0], 0
    for k in range(count):
        ended += not transfers[k]
        over = ended - sum(transfers[k + 1 : k + 1 + _UNFINISHED])
        begins = over + accelerator.max_outstanding_kernels - 1
        if over > 0 and begins < len(kernels):
            first = kernels[begins]
            there = port_cycles(free_bytes[k], accelerator, line.where)
            most = max(most, ends[kernels[over - 1]] + read[first] + max(0.0, later[first] - there))
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


def with_least_needs(line: Course, stays: Collection[int] = ()) -> Course:
    """The same kernels as no choice of copies or blocks makes them faster: each needs the least of all its forms, in
    place where its piece `stays`.
    """
    steps = []
    before: tuple[Demand, ...] = ()  # forms of the last kernel
    for index in range(len(line)):
        step = line.step(index)
        if not step.slow.is_transfer:
            forms = line.forms(index)[0] if line.reads.get(index) in stays else _all(line, index)
            depends = step.slow.operation.get(Register.BLOCKDEP)
            if before:
                depends = max(_blockdeps(before, forms, line.program.accelerator, depends))
                counts = [needs.blocks for needs in before]
                depends = -(-depends * max(counts) // min(counts))  # as many of their smaller blocks
            needs = _least(forms, line.reads[index] not in stays) if index in line.reads else step.slow
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


def _least(forms: Sequence[Demand], copied: bool) -> Demand:
    """The least of several needs of one kernel, part by part. Constants keep the soonest of their arrivals and, where
    they may be `copied`, no memory busy: read in place they spare the memory that copies take, and the other way round.
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
            least[role, soonest.writes] = replace(soonest, cycles=0.0) if copied else soonest
    return replace(
        forms[0],
        multipliers=min(needs.multipliers for needs in forms),
        output=min(needs.output for needs in forms),
        loads=tuple(least.values()),
        blocks=max(needs.blocks for needs in forms),
        jobs=max(needs.jobs for needs in forms),
    )
