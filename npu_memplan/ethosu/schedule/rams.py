"""What blocks an Ethos-U85 operation may have: its micro-blocks, and the RAMs for input, accumulators and output.

Invariant: a `RamLayout` exists only where the RAMs hold the blocks that Arm's compiler would put there: two of a
convolution, of windows of single channels one and a row of the next. Source: regor's choice of blocks (`ethos_u85.cpp`
of ethos-u-vela 5.2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..arch import Architecture, BlockRams, Shape
from ..program.access import slice_depth
from ..stream.decode import Operation
from ..stream.fields import AccumulatorWord
from ..stream.isa import MicroBlock
from ..stream.isa import Register as R
from .shram import BlockKind, BlockWork, block_registers, ceil_div, input_extent, round_up

DEPTH_UNIT = 16  # channels of accumulators
_CHAINS = 6  # parts of the chaining buffer, one of which holds what is broadcast
_CODES = {code.plane: code for code in MicroBlock}


@dataclass(frozen=True, slots=True)
class RamLayout:
    """An OFM block and the micro-block that it is made of."""

    block: Shape
    ifm_block: Shape
    micro: Shape

    def registers(self, operation: Operation) -> dict[R, int]:
        """The registers of `operation` that say so."""
        mask = AccumulatorWord.MICRO_BLOCK.word_with((1 << AccumulatorWord.MICRO_BLOCK.width) - 1)
        code = AccumulatorWord.MICRO_BLOCK.word_with(_CODES[self.micro.height, self.micro.width])
        return {**block_registers(self.block), R.ACC_FORMAT: operation.get(R.ACC_FORMAT) & ~mask | code}


def micro_blocks(accelerator: Architecture, work: BlockWork) -> Iterator[Shape]:
    """The micro-blocks that an operation may have."""
    small, one = accelerator.cores == 1, work.kernel_height == work.kernel_width == 1
    for micro in accelerator.micro_blocks:
        deep = micro.depth == DEPTH_UNIT
        if work.kind is BlockKind.PRODUCT:
            legal = not deep if small else micro.depth == accelerator.micro_blocks[0].depth
        elif work.kind is BlockKind.CONV:
            legal = not (small and deep) or (work.ifm_bits == 16 and one and not work.part_kernel)
        elif work.kind is BlockKind.REDUCE_SUM:
            legal = deep != small
        elif work.kind is BlockKind.ELEMENTWISE:
            legal = True
        else:
            legal = deep if not small or work.ifm_bits == 8 else not deep
        if legal:
            yield micro


def ram_layout(accelerator: Architecture, work: BlockWork, block: Shape, micro: Shape, spare: bool) -> RamLayout | None:
    """The layout of `work` in OFM blocks of `block`; None when it does not fit or is no legal block.

    `spare`: there is room for the next block of the input, or for its first rows.
    """
    units = Shape(micro.height, micro.width, max(micro.depth, DEPTH_UNIT))
    if any(not size or size % unit for size, unit in zip(block.extents, units.extents, strict=True)):
        return None
    stored = (block.extents[axis] for axis in work.order)
    if any(size > most for size, most in zip(stored, accelerator.max_block.extents, strict=True)):
        return None
    assert accelerator.rams is not None
    if work.kind is BlockKind.ELEMENTWISE:
        fits = _elementwise_fits(accelerator.rams, work, block, micro)
        return RamLayout(block, block, micro) if fits else None
    return _with_windows(accelerator, accelerator.rams, work, block, micro, spare)


def resize_layout(accelerator: Architecture, bits: int, width: int, numerator: int, step: int) -> RamLayout:
    """The layout of a RESIZE of columns that are `step / numerator` apart: one row and brick of as many columns as the
    chaining buffer has the input of.
    """
    assert accelerator.rams is not None
    micro = min(accelerator.micro_blocks, key=lambda shape: shape.depth)
    bricks = accelerator.rams.chaining_bytes // _CHAINS // (DEPTH_UNIT * bits // 8)
    most = min(ceil_div((bricks - 2) * numerator + 1, step), accelerator.max_block.width)
    columns = min(most, round_up(width, micro.width))
    block = Shape(1, columns // micro.width * micro.width or max(columns, 1), DEPTH_UNIT)
    return RamLayout(block, block, micro)


def _elementwise_fits(rams: BlockRams, work: BlockWork, block: Shape, micro: Shape) -> bool:
    """A row of the block is in the output RAM; what is broadcast along the channels, or the rows, is kept apart."""
    size = work.ifm_bits // 8
    if block.width * block.depth * size > rams.output_bytes:
        return False
    bricks = rams.chaining_bytes // _CHAINS // (DEPTH_UNIT * size)
    rows, _, channels = work.broadcast
    if channels:
        return block.height * block.width <= bricks
    return not rows or micro.height * block.width * block.depth // DEPTH_UNIT <= bricks


def _with_windows(
    accelerator: Architecture, rams: BlockRams, work: BlockWork, block: Shape, micro: Shape, spare: bool
) -> RamLayout | None:
    sums = work.kind in (BlockKind.CONV, BlockKind.PRODUCT, BlockKind.REDUCE_SUM)
    depth = slice_depth(accelerator, micro, work.ifm_bits, work.sparse, work.part_kernel) if sums else block.depth
    unit = rams.input_unit(micro, depth, work.ifm_bits)

    def source(height: int) -> Shape:
        return Shape(
            round_up(input_extent(accelerator, work, height, work.stride_y, work.kernel_height), unit.height),
            round_up(input_extent(accelerator, work, block.width, work.stride_x, work.kernel_width), unit.width),
            round_up(min(depth, work.ifm.depth) if sums else depth, unit.depth),
        )

    whole = source(block.height)
    elements = whole.elements
    copies = 1
    if work.kind in (BlockKind.CONV, BlockKind.PRODUCT):
        copies = 2 if spare else 1
        elements *= copies
    elif spare and any(ceil_div(a, b) > 1 for a, b in zip(work.ofm.extents, block.extents, strict=True)):
        elements += source(micro.height).elements
    accumulators = block.area * round_up(block.depth, DEPTH_UNIT) * (8 if work.wide else 4) * copies
    if elements * work.ifm_bits // 8 > rams.input_bytes or accumulators > rams.accumulator_bytes:
        return None
    return RamLayout(block, whole, micro)
