"""Kernels that only Ethos-U85 has, appended to a program.

Invariant: as in `emit`; layers of these kernels say so in `Layer.unsupported_by`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..program.access import INDEX_BYTES
from ..schedule.rams import resize_layout
from ..stream.fields import IFM2, DmaRegion, OutputWord, ScaledWord
from ..stream.isa import (
    BY_MAP,
    PLACE_BITS,
    RESIZE_BITS,
    Op,
    PoolMode,
    ResizeKind,
    ScaleRounding,
    StoredBackwards,
    StoredOrder,
)
from ..stream.isa import Register as R
from .emit import Builder
from .operands import Operand, Output, Positions, Window
from .scaling import UNITY, Scale
from .views import TensorView


def multiply_maps(builder: Builder, ifm: Operand, rows: Operand, ofm: Operand, output: Output) -> None:
    """CONV whose weights for channel i are row i of `rows`: [1, channels of `ofm`, those of `ifm`]."""
    registers, addresses = builder.common(ifm, ofm, Window(), output)
    builder.map(registers, addresses, IFM2, rows)
    registers[R.IFM2_PRECISION] = rows.precision
    builder.add(Op.CONV, BY_MAP, registers, addresses, wide=ifm.bits == 16)


def store_in_order(
    builder: Builder,
    ifm: Operand,
    ofm: Operand,
    order: StoredOrder = StoredOrder.HWC,
    backwards: StoredBackwards = StoredBackwards.NONE,
) -> None:
    """POOL that moves stored values: axis i of `ofm` is axis `order.axes[i]` of `ifm`.

    One of the axes of `ifm` may be stored backwards.
    """
    registers, addresses = builder.common(ifm, ofm, Window(), _stored(ofm))
    extents = (R.OFM_HEIGHT_M1, R.OFM_WIDTH_M1, R.OFM_DEPTH_M1)
    registers |= {extent: size - 1 for extent, size in zip(extents, ifm.view.shape, strict=True)}
    place = OutputWord.TRANSPOSE.at(order) | OutputWord.REVERSE.at(backwards)
    builder.add(Op.POOL, PoolMode.MAX, registers, addresses, place=place)


def find_maxima(builder: Builder, ifm: Operand, ofm: Operand) -> None:
    """POOL: the first column of each row's and channel's maximum, as int32."""
    window, limits = Window((1, ifm.shape.width)), (-(1 << 31), (1 << 31) - 1)
    registers, addresses = builder.common(ifm, ofm, window, Output(limits, UNITY))
    registers |= {R.IFM_DEPTH_M1: ofm.shape.depth - 1}
    scale = Scale(1, PLACE_BITS).register | ScaledWord.ROUNDING.at(ScaleRounding.TRUNCATE_TO_LOWER)
    builder.add(Op.POOL, PoolMode.ARGMAX_X, registers, addresses, scale=scale)


def resize(
    builder: Builder,
    kind: ResizeKind,
    ifm: Operand,
    ofm: Operand,
    axes: tuple[Positions, Positions],
    rounding: ScaleRounding,
) -> None:
    """RESIZE of stored values; those that are mixed are divided by the product of the numerators."""
    registers, addresses = builder.common(ifm, ofm, None, _stored(ofm))
    rows, columns = axes
    divisor = rows.numerator * columns.numerator if kind is ResizeKind.BILINEAR else 1
    fits = resize_layout(builder.accelerator, ifm.bits, ofm.shape.width, columns.numerator, columns.step)
    scale = Scale(1, RESIZE_BITS + divisor.bit_length() - 1).register | ScaledWord.ROUNDING.at(rounding)
    registers |= {R.KERNEL_HEIGHT_M1: ifm.shape.height - 1, R.KERNEL_WIDTH_M1: ifm.shape.width - 1}
    registers |= {R.IFM2_ZERO_POINT: 0}
    registers |= columns.registers("X", fits.block.width) | rows.registers("Y", fits.block.height)
    builder.add(Op.RESIZE, kind, registers, addresses, scale=scale, layout=fits.registers)


@dataclass(frozen=True, slots=True)
class Rows:
    """Planes of rows of `row` bytes that follow each other, from the start of `view` on."""

    view: TensorView
    row: int
    plane: int  # bytes from plane to plane


def move_rows(
    builder: Builder,
    source: Rows,
    chosen: tuple[TensorView, int, int],
    made: Rows,
    counts: tuple[int, int],
    scatters: bool = False,
) -> None:
    """DMA of planes of rows (`counts`), one of `source` for each index of `chosen`, or to one of `made` where it
    `scatters`. `chosen`: the indices, which are below a number, and the bytes of one; those after the lower four are 0.
    """
    (indices, extent, index_bytes), (planes, rows) = chosen, counts
    registers = {
        R.DMA0_SRC_REGION: DmaRegion.INDEXED.at(not scatters) | DmaRegion.DIMENSIONS.at(2 if planes > 1 else 1),
        R.DMA0_DST_REGION: DmaRegion.INDEXED.at(scatters),
        R.DMA0_SIZE0: rows,
        R.DMA0_LEN: source.row,
        R.DMA0_SRC_STRIDE0: source.row,
        R.DMA0_DST_STRIDE0: made.row,
        R.DMA0_IDX_MAX: extent - 1,
    }
    if planes > 1:
        registers |= {
            R.DMA0_SIZE1: planes,
            R.DMA0_SRC_STRIDE1: source.plane,
            R.DMA0_DST_STRIDE1: made.plane,
            R.DMA0_IDX_SKIP1: rows * (index_bytes - INDEX_BYTES),
        }
    addresses = {
        register: (view.buffer, view.offset)
        for register, view in ((R.DMA0_SRC, source.view), (R.DMA0_DST, made.view), (R.DMA0_IDX, indices))
    }
    builder.transfer(registers, addresses)


def _stored(ofm: Operand) -> Output:
    """Values of `ofm` as they are."""
    limits = np.iinfo(ofm.dtype)
    return Output((int(limits.min), int(limits.max)), UNITY)
