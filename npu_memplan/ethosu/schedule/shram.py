"""How an operation's blocks share the NPU's internal SHRAM: IB_END, IFM2_IB_START, AB_START, ACC_FORMAT.

Invariant: SHRAM is banks of 1 KiB: two output banks, then the IFM blocks (double buffered), ...,
the accumulators (double buffered) below the LUT banks. A `ShramLayout` exists only when nothing
overlaps; every number follows from the accelerator, the OFM block and the operation's shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..arch import BANK_BYTES, Architecture, Shape
from ..stream.decode import Operation
from ..stream.isa import AccFormat, Upscale
from ..stream.isa import Register as R

_OUTPUT_BANKS = 2
_LUT_BANKS = 2


class BlockKind(Enum):
    """What decides the use of SHRAM."""

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
    assert granules is not None, "blocks are chosen for NPUs whose SHRAM registers hand out"
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
