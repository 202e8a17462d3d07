"""Operations that write over their own input while they are still reading it.

Invariant: accepted only when every input element is overwritten by the output element that is computed from
it alone, and by no other: each element has one address in both maps. Then the order of the blocks does not
matter, since no block reads what another writes, and within a block the input is in before the output goes out.
Anything else may read its own output, because hardware works block by block.
"""

from __future__ import annotations

import numpy as np

from npu_memplan.ethosu.stream.isa import PoolMode

from ..errors import SelfOverwriteError
from ..spec.convolution import ConvolutionSpec
from ..spec.dma import DmaSpec
from ..spec.elementwise import ElementwiseSpec
from ..spec.layout import MapLayout
from ..spec.pooling import PoolingSpec
from ..spec.stream import DecodedStep, DecodedStream
from .footprint import Access, footprint


def check(program: DecodedStream) -> None:
    """`SelfOverwriteError` for the first operation whose output covers bytes of its own input."""
    for step in program.steps:
        mine = footprint(step, program.accelerator)
        for write in mine.writes:
            for read in mine.reads:
                at = read.first_common(write)
                if at is not None and not _element_by_element(step, read):
                    raise SelfOverwriteError(
                        f"{step.registers.where} writes its {write.name} over its own {read.name} at byte {at:#x} of "
                        f"region {read.region} while it still reads it; place the two apart"
                    )


def _element_by_element(step: DecodedStep, read: Access) -> bool:
    spec = step.spec
    if isinstance(spec, DmaSpec) or read.name not in ("IFM", "IFM2"):
        return False
    shape = (spec.output.height, spec.output.width, spec.output.depth)
    source: MapLayout | None = spec.ifm
    if isinstance(spec, ElementwiseSpec):
        if read.name == "IFM2":
            source = spec.ifm2
            if spec.ifm2_shape != shape:
                return False
    elif not spec.window.is_one_element or (_sums_channels(spec) and (spec.ifm_depth, shape[2]) != (1, 1)):
        return False
    assert source is not None
    target = spec.output.layout
    return source.dtype.itemsize == spec.output.dtype.itemsize and np.array_equal(
        source.addresses(*shape), target.addresses(*shape)
    )


def _sums_channels(spec: ConvolutionSpec | PoolingSpec) -> bool:
    return not spec.depthwise if isinstance(spec, ConvolutionSpec) else spec.mode is PoolMode.REDUCE_SUM
