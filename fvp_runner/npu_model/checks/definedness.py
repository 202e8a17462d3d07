"""Uses of bytes that were never written.

Invariant: looks at the shadows only, never at data, and says which operation uses what. Moving bytes is no use
of them: a transfer (whose length compilers round up) takes along what is undefined, as undefined. A kernel uses
the elements of its inputs, its whole weight stream, ten bytes a channel of its scale table and its look-up table.
"""

from __future__ import annotations

import numpy as np

from ..bound.dma import Dma
from ..bound.memory import RegionMemory, unwritten
from ..bound.operation import Bound
from ..bound.sums import WindowKernel
from ..errors import UninitialisedReadError
from ..spec.stream import DecodedStep
from .footprint import internal_scratch, table


def check(memory: RegionMemory, step: DecodedStep, operation: Bound) -> None:
    """`UninitialisedReadError` when the operation would read something that was never written."""
    if isinstance(operation, Dma):
        operation.check_defined()
        return
    for read in operation.maps:
        read.check_defined()
    if isinstance(operation, WindowKernel):
        for span, shadow in operation.constants():
            if not shadow.all():
                raise unwritten(step.registers, span, shadow, span.start + int(np.argmin(shadow)))
    output = operation.output.spec
    lookup = table(output, memory.accelerator)
    if lookup is not None and not memory.shram_shadow[lookup[0] : lookup[1]].all():
        missing = int(np.count_nonzero(~memory.shram_shadow[lookup[0] : lookup[1]]))
        raise UninitialisedReadError(
            f"{step.registers.where}: ACTIVATION reads LUT slot {output.lut_slot}, of which no DMA has filled "
            f"{missing} bytes"
        )


def overwrite_tables(memory: RegionMemory, step: DecodedStep) -> None:
    """Forget look-up tables that the kernel's working memory lies over."""
    scratch = internal_scratch(step, memory.accelerator)
    if scratch is not None:
        memory.shram_shadow[scratch[0] : scratch[1]] = False
