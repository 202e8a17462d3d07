"""Registers read strictly, and the feature maps, windows and outputs that they describe.

Invariant: a value leaves this module only after it was found set and legal; every error names the operation, its stream
offset and the register. A feature map is at most four tiles, each at most two pieces (whole NHCWB16 bricks and the
rest), and a piece is a regular grid, so it is a numpy view of the region and never an index list. The padded extent of
a window is exactly (output - 1) * stride + dilated kernel, so the input's height and width, which no register holds,
follow. The limits of an output are those of the clamp as it is applied: inside the type, and of its sign.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.decode import Operation
from npu_memplan.ethosu.stream.isa import BRICK_CHANNELS, Op, Register, Rounding, ScaleRounding, TableKind, Upscale

from ..errors import IllegalValueError, UnsetRegisterError


class Registers:
    """The register file of one operation; `index` is its position among the stream's operations."""

    __slots__ = ("index", "operation")

    def __init__(self, operation: Operation, index: int) -> None:
        self.operation = operation
        self.index = index

    @property
    def op_text(self) -> str:
        """The name for messages: `operation 3 (CONV at stream offset 0x1a4)`."""
        op = self.operation
        return f"operation {self.index} ({op.op.name} at stream offset {op.offset_bytes:#x})"

    def raise_illegal(self, what: str) -> NoReturn:
        raise IllegalValueError(f"{self.op_text}: {what}")

    def raw_value(self, register: Register) -> int:
        """The unsigned value; `UnsetRegisterError` when the stream never set it."""
        try:
            return self.operation.registers[register]
        except KeyError:
            raise UnsetRegisterError(
                f"{self.op_text} needs register {register.name}, which the stream never set; "
                f"set {register.name} before the operation"
            ) from None

    def low_word(self, register: Register) -> int:
        """The 32-bit payload of a mode-1 register that has no bits above it."""
        value = self.raw_value(register)
        if value >> 32:
            self.raise_illegal(f"{register.name} = {value:#x} has bits above 32 set")
        return value

    def one_of(self, register: Register, legal: Collection[int], value: int | None = None) -> int:
        """The register (or `value`, a field of it), which must be one of `legal`."""
        value = self.raw_value(register) if value is None else value
        if value not in legal:
            self.raise_illegal(f"{register.name} = {value} is not one of {sorted(legal)}")
        return value

    def checked_bits(self, register: Register, mask: int) -> int:
        """The register, in which no bit outside `mask` may be set."""
        value = self.raw_value(register)
        if value & ~mask:
            self.raise_illegal(f"{register.name} = {value:#x} sets bits {value & ~mask:#x}, which mean nothing")
        return value

    def signed_16(self, register: Register, signed: bool) -> int:
        """A 16-bit value, two's complement when the tensor it belongs to is signed."""
        value = self.raw_value(register)
        return value - 0x10000 if signed and value & 0x8000 else value

    def scale_pair(self, register: Register) -> tuple[int, int]:
        """(multiplier, unsigned 32 bits; right shift, 0 to 63) of a scale register."""
        value = self.raw_value(register)
        shift = value >> 32
        if shift > 63:
            self.raise_illegal(f"{register.name} has shift {shift}; at most 63 is possible")
        return value & 0xFFFFFFFF, shift

    def region_number(self, register: Register) -> int:
        return self.one_of(register, range(8))

    @property
    def op(self) -> Op:
        return self.operation.op


