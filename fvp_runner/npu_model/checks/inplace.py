"""Operations that write over their own input while they are still reading it.

Invariant: accepted only when every input element is overwritten by the output element that is computed from
it alone, and by no other: each element has one address in both maps. Then the order of the blocks does not
matter, since no block reads what another writes, and within a block the input is in before the output goes out. A
transfer of bytes onto themselves changes nothing in any order.
Anything else may read its own output, because hardware works block by block.
"""

from __future__ import annotations

import numpy as np

from ..errors import SelfOverwriteError
from ..spec.dma import DmaSpec
from ..spec.stream import DecodedStep, DecodedStream
from ..spec.sums import SumSpec
from .footprint import Access, footprint
from .operands import groups, is_by_element, operands


def check(program: DecodedStream) -> None:
    """`SelfOverwriteError` for the first operation whose output covers bytes of its own input."""
    for group in groups(program.steps):
        found = [(step, footprint(step, program.accelerator)) for step in group]
        for writer, its in found:
            for write in its.writes:
                for step, mine in found:
                    for read in mine.reads:
                        at = read.first_common(write)
                        if at is not None and not _element_by_element(step, writer, read):
                            whose = "its own" if step is writer else f"the chained {step.registers.where}'s"
                            raise SelfOverwriteError(
                                f"{writer.registers.where} writes its {write.name} over {whose} "
                                f"{read.name} at byte {at:#x} of region {read.region} while it still reads it; "
                                "place the two apart"
                            )


def _element_by_element(step: DecodedStep, writer: DecodedStep, read: Access) -> bool:
    """Each element that `step` reads through `read` is overwritten by the result that is computed from it alone."""
    spec, output = step.spec, writer.spec.output if not isinstance(writer.spec, DmaSpec) else None
    if isinstance(spec, DmaSpec):
        return step is writer and _is_onto_itself(spec)
    if output is None or output.axes != (0, 1, 2) or output.reverse >= 0:
        return False
    shape = output.shape
    for operand in operands(spec):
        if operand.name != read.name:
            continue
        if not (is_by_element(spec, operand) or (isinstance(spec, SumSpec) and _is_one_element(spec, shape[2]))):
            return False
        source = operand.map
        return (
            operand.shape == shape
            and source.dtype.itemsize == output.dtype.itemsize
            and np.array_equal(source.addresses(*shape), output.layout.addresses(*shape))
        )
    return False


def _is_onto_itself(spec: DmaSpec) -> bool:
    """Whether a transfer writes each byte to where it reads it: Vela emits such where a copy was left out."""
    source, target = spec.source, spec.destination
    place = (target.region, target.internal, target.start, target.strides)
    return spec.index is None and place == (source.region, source.internal, source.start, source.strides)


def _is_one_element(spec: SumSpec, depth: int) -> bool:
    return spec.window.is_one_element and not (spec.sums_channels and (spec.input.shape[2], depth) != (1, 1))
