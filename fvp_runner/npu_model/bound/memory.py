"""The memory that operations see (regions, the shadow of what was written, the LUT memory), and DMA transfers on it.

Invariant: every view handed out is inside its region (checked when it is made), refers to the caller's bytes, and has a
shadow view of the same geometry when the caller tracks definedness. A byte that was never written stays one wherever it
is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.isa import BRICK_CHANNELS

from ..errors import OutOfRegionError, UninitialisedReadError
from ..spec.feature_maps import Bytes, MapLayout, Piece, Registers
from ..spec.operations import DmaSpec, Side, Span

Shadow = NDArray[np.bool_]
_WORD = np.dtype(np.complex128)  # 16 bytes moved as one element; never computed with


class RegionMemory:
    """Regions 0..7 (uint8, written in place) with optional shadows, and the NPU's internal memory."""

    def __init__(
        self, accelerator: Architecture, regions: Sequence[Bytes | None], defined: Sequence[Shadow | None] | None
    ) -> None:
        self.accelerator = accelerator
        self.regions = list(regions)
        self.shadows: list[Shadow | None] = list(defined) if defined is not None else [None] * len(self.regions)
        self.shadows += [None] * (len(self.regions) - len(self.shadows))
        self.shram = np.zeros(accelerator.shram_kib * 1024, np.uint8)
        self.shram_shadow = np.zeros(self.shram.size, np.bool_)
        self.chains: dict[int, NDArray[Any]] = {}  # chaining buffers: whole maps, by number
        self.accumulators: NDArray[np.int64] | None = None  # that an operation left for the next

    def reset(self) -> None:
        """Forget what the LUT memory held: it is lost between two streams."""
        self.shram_shadow[:] = False

    def checked_region(self, number: int, start: int, stop: int, regs: Registers, what: str) -> Bytes:
        """The whole region, after checking that bytes [start, stop) are inside it."""
        memory = self.regions[number] if number < len(self.regions) else None
        if memory is None:
            raise OutOfRegionError(
                f"{regs.op_text}: {what} is in region {number}, which has no memory; give the model a region {number}"
            )
        if start < 0 or stop > memory.size:
            raise OutOfRegionError(
                f"{regs.op_text}: {what} covers bytes {start:#x} to {stop:#x} of region {number}, "
                f"which has only {memory.size:#x} bytes: {max(stop - memory.size, 0):#x} bytes too far"
            )
        return memory

    def span_bytes(self, span: Span, regs: Registers) -> Bytes:
        """Constants that an operation reads."""
        stop = span.start + span.length
        return self.checked_region(span.region, span.start, stop, regs, span.name)[span.start : stop]

    def span_shadow(self, span: Span) -> Shadow | None:
        shadow = self.shadows[span.region] if span.region < len(self.shadows) else None
        return None if shadow is None else shadow[span.start : span.start + span.length]

    def require_writable(self, memory: Bytes, number: int, regs: Registers, what: str) -> None:
        """`OutOfRegionError` when the region may only be read."""
        if not memory.flags.writeable:
            raise OutOfRegionError(f"{regs.op_text}: {what} writes to region {number}, which is read-only")


def element_view(memory: Bytes, piece: Piece, dtype: np.dtype[Any]) -> NDArray[Any]:
    view: NDArray[Any] = np.ndarray(piece.shape, dtype, memory.data, piece.start, piece.strides)
    return view


def shadow_view(shadow: Shadow, piece: Piece, element: int) -> Shadow:
    """The bytes of a piece in the shadow; the last axis is contiguous."""
    shape, strides = list(piece.shape), list(piece.strides)
    shape[-1] *= element
    strides[-1] = 1
    while len(shape) > 1 and (shape[-2] == 1 or strides[-2] == shape[-1]):
        shape[-2:] = [shape[-2] * shape[-1]]
        strides[-2:] = [1]
    view: Shadow = np.ndarray(tuple(shape), np.bool_, shadow.data, piece.start, tuple(strides))
    return view


