"""Where the elements of a feature map are: registers to strided pieces of a region.

Invariant: a feature map is at most four tiles, each at most two pieces (whole NHCWB16 bricks and
the rest), and a piece is a regular grid, so it is a numpy view of the region and never an index list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import BRICK_CHANNELS, Register

from .registers import Registers

Bytes = NDArray[np.uint8]
Interval = tuple[int, int]  # half open
Shape3 = tuple[int, int, int]
# of IFM, IFM2 and OFM, by (size, signed) in their PRECISION registers
ELEMENT_TYPES = {
    (size, signed): np.dtype(f"<{kind}{1 << size}") for size in range(4) for signed, kind in enumerate("ui")
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Part [y, y+shape[0]) x [x, x+shape[1]) x [c, ...) of a feature map, as a grid of bytes.

    `shape`/`strides` (bytes) are rows, columns, channels or rows, columns, bricks, 16 channels.
    """

    y: int
    x: int
    c: int
    start: int  # byte address of the first element
    stop: int  # one past the last byte
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def inner(self, array: NDArray[Any]) -> NDArray[Any]:
        """The part of a [rows, columns, channels] array that this piece fills, in the piece's shape."""
        rows, columns = self.shape[:2]
        channels = self.shape[2] if len(self.shape) == 3 else self.shape[2] * BRICK_CHANNELS
        part = array[self.y : self.y + rows, self.x : self.x + columns, self.c : self.c + channels]
        if len(self.shape) == 3:
            return part
        strides = (*part.strides[:2], part.strides[2] * BRICK_CHANNELS, part.strides[2])
        return np.lib.stride_tricks.as_strided(part, self.shape, strides)


@dataclass(frozen=True, slots=True)
class MapLayout:
    """The layout of IFM, IFM2 or OFM in its region."""

    name: str
    region: int
    bases: tuple[int, int, int, int]  # tiles: top left, top right, bottom left, bottom right
    height0: int  # rows of the top left tile
    height1: int  # rows of the top right tile
    width0: int  # columns of the left tiles
    stride_y: int
    stride_x: int
    stride_c: int
    dtype: np.dtype[Any]
    brick: bool
    zero_point: int
    chain: int = -1  # the chaining buffer that it is in instead of a region; -1: none

    @staticmethod
    def read(regs: Registers, name: str, dtype: np.dtype[Any], brick: bool, height: int, width: int) -> MapLayout:
        """The layout that the registers called `name` describe, for a map of `height` x `width`.

        Only registers that such a map makes use of must be set.
        """

        def register(suffix: str) -> Register:
            return Register[f"{name}_{suffix}"]

        width0 = regs.raw(register("WIDTH0_M1")) + 1
        height0 = regs.raw(register("HEIGHT0_M1")) + 1
        right = width > width0
        height1 = regs.raw(register("HEIGHT1_M1")) + 1 if right else height
        used = (True, right, height > height0, right and height > height1)
        bases = [regs.raw(register(f"BASE{i}")) if use else 0 for i, use in enumerate(used)]
        for i, base in enumerate(bases):
            if brick and base % BRICK_CHANNELS:
                regs.illegal(f"{name}_BASE{i} = {base:#x} is not 16-byte aligned, as NHCWB16 needs")
            if base % dtype.itemsize:
                regs.illegal(f"{name}_BASE{i} = {base:#x} is not aligned to its elements of {dtype.itemsize} bytes")
        stride_y = regs.raw(register("STRIDE_Y")) if height > 1 else 0
        stride_x = regs.raw(register("STRIDE_X")) if width > 1 and not brick else 0
        stride_c = regs.raw(register("STRIDE_C")) if brick else 0
        return MapLayout(
            name=name,
            region=regs.region(register("REGION")),
            bases=(bases[0], bases[1], bases[2], bases[3]),
            height0=height0,
            height1=height1,
            width0=width0,
            stride_y=stride_y,
            stride_x=stride_x,
            stride_c=stride_c,
            dtype=dtype,
            brick=brick,
            zero_point=regs.signed16(register("ZERO_POINT"), dtype.kind == "i"),
        )

    def pieces(self, height: int, width: int, depth: int) -> tuple[Piece, ...]:
        """Pieces of the top left `height` x `width` x `depth` elements."""
        return self.block((0, height), (0, width), (0, depth))

    def addresses(self, height: int, width: int, depth: int) -> NDArray[np.int64]:
        """The byte address of each of the top left elements: [height, width, depth]."""
        found = np.zeros((height, width, depth), np.int64)
        for piece in self.pieces(height, width, depth):
            address = np.array(piece.start, np.int64)
            for count, stride in zip(piece.shape, piece.strides, strict=True):
                address = address[..., None] + np.arange(count, dtype=np.int64) * stride
            piece.inner(found)[...] = address
        return found

    def block(self, rows: Interval, columns: Interval, channels: Interval) -> tuple[Piece, ...]:
        """Pieces of a box of elements, half open in each direction; y, x, c count from the box's corner."""
        found: list[Piece] = []
        for right, split in ((0, self.height0), (1, self.height1)) if self.chain < 0 else ():
            x0, x1 = _part(columns, self.width0, right)
            for below in (0, 1):
                y0, y1 = _part(rows, split, below)
                if x0 < x1 and y0 < y1:
                    start = self.bases[right + 2 * below] + (y0 - split * below) * self.stride_y
                    start += (x0 - self.width0 * right) * self._column
                    for c, at, shape, strides in self._runs(start, channels):
                        shape, strides = (y1 - y0, x1 - x0, *shape), (self.stride_y, self._column, *strides)
                        stop = at + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
                        stop += self.dtype.itemsize
                        found.append(Piece(y0 - rows[0], x0 - columns[0], c - channels[0], at, stop, shape, strides))
        return tuple(found)

    @property
    def _column(self) -> int:
        """Bytes from one column to the next."""
        return BRICK_CHANNELS * self.dtype.itemsize if self.brick else self.stride_x

    def _runs(self, start: int, channels: Interval) -> Iterator[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
        """First channel, address, extents and strides of each regular part of the channels at `start`."""
        element, (c, stop) = self.dtype.itemsize, channels
        if not self.brick:
            yield c, start + c * element, (stop - c,), (element,)
            return
        while c < stop:
            brick, lane = divmod(c, BRICK_CHANNELS)
            at = start + brick * self.stride_c + lane * element
            whole = (stop - c) // BRICK_CHANNELS if lane == 0 else 0
            count = whole * BRICK_CHANNELS or min(stop - c, BRICK_CHANNELS - lane)
            yield c, at, *(((whole, BRICK_CHANNELS), (self.stride_c, element)) if whole else ((count,), (element,)))
            c += count


def _part(span: Interval, split: int, far: int) -> Interval:
    """What of a span is before `split`, or (`far`) after it."""
    return (max(span[0], split), span[1]) if far else (span[0], min(span[1], split))


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input: a map, a chained map, or a scalar."""

    name: str
    dtype: np.dtype[Any]
    zero_point: int
    layout: MapLayout | None  # None: a scalar
    shape: Shape3  # after broadcasting is undone
    scalar: int = 0

    @property
    def map(self) -> MapLayout:
        """The layout of what is no scalar."""
        assert self.layout is not None
        return self.layout
