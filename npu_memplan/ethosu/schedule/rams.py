"""What blocks an operation may have, and how they share the NPU's internal memory: SHRAM, or the RAMs of Ethos-U85.

Invariant: SHRAM is banks of 1 KiB: two output banks, then the IFM blocks (double buffered), ..., the accumulators
(double buffered) below the LUT banks. A `ShramLayout` exists only when nothing overlaps; every number follows from the
accelerator, the OFM block and the operation's shape. A `RamLayout` exists only where the RAMs of Ethos-U85 hold the
blocks that Arm's compiler would put there: two of a convolution, of windows of single channels one and a row of the
next. Source: regor's choice of blocks (`ethos_u85.cpp` of ethos-u-vela 5.2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ..arch import BANK_BYTES, Architecture, BlockRams, Shape
from ..program.access import slice_depth
from ..stream.decode import Operation
from ..stream.fields import AccumulatorWord
from ..stream.isa import AccFormat, MicroBlock, Upscale
from ..stream.isa import Register as R

_OUTPUT_BANKS = 2
_LUT_BANKS = 2


class BlockKind(Enum):
    """The features that decide the use of SHRAM."""

    CONV = "conv"  # all IFM channels feed each OFM channel; also REDUCE_SUM
    PRODUCT = "product"  # of two maps: a CONV whose weights are IFM2
    DEPTHWISE = "depthwise"  # IFM and OFM channels are the same; also pools
    POOL = "pool"
    REDUCE_SUM = "reduce_sum"
    ELEMENTWISE = "elementwise"


@dataclass(frozen=True, slots=True)
class BlockWork:
    """All of one operation that its block configuration depends on."""

    kind: BlockKind
    ifm: Shape
    ofm: Shape
    ifm_bits: int = 8
    kernel_height: int = 1  # dilated extents
    kernel_width: int = 1
    stride_y: int = 1
    stride_x: int = 1
    upscale: Upscale = Upscale.NONE
    part_kernel: bool = False
    uses_lut: bool = False
    second_operand: bool = False  # elementwise: IFM2 is read from memory
    scaled: bool = True  # 16-bit convolutions that rescale need wide accumulators
    # of Ethos-U85
    wide: bool = False  # accumulators of 48 bits
    sparse: bool = False  # two of four weights are zero at least
    broadcast: tuple[bool, bool, bool] = (False, False, False)  # along rows, columns and channels of an input
    order: tuple[int, int, int] = (0, 1, 2)  # axes of the result that are the rows, columns and channels in memory


@dataclass(frozen=True, slots=True)
class ShramLayout:
    """Register values, and the block they are for."""

    block: Shape  # OFM block
    ifm_block: Shape
    ib_end: int
    ifm2_ib_start: int
    ab_start: int
    acc_format: AccFormat

    def registers(self, operation: Operation) -> dict[R, int]:
        """The registers of `operation` that say so."""
        changes = {
            **block_registers(self.block),
            R.IFM_IB_END: self.ib_end,
            R.AB_START: self.ab_start,
            R.ACC_FORMAT: int(self.acc_format),
        }
        if R.IFM2_IB_START in operation.registers:
            changes[R.IFM2_IB_START] = self.ifm2_ib_start
        return changes


def block_registers(block: Shape) -> dict[R, int]:
    """The registers of an OFM block."""
    return {
        R.OFM_BLK_HEIGHT_M1: block.height - 1,
        R.OFM_BLK_WIDTH_M1: block.width - 1,
        R.OFM_BLK_DEPTH_M1: block.depth - 1,
    }


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def input_extent(accelerator: Architecture, work: BlockWork, out: int, stride: int, kernel: int) -> int:
    """Rows or columns of the IFM that `out` of an OFM block need."""
    upscale = 1 if work.upscale is Upscale.NONE else 2
    extra = 1 if work.upscale is Upscale.NEAREST else 0
    return ceil_div((out - 1) * stride + min(kernel, accelerator.sub_kernel) + extra, upscale)


def ifm_block(accelerator: Architecture, work: BlockWork, block: Shape) -> Shape:
    """The IFM elements that one OFM block needs, in whole micro-blocks."""
    micro = accelerator.ofm_micro

    def extent(out: int, stride: int, kernel: int, unit: int) -> int:
        return round_up(input_extent(accelerator, work, out, stride, kernel), unit)

    if work.kind in (BlockKind.CONV, BlockKind.REDUCE_SUM):
        if work.ifm_bits == 16:
            depth = round_up(min(work.ifm.depth, 16), 4)
        else:
            depth = round_up(min(work.ifm.depth, 16 if work.part_kernel else 32), 8)
    else:
        depth = block.depth
    return Shape(
        extent(block.height, work.stride_y, work.kernel_height, micro.height),
        extent(block.width, work.stride_x, work.kernel_width, micro.width),
        depth,
    )


def layout(accelerator: Architecture, work: BlockWork, block: Shape) -> ShramLayout | None:
    """The SHRAM layout of `work` in OFM blocks of `block`; None when it does not fit or is no legal block."""
    micro = accelerator.ofm_micro
    limits = zip(block.extents, accelerator.max_block.extents, micro.extents, strict=True)
    if any(not 0 < size <= most or size % unit for size, most, unit in limits):
        return None
    granules = accelerator.granules
    assert granules is not None, "only NPUs whose registers divide SHRAM have this layout"
    wide = work.ifm_bits == 16 and work.kind is not BlockKind.POOL and work.scaled
    acc_bits, acc_granule = (40, granules.acc40) if wide else (32, granules.acc32)

    source = ifm_block(accelerator, work, block)
    ifm_bytes = source.area * round_up(source.depth * work.ifm_bits // 8, 8)
    ifm_banks = round_up(ceil_div(ifm_bytes, BANK_BYTES) * 2, granules.ifm_granule(work.ifm_bits))
    top = accelerator.shram_kib - (_LUT_BANKS if work.uses_lut or accelerator.lut_reserved else 0)
    ib_end = _OUTPUT_BANKS + ifm_banks
    ifm2_start = ib_end
    if work.kind is BlockKind.ELEMENTWISE:
        if ifm2_start + (ifm_banks if work.second_operand else 0) > top:
            return None
        ib_end = ab_start = top
    else:
        # a one-row OFM never fills the second row of a two-row micro-block: no accumulators for it
        height = block.height
        if work.ofm.height == 1 and work.kernel_height == 1 and micro.height == 2:
            height = 1
        acc_bytes = height * block.width * round_up(block.depth, 8) * acc_bits // 8
        ab_start = top - round_up(ceil_div(acc_bytes, BANK_BYTES) * 2, acc_granule)
        if ib_end > ab_start:
            return None
    return ShramLayout(block, source, ib_end, ifm2_start, ab_start, AccFormat.INT40 if wide else AccFormat.INT32)


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
    """The layout of `work` in OFM blocks of `block`; None: no room, also for `spare` input rows, or not legal."""
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
    """The layout of a RESIZE of columns `step / numerator` apart: a row and brick of all columns in the buffer."""
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
