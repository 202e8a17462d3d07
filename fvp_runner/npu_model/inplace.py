"""Operations that write over their own input while they are still reading it.

Invariant: accepted only when every input element that is overwritten is overwritten by the output
element computed from it alone: element-wise operations and 1x1 pools whose input and output lie on
the very same addresses. Hardware works block by block, so anything else reads its own output.
"""

from __future__ import annotations

from npu_memplan.ethosu.stream.isa import PoolMode

from .dma import DmaSpec
from .elementwise import ElementwiseSpec
from .errors import SelfOverwriteError
from .footprint import Access, Footprint, footprint
from .pooling import PoolingSpec
from .program import Program, Step


def check(program: Program) -> None:
    """`SelfOverwriteError` for the first operation whose output covers bytes of its own input."""
    for step in program.steps:
        mine = footprint(step, program.accelerator)
        for write in mine.writes:
            for read in mine.reads:
                at = read.first_common(write)
                if at is not None and not _element_by_element(step, read, mine):
                    raise SelfOverwriteError(
                        f"{step.registers.where} writes its {write.name} over its own {read.name} at byte {at:#x} of "
                        f"region {read.region} while it still reads it; place the two apart"
                    )


def _element_by_element(step: Step, read: Access, mine: Footprint) -> bool:
    spec = step.spec
    if isinstance(spec, DmaSpec) or read.grids != mine.writes[0].grids:
        return False
    if isinstance(spec, ElementwiseSpec):
        return True
    if not isinstance(spec, PoolingSpec) or spec.mode is PoolMode.REDUCE_SUM:
        return False
    window = spec.window
    return (window.height, window.width, window.stride_y, window.stride_x) == (1, 1, 1, 1)
