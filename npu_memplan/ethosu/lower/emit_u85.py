"""Operations that only Ethos-U85 has, appended to a program.

Invariant: as in `emit`; layers of these kernels say so in `Layer.unsupported_by`. `axes` of the target are those of
the source in their order, neither is in bricks, and both have their last dimension's elements one after the other;
each value is moved once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

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
from .operands import Operand, Output, Positions, TensorView, Window
from .scaling import UNITY, Scale


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
    """POOL that moves stored values: axis i of `ofm` is axis `order.axes[i]` of `ifm`, one perhaps backwards."""
    registers, addresses = builder.common(ifm, ofm, Window(), _unscaled_output(ofm))
    extents = (R.OFM_HEIGHT_M1, R.OFM_WIDTH_M1, R.OFM_DEPTH_M1)
    registers |= {extent: size - 1 for extent, size in zip(extents, ifm.view.shape, strict=True)}
    place = OutputWord.TRANSPOSE.word_with(order) | OutputWord.REVERSE.word_with(backwards)
    builder.add(Op.POOL, PoolMode.MAX, registers, addresses, place=place)


def find_maxima(builder: Builder, ifm: Operand, ofm: Operand) -> None:
    """POOL: the first column of each row's and channel's maximum, as int32."""
    window, limits = Window((1, ifm.shape.width)), (-(1 << 31), (1 << 31) - 1)
    registers, addresses = builder.common(ifm, ofm, window, Output(limits, UNITY))
    registers |= {R.IFM_DEPTH_M1: ofm.shape.depth - 1}
    scale = Scale(1, PLACE_BITS).register | ScaledWord.ROUNDING.word_with(ScaleRounding.TRUNCATE_TO_LOWER)
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
    registers, addresses = builder.common(ifm, ofm, None, _unscaled_output(ofm))
    rows, columns = axes
    divisor = rows.numerator * columns.numerator if kind is ResizeKind.BILINEAR else 1
    fits = resize_layout(builder.accelerator, ifm.bits, ofm.shape.width, columns.numerator, columns.step)
    scale = Scale(1, RESIZE_BITS + divisor.bit_length() - 1).register | ScaledWord.ROUNDING.word_with(rounding)
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
        R.DMA0_SRC_REGION: DmaRegion.INDEXED.word_with(not scatters)
        | DmaRegion.DIMENSIONS.word_with(2 if planes > 1 else 1),
        R.DMA0_DST_REGION: DmaRegion.INDEXED.word_with(scatters),
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


def _unscaled_output(ofm: Operand) -> Output:
    """Values of `ofm` as they are."""
    limits = np.iinfo(ofm.dtype)
    return Output((int(limits.min), int(limits.max)), UNITY)


_ORDERS = {order.axes: order for order in StoredOrder}


@dataclass(frozen=True, slots=True)
class _Axis:
    """A dimension of the source: its extent, bytes from element to element in both, and its place in the target."""

    size: int
    read: int
    written: int
    place: int


def permute(builder: Builder, source: TensorView, target: TensorView, axes: tuple[int, ...], dtype: str) -> None:
    """Append the operations by which dimension i of `target` becomes dimension `axes[i]` of `source`."""
    for a, b, order in _map_moves(source, target, axes):
        store_in_order(builder, Operand(a, dtype), Operand(b, dtype), order)


def operations(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """How many operations `permute` appends for a dense tensor of `shape`."""
    source = TensorView.dense("", shape, 1)
    target = TensorView.dense("", tuple(shape[axis] for axis in axes), 1)
    return sum(1 for _ in _map_moves(source, target, axes))


def _map_moves(
    source: TensorView, target: TensorView, axes: tuple[int, ...]
) -> Iterator[tuple[TensorView, TensorView, StoredOrder]]:
    """Views as [H, W, C] of both, and how the second is stored."""
    found = _join_axes(source, target, axes)
    last = max(found, key=lambda axis: axis.place)
    outer = [axis for axis in found[:-1] if axis is not last]
    outer = sorted(outer, key=lambda axis: axis.size)[: max(0, len(found) - 3)]  # what the NPU has no axis for
    inner = [axis for axis in found if axis not in outer]
    inner = [_Axis(1, 0, 0, -1)] * (3 - len(inner)) + inner
    stored = sorted(range(3), key=lambda i: inner[i].place)
    for places in product(*(range(axis.size) for axis in outer)):
        read = sum(place * axis.read for place, axis in zip(places, outer, strict=True))
        written = sum(place * axis.written for place, axis in zip(places, outer, strict=True))
        yield (
            _view(source, source.offset + read, [(axis.size, axis.read) for axis in inner]),
            _view(target, target.offset + written, [(inner[i].size, inner[i].written) for i in stored]),
            _ORDERS[stored[0], stored[1], stored[2]],
        )


def _view(whole: TensorView, offset: int, axes: list[tuple[int, int]]) -> TensorView:
    shape, strides = zip(*axes, strict=True)
    return TensorView(whole.buffer, offset, shape, strides, whole.element_bytes)


def _join_axes(source: TensorView, target: TensorView, axes: tuple[int, ...]) -> list[_Axis]:
    """The source's dimensions in their order, without those of one element; those contiguous in both are joined."""
    places = {axis: place for place, axis in enumerate(axes)}
    found: list[_Axis] = []
    for axis, (size, read) in enumerate(zip(source.shape, source.strides, strict=True)):
        if size == 1:
            continue
        mine = _Axis(size, read, target.strides[places[axis]], places[axis])
        before = found[-1] if found else None
        if before is not None and _follow(before, mine, source.shape, axes):
            found[-1] = _Axis(before.size * size, read, mine.written, mine.place)
        else:
            found.append(mine)
    return found or [_Axis(1, source.element_bytes, target.element_bytes, 0)]


def _follow(before: _Axis, after: _Axis, shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether two dimensions of the source that follow each other do so in the target, without gaps in either."""
    between = axes[before.place + 1 : after.place]
    together = before.place < after.place and all(shape[axis] == 1 for axis in between)
    return together and (before.read, before.written) == (after.size * after.read, after.size * after.written)
