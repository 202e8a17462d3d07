"""The kernels of a program as no choice of copies or blocks makes them faster.

Invariant: every time on the clock of these kernels is a bound of the same on that of any schedule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ....arch import Architecture
from ....hazards.blockdep import blockdep
from ....program.access import Role
from ....stream.commands import Operation
from ....stream.isa import Register
from ....time import Traffic
from ....time.cost import Load, ResourceUse
from ....time.memory import Direction
from ..timed_program import TimedProgram

_CHANGED_WORDS = 9  # that other blocks and places may save: five of blocks, BLOCKDEP, two regions, a wait
_BLOCK = (Register.OFM_BLK_HEIGHT_M1, Register.OFM_BLK_WIDTH_M1, Register.OFM_BLK_DEPTH_M1)


def with_least_needs(timed: TimedProgram, stays: Collection[int] = ()) -> TimedProgram:
    """The same kernels as no choice of copies or blocks makes them faster: each needs the least of all its forms, in
    place where its constant `stays`.
    """
    steps = []
    before: tuple[ResourceUse, ...] = ()  # forms of the last kernel
    tables = any(timed.step(index).slow.is_transfer for index in range(len(timed)))
    for index in range(len(timed)):
        step = timed.step(index)
        if tables:  # what reads commands makes the last transfer late, and with copies that may be another one
            step = replace(step, words=0)
        if not step.slow.is_transfer:
            forms = timed.forms(index)[0] if timed.reads.get(index) in stays else _all(timed, index)
            depends = step.slow.operation.get(Register.BLOCKDEP)
            if before:
                depends = max(_blockdeps(before, forms, timed.program.accelerator, depends))
                counts = [needs.blocks for needs in before]
                depends = -(-depends * max(counts) // min(counts))  # as many of their smaller blocks
            needs = _least(forms, timed.reads[index] not in stays, index) if index in timed.reads else step.slow
            operation = step.slow.operation.with_registers({Register.BLOCKDEP: depends})
            step, before = replace(step, slow=needs.of(operation)), forms
            if step.words and timed.program.accelerator.command_fetch_bytes:  # whose stream keeps kernels waiting
                step = replace(step, words=max(1, step.words - _CHANGED_WORDS))
        steps.append(step)
    return timed.otherwise(steps)


def _all(timed: TimedProgram, index: int) -> tuple[ResourceUse, ...]:
    return tuple(needs for forms in timed.forms(index) for needs in forms)


def _blockdeps(
    before: Sequence[ResourceUse], forms: Sequence[ResourceUse], accelerator: Architecture, known: int
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


def _least(forms: Sequence[ResourceUse], copied: bool, index: int) -> ResourceUse:
    """The least of several needs of one kernel, part by part. Constants keep the soonest of their arrivals and, where
    they may be `copied`, no memory busy: read in place they spare the memory that copies take, and the other way round.
    What the busiest memory of any form needs is that of one that nothing else uses.
    """
    least: dict[tuple[Role, bool], Load] = {}
    loads = [load if len(forms) == 1 else replace(load, late=0.0, rest=0.0) for needs in forms for load in needs.loads]
    for load in loads:
        known = least.setdefault((load.role, load.writes), load)
        if (load.cycles, load.asking) < (known.cycles, known.asking):
            least[load.role, load.writes] = load
    blocks = max(needs.blocks for needs in forms)
    written = least.get((Role.OFM, True))  # none where a chain goes on
    longest = min(_longest(needs) for needs in forms) + (written.cycles / blocks if written else 0.0)
    alone = replace((written or loads[0]).memory, name=f"of kernel {index}", read=Direction(0))
    least[Role.DMA_SRC, False] = Load(Role.DMA_SRC, alone, False, Traffic(), longest, None, 0.0)
    for role in (Role.WEIGHTS, Role.SCALES, Role.IFM2):
        arrivals = [load for load in loads if load.role is role]
        if arrivals:
            soonest = min(arrivals, key=lambda load: load.latency + load.asking)
            least[role, soonest.writes] = replace(soonest, cycles=0.0, traffic=Traffic()) if copied else soonest
    return replace(
        forms[0],
        multipliers=min(needs.multipliers for needs in forms),
        output=min(needs.output for needs in forms),
        loads=tuple(least.values()),
        blocks=blocks,
        jobs=max(needs.jobs for needs in forms),
    )


def _longest(needs: ResourceUse) -> float:
    """From a kernel's start until its last block is put out, as far as its memories decide."""
    traffic = needs.traffic
    return max(latency + busy for _, busy, latency in traffic.memories) - traffic.output_cycles / needs.blocks