Bytes = NDArray[np.uint8]
Interval = tuple[int, int]  # half open
Shape3 = tuple[int, int, int]
# of IFM, IFM2 and OFM, by (size, signed) in their PRECISION registers
ELEMENT_TYPES = {
    (size, signed): np.dtype(f"<{kind}{1 << size}") for size in range(4) for signed, kind in enumerate("ui")
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Part [y, y+shape[0]) x [x, x+shape[1]) x [c, ...) of a map as bytes: rows, columns, channels or bricks."""

    y: int
    x: int
    c: int
    start: int  # byte address of the first element
    stop: int  # one past the last byte
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def inner_view(self, array: NDArray[Any]) -> NDArray[Any]:
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
    def read_registers(
        regs: Registers, name: str, dtype: np.dtype[Any], brick: bool, height: int, width: int
    ) -> MapLayout:
        """The layout that the registers called `name` describe, for a map of `height` x `width`."""

        def register(suffix: str) -> Register:
            return Register[f"{name}_{suffix}"]

        width0 = regs.raw_value(register("WIDTH0_M1")) + 1
        height0 = regs.raw_value(register("HEIGHT0_M1")) + 1
        right = width > width0
        height1 = regs.raw_value(register("HEIGHT1_M1")) + 1 if right else height
        used = (True, right, height > height0, right and height > height1)
        bases = [regs.raw_value(register(f"BASE{i}")) if use else 0 for i, use in enumerate(used)]
        for i, base in enumerate(bases):
            if brick and base % BRICK_CHANNELS:
                regs.raise_illegal(f"{name}_BASE{i} = {base:#x} is not 16-byte aligned, as NHCWB16 needs")
            if base % dtype.itemsize:
                regs.raise_illegal(
                    f"{name}_BASE{i} = {base:#x} is not aligned to its elements of {dtype.itemsize} bytes"
                )
        stride_y = regs.raw_value(register("STRIDE_Y")) if height > 1 else 0
        stride_x = regs.raw_value(register("STRIDE_X")) if width > 1 and not brick else 0
        stride_c = regs.raw_value(register("STRIDE_C")) if brick else 0
        return MapLayout(
            name=name,
            region=regs.region_number(register("REGION")),
            bases=(bases[0], bases[1], bases[2], bases[3]),
            height0=height0,
            height1=height1,
            width0=width0,
            stride_y=stride_y,
            stride_x=stride_x,
            stride_c=stride_c,
            dtype=dtype,
            brick=brick,
            zero_point=regs.signed_16(register("ZERO_POINT"), dtype.kind == "i"),
        )

    def map_pieces(self, height: int, width: int, depth: int) -> tuple[Piece, ...]:
        """Pieces of the top left `height` x `width` x `depth` elements."""
        return self.box_pieces((0, height), (0, width), (0, depth))

    def element_addresses(self, height: int, width: int, depth: int) -> NDArray[np.int64]:
        """The byte address of each of the top left elements: [height, width, depth]."""
        found = np.zeros((height, width, depth), np.int64)
        for piece in self.map_pieces(height, width, depth):
            address = np.array(piece.start, np.int64)
            for count, stride in zip(piece.shape, piece.strides, strict=True):
                address = address[..., None] + np.arange(count, dtype=np.int64) * stride
            piece.inner_view(found)[...] = address
        return found

    def box_pieces(self, rows: Interval, columns: Interval, channels: Interval) -> tuple[Piece, ...]:
        """Pieces of a box of elements, half open in each direction; y, x, c count from the box's corner."""
        found: list[Piece] = []
        for right, split in ((0, self.height0), (1, self.height1)) if self.chain < 0 else ():
            x0, x1 = _span_part(columns, self.width0, right)
            for below in (0, 1):
                y0, y1 = _span_part(rows, split, below)
                if x0 < x1 and y0 < y1:
                    start = self.bases[right + 2 * below] + (y0 - split * below) * self.stride_y
                    start += (x0 - self.width0 * right) * self._column_bytes
                    for c, at, shape, strides in self._channel_runs(start, channels):
                        shape, strides = (y1 - y0, x1 - x0, *shape), (self.stride_y, self._column_bytes, *strides)
                        stop = at + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
                        stop += self.dtype.itemsize
                        found.append(Piece(y0 - rows[0], x0 - columns[0], c - channels[0], at, stop, shape, strides))
        return tuple(found)

    @property
    def _column_bytes(self) -> int:
        """Bytes from one column to the next."""
        return BRICK_CHANNELS * self.dtype.itemsize if self.brick else self.stride_x

    def _channel_runs(
        self, start: int, channels: Interval
    ) -> Iterator[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
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


def _span_part(span: Interval, split: int, far: int) -> Interval:
    """The part of a span before `split`, or (`far`) after it."""
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


# IFM alone: operand scaling (bits 8, 9) and how the scaled operand is rounded (bits 14, 15)
_IFM_MASK = {"IFM": 0b1100_0011_0100_1101, "IFM2": 0b100_1101}
MAX_KERNEL = 1 << 16


def read_type(regs: Registers, name: str) -> tuple[np.dtype[Any], bool]:
    """(element type, NHCWB16?) of IFM or IFM2."""
    register = Register[f"{name}_PRECISION"]
    precision = regs.checked_bits(register, _IFM_MASK[name])
    size = regs.one_of(register, (0, 1, 2), precision >> 2 & 3)
    regs.one_of(register, (0, 1, 2), precision >> 14)  # rounding of a scaled operand
    return ELEMENT_TYPES[size, precision & 1], bool(precision & 64)


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel geometry; heights and widths in elements."""

    height: int  # taps, without dilation
    width: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int
    upscale: Upscale
    part_kernel_first: bool
    padded_height: int
    padded_width: int

    @property
    def is_padded(self) -> bool:
        return bool(self.pad_top or self.pad_left or self.pad_bottom or self.pad_right)

    @property
    def is_one_element(self) -> bool:
        """True when output element (y, x) takes in input element (y, x) of each channel and nothing else."""
        steps = (self.height, self.width, self.stride_y, self.stride_x)
        return steps == (1, 1, 1, 1) and not self.is_padded and self.upscale is Upscale.NONE

    @property
    def unpadded_slices(self) -> tuple[slice, slice]:
        """Rows and columns of the padded extent that are not padding."""
        return (
            slice(self.pad_top, self.padded_height - self.pad_bottom),
            slice(self.pad_left, self.padded_width - self.pad_right),
        )

    @property
    def input_shape(self) -> tuple[int, int]:
        """Height and width in memory."""
        height = self.padded_height - self.pad_top - self.pad_bottom
        width = self.padded_width - self.pad_left - self.pad_right
        return (height, width) if self.upscale is Upscale.NONE else ((height + 1) // 2, (width + 1) // 2)

    @staticmethod
    def read_registers(regs: Registers, out_height: int, out_width: int) -> Window:
        r = Register
        bits = regs.checked_bits(r.KERNEL_STRIDE, 0xFFF)
        stride_x = (bits & 1 | (bits >> 6 & 7) << 1) + 1
        stride_y = (bits >> 1 & 1 | (bits >> 9 & 7) << 1) + 1
        dilation_x, dilation_y = (bits >> 3 & 1) + 1, (bits >> 4 & 1) + 1
        extents = []
        for register, dilation in ((r.KERNEL_HEIGHT_M1, dilation_y), (r.KERNEL_WIDTH_M1, dilation_x)):
            last = regs.raw_value(register)
            if last % dilation:
                regs.raise_illegal(f"{register.name} = {last} is not a dilated extent for dilation {dilation}")
            extents.append(last)
        if (extents[0] + 1) * (extents[1] + 1) > MAX_KERNEL:
            regs.raise_illegal(f"a kernel of {extents[0] + 1} x {extents[1] + 1} has more than {MAX_KERNEL} elements")
        window = Window(
            height=extents[0] // dilation_y + 1,
            width=extents[1] // dilation_x + 1,
            stride_y=stride_y,
            stride_x=stride_x,
            dilation_y=dilation_y,
            dilation_x=dilation_x,
            pad_top=regs.checked_bits(r.IFM_PAD_TOP, 0x7F),
            pad_left=regs.checked_bits(r.IFM_PAD_LEFT, 0x7F),
            pad_bottom=regs.checked_bits(r.IFM_PAD_BOTTOM, 0xFF),
            pad_right=regs.checked_bits(r.IFM_PAD_RIGHT, 0xFF),
            upscale=Upscale(regs.one_of(r.IFM_UPSCALE, (0, 1, 2))),
            part_kernel_first=bool(bits & 4),
            padded_height=(out_height - 1) * stride_y + extents[0] + 1,
            padded_width=(out_width - 1) * stride_x + extents[1] + 1,
        )
        height, width = window.input_shape
        if height < 1 or width < 1:
            regs.raise_illegal(
                f"padding {window.pad_top}/{window.pad_left}/{window.pad_bottom}/{window.pad_right} (top/left/bottom/"
                f"right) leaves no input of the {window.padded_height} x {window.padded_width} the kernel covers"
            )
        return window

    def window_patches(self, padded: NDArray[Any], out_height: int, out_width: int) -> NDArray[Any]:
        """View [out height, out width, kernel height, kernel width, channels] of a padded input."""
        sy, sx, sc = padded.strides
        return np.lib.stride_tricks.as_strided(
            padded,
            (out_height, out_width, self.height, self.width, padded.shape[2]),
            (sy * self.stride_y, sx * self.stride_x, sy * self.dilation_y, sx * self.dilation_x, sc),
            writeable=False,
        )

    @property
    def kernel_taps(self) -> Iterator[tuple[int, int]]:
        """(y, x) of each kernel element, x fastest."""
        return product(range(self.height), range(self.width))

    def tap_view(self, padded: NDArray[Any], y: int, x: int, rows: range, out_width: int) -> NDArray[Any]:
        """The input elements that kernel element (y, x) meets for output rows `rows`: a view."""
        top, left = rows.start * self.stride_y + y * self.dilation_y, x * self.dilation_x
        bottom = top + (len(rows) - 1) * self.stride_y + 1
        return padded[top : bottom : self.stride_y, left : left + (out_width - 1) * self.stride_x + 1 : self.stride_x]


class Activation(Enum):
    """ACTIVATION, low 5 bits; LUT slots are 16 and up."""

    NONE = 0
    TANH = 3
    SIGMOID = 4
    LUT = 16


_CLIP = {0: None, 2: np.dtype("u1"), 3: np.dtype("i1"), 5: np.dtype("<i2")}
LUT_BYTES = {1: 256, 2: 2048, 4: 1024}  # by bytes of an output element


@dataclass(frozen=True, slots=True)
class OutputSpec:
    layout: MapLayout
    height: int
    width: int
    depth: int
    rounding: Rounding | ScaleRounding
    global_scale: bool
    activation: Activation
    lut_slot: int
    low: int  # clamp, inclusive
    high: int
    zero_point: int  # that is added (0 when the output path adds none)
    table: TableKind = TableKind.NONE  # of a look-up that says its own types
    axes: tuple[int, int, int] = (0, 1, 2)  # of the results that are the rows, columns and channels in memory
    reverse: int = -1  # the axis that is stored backwards; -1: none
    wraps: bool = False  # values beyond the type lose their high bits, in place of the clamp
    kept: bool = False  # nothing is written: the accumulators stay for the next operation

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.layout.dtype

    @property
    def lut_bytes(self) -> int:
        """Bytes of the table the activation reads; 0 when it reads none."""
        if self.table is not TableKind.NONE:
            return self.table.size_bytes
        return LUT_BYTES[self.dtype.itemsize] if self.activation is Activation.LUT else 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels of the results."""
        return self.height, self.width, self.depth

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """Rows, columns and channels in memory; none of what is kept."""
        made = self.shape
        return (0, 0, 0) if self.kept else (made[self.axes[0]], made[self.axes[1]], made[self.axes[2]])

    def stored_box(self, box: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """The pieces of memory in which half-open rows, columns and channels of the results are."""
        if self.reverse >= 0:
            first, stop = box[self.reverse]
            extent = self.shape[self.reverse]
            turned = (extent - stop, extent - first)
            box = tuple(turned if axis == self.reverse else span for axis, span in enumerate(box))
        return tuple(box[axis] for axis in self.axes)

    @staticmethod
    def read_registers(regs: Registers) -> OutputSpec:
        r = Register
        precision = regs.checked_bits(r.OFM_PRECISION, 0b1100_0001_0100_0111)
        size = regs.one_of(r.OFM_PRECISION, (0, 1, 2), precision >> 1 & 3)
        dtype = ELEMENT_TYPES[size, precision & 1]
        rounding = Rounding(regs.one_of(r.OFM_PRECISION, (0, 1, 2), precision >> 14))
        height, width, depth = (regs.raw_value(x) + 1 for x in (r.OFM_HEIGHT_M1, r.OFM_WIDTH_M1, r.OFM_DEPTH_M1))
        layout = MapLayout.read_registers(regs, "OFM", dtype, bool(precision & 64), height, width)
        word = regs.checked_bits(r.ACTIVATION, 0x701F)
        function = word & 0x1F
        if function not in (0, 3, 4) and not 16 <= function < 24:
            regs.raise_illegal(
                f"ACTIVATION = {word:#x}: function {function} is none of 0 (none), 3, 4 and 16 to 23 (LUT)"
            )
        forced = _CLIP[regs.one_of(r.ACTIVATION, tuple(_CLIP), word >> 12)]
        activation = Activation(min(function, 16))
        clip = forced or dtype
        info = np.iinfo(clip)
        low, high, zero_point = int(info.min), int(info.max), 0
        if dtype.itemsize < 4 or forced is not None:
            # The limits are 16 bits wide and signed like the range they clamp to.
            low = max(low, regs.signed_16(r.ACTIVATION_MIN, clip.kind == "i"))
            high = min(high, regs.signed_16(r.ACTIVATION_MAX, clip.kind == "i"))
            zero_point = layout.zero_point
            if low > high:
                regs.raise_illegal(f"ACTIVATION_MIN {low} is above ACTIVATION_MAX {high}")
        return OutputSpec(
            layout=layout,
            height=height,
            width=width,
            depth=depth,
            rounding=rounding,
            global_scale=bool(precision & 256),
            activation=activation,
            lut_slot=max(function - 16, 0),
            low=low,
            high=high,
            zero_point=zero_point,
        )


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """The fields that every kernel has, whatever it computes."""

    output: OutputSpec

    @property
    def macs(self) -> int:
        """Multiply-accumulates, or elements taken in; one for each result unless a kernel overrides it."""
        return math.prod(self.output.shape)
