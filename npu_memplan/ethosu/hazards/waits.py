"""When an operation may start: waits between kernels and DMAs, and block dependencies.

Invariant: in the scheduled stream no operation starts while an unfinished one of the other engine
conflicts with it, whatever the addresses are; nothing of the compiler's own waits is used.

The NPU runs two queues side by side. A started DMA is certainly finished once `max_outstanding_dma`
later ones have started, a started kernel once `max_outstanding_kernels` have; that, and explicit waits, is all
the order there is between the queues. Kernels run in order; how far one overlaps with the one
before it is BLOCKDEP, which is 0 also where its working memory lies over a table that the one before
may still read. On parts with two outstanding DMAs these are not assumed to stay in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..arch import Architecture
from ..program.chains import chain_bounds
from ..program.program import NpuProgram
from ..stream.commands import Command, Marker, Operation, Wait
from ..stream.isa import Op, Register
from .blockdep import blockdep
from .hazards import Footprint, footprint

_STOP_ALL = 0xFFFF


def stream_of(program: NpuProgram, place: Callable[[str], tuple[int, int]]) -> tuple[Command, ...]:
    """The stream of a program whose buffers have the regions and addresses that `place` says."""
    return schedule([program.place(i, place) for i in range(len(program.operations))], program.accelerator)


def schedule(operations: Sequence[Operation], accelerator: Architecture) -> tuple[Command, ...]:
    """The operations with the waits they need and their BLOCKDEP, ended by STOP."""
    commands: list[Command] = []
    kernels: list[Footprint] = []  # unfinished for all we know, oldest first
    transfers: list[Footprint] = []
    previous: Operation | None = None
    bounds, distance = chain_bounds(operations), 0
    for place, op in enumerate(operations):
        first, last = bounds[place]
        mine = footprint(op, accelerator)
        if op.op is Op.DMA_START:
            commands += _wait(Op.KERNEL_WAIT, kernels, mine)
            if accelerator.max_outstanding_dma > 1:
                commands += _wait(Op.DMA_WAIT, transfers, mine)
            transfers.append(mine)
            del transfers[: -accelerator.max_outstanding_dma]
            commands.append(op)
            continue
        commands += _wait(Op.DMA_WAIT, transfers, mine)
        if place == first:
            spoils = bool(kernels) and mine.spoils_table(kernels[-1])
            chained = operations[first : last + 1]
            kernels.append(mine)
            del kernels[: -accelerator.max_outstanding_kernels]
            distance = 0
            if previous is not None and not spoils:
                distance = min(blockdep(previous, one, accelerator) for one in chained)
        else:
            kernels[-1] = kernels[-1].with_(mine)
        previous = op if place == last else previous
        commands.append(op.with_registers({Register.BLOCKDEP: distance}))
    commands.append(Marker(Op.STOP, _STOP_ALL))
    return tuple(commands)


def _wait(kind: Op, unfinished: list[Footprint], mine: Footprint) -> list[Command]:
    """The weakest wait after which nothing unfinished conflicts; removes what it makes finished."""
    for index in range(len(unfinished) - 1, -1, -1):
        if unfinished[index].conflicts(mine):
            younger = len(unfinished) - 1 - index
            del unfinished[: index + 1]
            return [Wait(kind, younger)]
    return []
