"""Missing waits: a kernel against unfinished DMA, a DMA against unfinished kernels.

Invariant: pessimistic about time. Something that was started is unfinished until a wait or a full
queue says otherwise. Kernels finish in order; two transfers in flight at once (U65) in any order,
so there a transfer is checked against the one before it as well.
"""

from __future__ import annotations

from npu_memplan.ethosu.stream.commands import Wait
from npu_memplan.ethosu.stream.isa import Op

from ..errors import MissingWaitError
from ..spec.stream import DecodedStep, DecodedStream
from .footprint import INTERNAL, Footprint, footprint, together
from .operands import is_continued
from .schedule import MAX_KERNELS


def check(program: DecodedStream) -> None:
    """`MissingWaitError` for the first operation that may start too early."""
    continued = False  # the next kernel is part of the last one
    kernels: list[tuple[DecodedStep, Footprint]] = []
    transfers: list[tuple[DecodedStep, Footprint]] = []
    for command in program.commands:
        if isinstance(command, Wait):
            queue = transfers if command.op is Op.DMA_WAIT else kernels
            del queue[: max(len(queue) - command.outstanding, 0)]
        elif isinstance(command, DecodedStep):
            mine = footprint(command, program.accelerator)
            own, others = (transfers, kernels) if command.is_dma else (kernels, transfers)
            unordered = command.is_dma and program.accelerator.max_outstanding_dma > 1
            for queue in (others, own) if unordered else (others,):
                for position, (earlier, its) in enumerate(queue):
                    _compare(earlier, its, command, mine, len(queue) - 1 - position)
            if continued and own is kernels and own:
                own[-1] = (command, together(own[-1][1], mine))
            else:
                own.append((command, mine))
            if not command.is_dma:
                continued = is_continued(command)
            limit = program.accelerator.max_outstanding_dma if command.is_dma else MAX_KERNELS
            del own[: max(len(own) - limit, 0)]
        elif command.op is Op.BRANCH and (kernels or transfers):
            raise MissingWaitError(
                f"BRANCH at stream offset {command.offset_bytes:#x} may be taken before what stands before it has "
                "finished; put KERNEL_WAIT 0 and DMA_WAIT 0 before it"
            )


def _compare(earlier: DecodedStep, its: Footprint, later: DecodedStep, mine: Footprint, outstanding: int) -> None:
    found = its.conflict(mine)
    if found is None:
        return
    kind, first, second, at = found
    where = "the NPU's internal memory" if first.region == INTERNAL else f"region {first.region}"
    wait = "DMA_WAIT" if earlier.is_dma else "KERNEL_WAIT"
    raise MissingWaitError(
        f"{later.registers.where} may start before {earlier.registers.where} has finished, and {kind}: "
        f"{second.name} meets its {first.name} at byte {at:#x} of {where}; "
        f"put {wait} {outstanding} before it"
    )
