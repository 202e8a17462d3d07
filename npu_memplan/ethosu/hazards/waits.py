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
from ..program.access import lut_span
from ..program.chains import chain_bounds
from ..program.program import NpuProgram
from ..stream.commands import Command, Marker, Operation, Wait
from ..stream.isa import Op, Register
from .blockdep import blockdep
from .hazards import footprint

_STOP_ALL = 0xFFFF
_Chain = tuple[Operation, ...]  # a transfer, a kernel, or kernels that run as one


def stream_of(program: NpuProgram, place: Callable[[str], tuple[int, int]]) -> tuple[Command, ...]:
    """The stream of a program whose buffers have the regions and addresses that `place` says."""
    return schedule([program.place(i, place) for i in range(len(program.operations))], program.accelerator)


def schedule(operations: Sequence[Operation], accelerator: Architecture) -> tuple[Command, ...]:
    """The operations with the waits they need and their BLOCKDEP, ended by STOP."""
    commands: list[Command] = []
    kernels: list[_Chain] = []  # unfinished for all we know, oldest first
    transfers: list[_Chain] = []
    previous: Operation | None = None
    bounds, distance = chain_bounds(operations), 0
    for place, op in enumerate(operations):
        first, last = bounds[place]
        if op.op is Op.DMA_START:
            commands += _wait(Op.KERNEL_WAIT, kernels, op, accelerator)
            if accelerator.max_outstanding_dma > 1:
                commands += _wait(Op.DMA_WAIT, transfers, op, accelerator)
            transfers.append((op,))
            del transfers[: -accelerator.max_outstanding_dma]
            commands.append(op)
            continue
        commands += _wait(Op.DMA_WAIT, transfers, op, accelerator)
        if place == first:
            spoils = bool(kernels) and _spoils_table(op, kernels[-1], accelerator)
            chained = operations[first : last + 1]
            kernels.append((op,))
            del kernels[: -accelerator.max_outstanding_kernels]
            distance = 0
            if previous is not None and not spoils:
                distance = min(blockdep(previous, one, accelerator) for one in chained)
        else:
            kernels[-1] = (*kernels[-1], op)
        previous = op if place == last else previous
        commands.append(op.with_registers({Register.BLOCKDEP: distance}))
    commands.append(Marker(Op.STOP, _STOP_ALL))
    return tuple(commands)


def _wait(kind: Op, unfinished: list[_Chain], op: Operation, accelerator: Architecture) -> list[Command]:
    """The weakest wait after which nothing unfinished conflicts; removes what it makes finished."""
    for index in range(len(unfinished) - 1, -1, -1):
        mine = footprint(op, accelerator)  # of few operations is it asked for
        if any(footprint(one, accelerator).conflicts(mine) for one in unfinished[index]):
            younger = len(unfinished) - 1 - index
            del unfinished[: index + 1]
            return [Wait(kind, younger)]
    return []


def _spoils_table(op: Operation, before: _Chain, accelerator: Architecture) -> bool:
    """Whether kernel `op` works in SHRAM from which those before it read a table."""
    readers = [one for one in before if lut_span(one) is not None]
    return any(footprint(op, accelerator).spoils_table(footprint(one, accelerator)) for one in readers)
