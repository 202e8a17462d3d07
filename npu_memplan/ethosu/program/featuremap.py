"""Feature maps of an operation: where every element of IFM, IFM2 and OFM is.

Invariant: an address is a pure function of one operation's registers; tiles, strides and the
NHCWB16 brick layout are honoured exactly, so two views with equal fields touch equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..stream.commands import Operation
from ..stream.fields import InputPrecision, OutputPrecision, Precision, signed16
from ..stream.groups import FEATURE_MAPS, IFM, IFM2, OFM, MapRegisters
from ..stream.isa import BRICK_CHANNELS, Register
from .extents import EXTENTS, NOWHERE, Extents
from .ranges import FeatureMapError, Ranges, merge_ranges, strided_ranges


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """Typed view of the IFM, IFM2 or OFM registers of one operation.

    `height`, `width`, `depth` are the extents the operation touches, in elements of memory: the
    OFM's come from its registers, the inputs' follow from the OFM, the kernel and the broadcasts.
    """

    name: str  # "IFM", "IFM2" or "OFM"
    region: int
    bases: tuple[int, int, int, int]  # byte addresses of tiles top-left, top-right, bottom-left, bottom-right
    height0: int  # rows of the left top tile
    height1: int  # rows of the right top tile
    width0: int  # columns of the left tiles
    stride_x: int  # bytes
    stride_y: int
    stride_c: int
    element_bytes: int
    signed: bool
    brick: bool  # NHCWB16
    zero_point: int
    height: int
    width: int
    depth: int

    @staticmethod
    def ofm(op: Operation) -> FeatureMap:
        """The output of a kernel operation; without elements when it is not in memory."""
        return _view(op, OFM, EXTENTS[op.language].ofm(op))

    @staticmethod
    def ifm(op: Operation) -> FeatureMap:
        """The (first) input of a kernel operation; without elements when it is not in memory."""
        return _view(op, IFM, EXTENTS[op.language].ifm(op))

    @staticmethod
    def ifm2(op: Operation) -> FeatureMap | None:
        """The second input of an operation; None when there is none in memory."""
        extents = EXTENTS[op.language].ifm2(op)
        return None if extents is None else _view(op, IFM2, extents)

    def tiles(self, height: int, width: int) -> tuple[tuple[int, int, int], ...]:
        """Tiles that rows [0, height) and columns [0, width) fall into: (tile index, rows, columns)."""
        found = []
        for column, (columns, split) in enumerate(
            ((min(width, self.width0), self.height0), (width - self.width0, self.height1))
        ):
            for row, rows in enumerate((min(height, split), height - split)):
                if rows > 0 and columns > 0:
                    found.append((2 * row + column, rows, columns))
        return tuple(found)

    def span(self) -> tuple[int, int]:
        """Bytes from the lowest to the highest one touched, half-open: cheap, and never too small."""
        low, high = 1 << 62, 0
        outer = (-(-self.depth // BRICK_CHANNELS) - 1) * self.stride_c if self.brick else 0
        step = BRICK_CHANNELS * self.element_bytes if self.brick else self.stride_x
        run = min(self.depth, BRICK_CHANNELS) if self.brick else self.depth
        for tile, rows, columns in self.tiles(self.height, self.width):
            base = self.bases[tile]
            low = min(low, base)
            end = base + (rows - 1) * self.stride_y + (columns - 1) * step + outer + run * self.element_bytes
            high = max(high, end)
        return (low, high) if high else (0, 0)

    def ranges(self, depth: int | None = None) -> Ranges:
        """Bytes of all elements, or of those of the first `depth` channels, merged; [n, 2]."""
        return self.box_ranges((0, self.height), (0, self.width), (0, self.depth if depth is None else depth))

    def box_ranges(self, rows: tuple[int, int], columns: tuple[int, int], channels: tuple[int, int]) -> Ranges:
        """Bytes of the elements in half-open rows, columns and channels, merged; [n, 2]."""
        parts = []
        for right in (0, 1):
            x0, x1 = (max(columns[0], self.width0), columns[1]) if right else (columns[0], min(columns[1], self.width0))
            split = self.height1 if right else self.height0
            for below in (0, 1):
                y0, y1 = (max(rows[0], split), rows[1]) if below else (rows[0], min(rows[1], split))
                if y0 < y1 and x0 < x1:
                    y, x = y0 - below * split, x0 - right * self.width0
                    base = self.bases[2 * below + right] + y * self.stride_y
                    parts.append(self.tile_ranges(base, x, y1 - y0, x1 - x0, channels))
        return merge_ranges(parts)

    def tile_ranges(self, base: int, x: int, height: int, width: int, channels: tuple[int, int]) -> Ranges:
        """Bytes of the half-open `channels` of `height` x `width` elements, from column `x` on of a row at `base`."""
        size, (first, last) = self.element_bytes, channels
        if not self.brick:
            base += x * self.stride_x + first * size
            return strided_ranges(base, (last - first) * size, ((height, self.stride_y), (width, self.stride_x)))
        brick_bytes = BRICK_CHANNELS * size
        grid = ((height, self.stride_y), (width, brick_bytes))
        base += x * brick_bytes
        # A leading part of a brick, whole bricks, a trailing part.
        head = min(last, -(-first // BRICK_CHANNELS) * BRICK_CHANNELS)
        tail = max(head, last - last % BRICK_CHANNELS)
        parts = []
        for start, stop in ((first, head), (tail, last)):
            brick, lane = divmod(start, BRICK_CHANNELS)
            parts.append(strided_ranges(base + brick * self.stride_c + lane * size, (stop - start) * size, grid))
        count = (tail - head) // BRICK_CHANNELS
        whole = base + head // BRICK_CHANNELS * self.stride_c
        parts.append(strided_ranges(whole, brick_bytes if count else 0, (*grid, (count, self.stride_c))))
        return merge_ranges(parts)

    def base_register(self, tile: int) -> Register:
        """The register that holds the base address of `tile` (0..3)."""
        return FEATURE_MAPS[self.name].bases[tile]


def _view(op: Operation, registers: MapRegisters, extents: Extents) -> FeatureMap:
    height, width, depth = extents
    precision = op[registers.precision]
    signed = bool(Precision.SIGNED.of(precision))
    code = (OutputPrecision if registers is OFM else InputPrecision).SIZE.of(precision)
    if code > EXTENTS[op.language].largest_element:
        raise FeatureMapError(
            f"{op.op.name} at stream offset {op.offset_bytes:#x}: {registers.precision.name} = {precision:#x} has no "
            "element size"
        )
    first, second, third, fourth = registers.bases
    # Bases and strides that are still at reset value (never written) are 0; the rest must have been set.
    needed = op.get if extents == NOWHERE else op.__getitem__
    return FeatureMap(
        name=registers.name,
        region=needed(registers.region),
        bases=(op.get(first), op.get(second), op.get(third), op.get(fourth)),
        height0=needed(registers.height0) + 1,
        height1=needed(registers.height1) + 1,
        width0=needed(registers.width0) + 1,
        stride_x=op.get(registers.stride_x),
        stride_y=op.get(registers.stride_y),
        stride_c=op.get(registers.stride_c),
        element_bytes=1 << code,
        signed=signed,
        brick=bool(Precision.BRICK.of(precision)),
        zero_point=signed16(op.get(registers.zero_point), signed),
        height=height,
        width=width,
        depth=depth,
    )