class FeatureMapAccess:
    """A feature map bound to memory: `array` is [height, width, depth] in the map's own type.

    When the map is one NHWC tile, `array` is the memory itself; else it is a scratch array that `load_values` fills and
    `store_values` writes back.
    """

    __slots__ = ("_moves", "_shadow", "_shadows", "array", "layout", "regs")

    def __init__(
        self, memory: RegionMemory, regs: Registers, layout: MapLayout, shape: tuple[int, int, int], is_write: bool
    ) -> None:
        height, width, depth = shape
        self.layout, self.regs = layout, regs
        self._moves: list[tuple[NDArray[Any], NDArray[Any]]] = []
        pieces = layout.map_pieces(height, width, depth)
        if not pieces:
            self._shadow: Any = None
            self._shadows: list[Shadow] = []
            self.array: NDArray[Any] = _chained_map(memory, regs, layout, shape, is_write)
            return
        start, stop = min(p.start for p in pieces), max(p.stop for p in pieces)
        region = memory.checked_region(layout.region, start, stop, regs, layout.name)
        if is_write:
            memory.require_writable(region, layout.region, regs, layout.name)
        element = layout.dtype.itemsize
        if len(pieces) == 1 and not layout.brick:
            self.array = element_view(region, pieces[0], layout.dtype)
        else:
            padded = (depth + BRICK_CHANNELS - 1) // BRICK_CHANNELS * BRICK_CHANNELS
            scratch = np.zeros((height, width, padded if layout.brick else depth), layout.dtype)
            self.array = scratch[:, :, :depth]
            for piece in pieces:
                if len(piece.shape) == 4:
                    shape4 = (*piece.shape[:3], element)
                    outside = np.ndarray(shape4, _WORD, region.data, piece.start, (*piece.strides[:3], 16))
                    inner = piece.inner_view(scratch)
                    inside = np.lib.stride_tricks.as_strided(
                        inner[..., : 16 // element].view(_WORD), shape4, (*inner.strides[:3], 16)
                    )
                else:
                    outside, inside = element_view(region, piece, layout.dtype), piece.inner_view(scratch)
                self._moves.append((inside, outside))
        shadow = memory.shadows[layout.region]
        self._shadow = shadow
        self._shadows = [] if shadow is None else [shadow_view(shadow, p, element) for p in pieces]

    @property
    def is_scratch(self) -> bool:
        return bool(self._moves)

    def load_values(self) -> None:
        for inside, outside in self._moves:
            np.copyto(inside, outside)

    def store_values(self) -> None:
        for inside, outside in self._moves:
            np.copyto(outside, inside)

    def check_defined(self) -> None:
        """`UninitialisedReadError` when a byte of the map was never written."""
        for view in self._shadows:
            if not view.all():
                raise unwritten_error(self.regs, self.layout, view, _first_undefined(view, self._shadow))

    def mark_defined(self) -> None:
        for view in self._shadows:
            view[...] = True


def _chained_map(
    memory: RegionMemory, regs: Registers, layout: MapLayout, shape: tuple[int, int, int], is_write: bool
) -> NDArray[Any]:
    """The map in a chaining buffer; an empty one for what is in no memory at all."""
    if is_write:
        made: NDArray[Any] = np.zeros(shape, layout.dtype)
        if layout.chain >= 0:
            memory.chains[layout.chain] = made
        return made
    found = memory.chains.get(layout.chain)
    if found is None or found.shape != shape or found.itemsize != layout.dtype.itemsize:
        regs.raise_illegal(
            f"{layout.name} is chaining buffer {layout.chain}, in which no operation before leaves "
            f"{shape[0]} x {shape[1]} x {shape[2]} elements of {layout.dtype.itemsize} bytes"
        )
    return found.view(layout.dtype)


def unwritten_error(regs: Registers, read: Span | MapLayout, shadow: Shadow, first: int) -> UninitialisedReadError:
    """The error of a read whose `shadow` is not all there, for the first time at address `first`."""
    return UninitialisedReadError(
        f"{regs.op_text}: {read.name} reads {int(np.count_nonzero(~shadow))} bytes of region {read.region} that were "
        f"never written, the first at address {first:#x}"
    )


def _first_undefined(view: Shadow, whole: Shadow) -> int:
    """Address in the region of the first byte of `view`, a view of `whole`, that is not defined."""
    missing = np.argwhere(~view) @ np.array(view.strides)
    start = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return int(missing.min()) + int(start)


class Dma:
    def __init__(self, spec: DmaSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec, self.regs = spec, regs
        self._from, self._from_shadow = self._side_views(spec.source, memory)
        self._to, self._to_shadow = self._side_views(spec.destination, memory)
        self._index, self._index_shadow = self._index_numbers(memory)
        if not spec.destination.internal:
            memory.require_writable(self._to, spec.destination.region, regs, spec.destination.name)

    def _side_views(self, side: Side, memory: RegionMemory) -> tuple[Bytes, Shadow | None]:
        shape, stop = side.touched_extent(self.spec.shape), side.stop_address(self.spec.shape)
        shadow: Shadow | None
        if side.internal:
            if stop > memory.shram.size:
                raise OutOfRegionError(
                    f"{self.regs.op_text}: {side.name} covers bytes {side.start:#x} to {stop:#x} of the NPU's internal "
                    f"memory, which has only {memory.shram.size:#x} bytes"
                )
            whole, shadow = memory.shram, memory.shram_shadow
        else:
            whole = memory.checked_region(side.region, side.start, stop, self.regs, side.name)
            shadow = memory.shadows[side.region]
        strides = (*side.strides, 1)

        def strided_view(array: NDArray[Any]) -> NDArray[Any]:
            result: NDArray[Any] = np.ndarray(shape, array.dtype, array.data, side.start, strides)
            return result

        return strided_view(whole), None if shadow is None else strided_view(shadow)

    def _index_numbers(self, memory: RegionMemory) -> tuple[NDArray[np.int32] | None, Shadow | None]:
        """The rows that an index chooses: [planes, rows], and the shadow of these bytes."""
        index = self.spec.index
        if index is None:
            return None, None
        planes, rows, _ = self.spec.shape
        stop = index.start + (planes - 1) * index.plane_stride + 4 * rows
        whole = memory.checked_region(index.region, index.start, stop, self.regs, "DMA0_IDX")
        shadow = memory.shadows[index.region]
        strides = (index.plane_stride, 4)
        numbers: NDArray[np.int32] = np.ndarray((planes, rows), "<i4", whole.data, index.start, strides)
        if shadow is None:
            return numbers, None
        return numbers, np.ndarray((planes, 4 * rows), np.bool_, shadow.data, index.start, (index.plane_stride, 1))

    def check_defined(self) -> None:
        """`UninitialisedReadError` when a number of a row was never written."""
        if self._index_shadow is not None and not self._index_shadow.all():
            raise UninitialisedReadError(f"{self.regs.op_text}: DMA0_IDX reads numbers of rows that were never written")

    def run(self) -> None:
        self._move_rows(self._to, self._from)

    def _move_rows(self, to: NDArray[Any], source: NDArray[Any]) -> None:
        index = self.spec.index
        if index is None or self._index is None:
            np.copyto(to, source)
            return
        chosen = self._index.astype(np.int64)
        if chosen.min() < 0 or chosen.max() > index.largest:
            self.regs.raise_illegal(
                f"DMA0_IDX holds row {int(chosen.max() if chosen.max() > index.largest else chosen.min())}, "
                f"but DMA0_IDX_MAX allows 0 to {index.largest}"
            )
        for plane, rows in enumerate(chosen):
            if self.spec.source.choices:
                to[plane] = source[plane][rows]
            else:
                to[plane][rows] = source[plane]

    def mark_defined(self) -> None:
        """Note of the destination what is known of the source: a byte that was never written stays one."""
        if self._to_shadow is not None:
            known: Any = self._from_shadow
            self._move_rows(self._to_shadow, np.broadcast_to(True, self._from.shape) if known is None else known)
