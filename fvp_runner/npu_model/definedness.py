"""Reads of bytes that nobody wrote.

Invariant: looks at the shadows only, never at data, and says which operation reads what.
"""

from __future__ import annotations

import numpy as np

from .convolution import Convolution
from .dma import Dma
from .elementwise import Elementwise
from .errors import UninitialisedReadError
from .footprint import internal_scratch
from .memory import Memory
from .program import Bound, Step


def check(memory: Memory, step: Step, operation: Bound) -> None:
    """`UninitialisedReadError` when the operation would read something that was never written."""
    if isinstance(operation, Dma):
        operation.check_defined()
        return
    if isinstance(operation, Elementwise):
        operation.ifm.check_defined()
        if operation.ifm2 is not None:
            operation.ifm2.check_defined()
    else:
        operation.input.map.check_defined()
    if isinstance(operation, Convolution):
        for span, shadow in operation.constants():
            if shadow is not None and not shadow.all():
                raise UninitialisedReadError(
                    f"{step.registers.where}: {span.name} reads {int(np.count_nonzero(~shadow))} bytes of region "
                    f"{span.region} that nobody wrote, the first at address {span.start + int(np.argmin(shadow)):#x}"
                )
    output = operation.output.spec
    if output.lut_bytes:
        start = memory.accelerator.lut_address + 256 * output.lut_slot
        if not memory.shram_shadow[start : start + output.lut_bytes].all():
            raise UninitialisedReadError(
                f"{step.registers.where}: ACTIVATION reads LUT slot {output.lut_slot}, which no DMA has filled"
            )


def overwrite_tables(memory: Memory, step: Step) -> None:
    """Forget look-up tables that the kernel's working memory lies over."""
    scratch = internal_scratch(step, memory.accelerator)
    if scratch is not None:
        memory.shram_shadow[scratch[0] : scratch[1]] = False
