"""Which bytes an operation reads and writes; lifting, waits and lowering all take them from here.

Invariant: the ranges are exact for feature maps (every byte of every element in the touched rectangle, no other), and
whole lengths for weights, scales, LUTs and DMA. They are int64 arrays of shape [n, 2]: ascending, disjoint, half-open,
never adjacent. An address is a pure function of one operation's registers; tiles, strides and the NHCWB16 brick layout
are honoured exactly, so two views with equal fields touch equal bytes. The OFM's extents come from its registers, those
of the inputs follow from them, the kernel (whose heights and widths are dilated extents, in elements of the possibly
upscaled input) and broadcasts; a map that is not in memory (a scalar, a chained operand) has none. The NPU model, which
checks all this, derives the same bytes by means of its own.

How many input channels a kernel of Ethos-U85 takes in at once follows regor's choice of blocks (`ethos_u85.cpp` of
ethos-u-vela 5.2.0); hazards and the estimate ask for it here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...errors import NpuMemplanError
from ..arch import Architecture, Shape
from ..arch.architecture import Language
from ..stream.decode import Content, MissingRegisterError, Operation
from ..stream.encode import chained_maps
from ..stream.fields import (
    ADDRESS_REGISTERS,
    FEATURE_MAPS,
    IFM,
    IFM2,
    OFM,
    SCALES,
    WEIGHTS,
    AccumulatorWord,
    Activation,
    DmaRegion,
    InputPrecision,
    InputWord,
    KernelStride,
    MapRegisters,
    OutputPrecision,
    OutputWord,
    Precision,
    TableWord,
    WeightRegisters,
    WeightWord,
    decode_int16,
)
from ..stream.isa import (
    BRICK_CHANNELS,
    BY_MAP,
    SHRAM_REGION,
    UNARY,
    AccumulatorInput,
    Broadcast,
    MapStorage,
    MicroBlock,
    Op,
    PoolMode,
    Register,
    StoredBackwards,
    StoredOrder,
    TableKind,
    Upscale,
)
from ..weight_order import WeightArrangement


@dataclass(frozen=True, slots=True)
class Kernel:
    """Window of a convolution or pool, in elements of the (possibly upscaled) input."""

    height: int  # dilated extents
    width: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    part_kernel_first: bool
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int

    @staticmethod
    def from_registers(op: Operation) -> Kernel:
        """The kernel registers of a CONV, DEPTHWISE or POOL."""
        return _window_kernel(*[op[register] for register in _REGISTERS])


_REGISTERS = (
    Register.KERNEL_STRIDE,
    Register.KERNEL_HEIGHT_M1,
    Register.KERNEL_WIDTH_M1,
    Register.IFM_PAD_TOP,
    Register.IFM_PAD_LEFT,
    Register.IFM_PAD_BOTTOM,
    Register.IFM_PAD_RIGHT,
)


@lru_cache(1 << 10)  # operations have few windows, and they are asked for often
def _window_kernel(stride: int, height: int, width: int, top: int, left: int, bottom: int, right: int) -> Kernel:
    """The kernel that the values of `_REGISTERS` describe."""
    return Kernel(
        height=height + 1,
        width=width + 1,
        stride_y=KernelStride.stride_y(stride),
        stride_x=KernelStride.stride_x(stride),
        dilation_y=1 + KernelStride.DILATION_Y.value_in(stride),
        dilation_x=1 + KernelStride.DILATION_X.value_in(stride),
        part_kernel_first=bool(KernelStride.PART_KERNEL_FIRST.value_in(stride)),
        pad_top=top,
        pad_left=left,
        pad_bottom=bottom,
        pad_right=right,
    )


Extents = tuple[int, int, int]  # rows, columns, channels
NOWHERE: Extents = (0, 0, 0)

_ABSENT = (MapStorage.CHAINED, MapStorage.NONE)


@dataclass(frozen=True, slots=True)
class MapRules:
    """Extents of the maps of a kernel operation in one language. `ifm2`: None when there is none at all."""

    ofm: Callable[[Operation], Extents]
    ifm: Callable[[Operation], Extents]
    ifm2: Callable[[Operation], Extents | None]
    largest_element: int  # log2 of its bytes


def is_product(op: Operation) -> bool:
    """Whether a CONV multiplies two feature maps: its weights are rows of IFM2."""
    return op.language is Language.U85 and op.op is Op.CONV and bool(op.parameter & BY_MAP)


def results(op: Operation) -> Extents:
    """Rows, columns and channels that a kernel computes, however they are stored."""
    r = Register
    return op[r.OFM_HEIGHT_M1] + 1, op[r.OFM_WIDTH_M1] + 1, op[r.OFM_DEPTH_M1] + 1


def _window(op: Operation) -> tuple[int, int]:
    """Rows and columns of the input in memory."""
    height, width, _ = results(op)
    kernel = Kernel.from_registers(op)
    height = (height - 1) * kernel.stride_y + kernel.height - kernel.pad_top - kernel.pad_bottom
    width = (width - 1) * kernel.stride_x + kernel.width - kernel.pad_left - kernel.pad_right
    if op.get(Register.IFM_UPSCALE) != Upscale.NONE:
        height, width = (height + 1) // 2, (width + 1) // 2
    return max(height, 0), max(width, 0)


def sums_depth(op: Operation) -> bool:
    """Whether every result needs all channels of the input."""
    return op.op is Op.CONV or (op.op is Op.POOL and op.parameter == PoolMode.REDUCE_SUM)


def _ifm(op: Operation) -> Extents:
    if op.op is Op.ELEMENTWISE:
        return results(op)
    height, width = _window(op)
    return height, width, op[Register.IFM_DEPTH_M1] + 1 if sums_depth(op) else results(op)[2]


def _ifm2(op: Operation) -> Extents | None:
    if op.op is not Op.ELEMENTWISE or op.parameter in UNARY:
        return None
    scalar = Broadcast.SCALAR in Broadcast(op[Register.IFM2_BROADCAST])
    return None if scalar else _broadcast_extents(op, Register.IFM2_BROADCAST)


def _u85_ofm(op: Operation) -> Extents:
    word = op[Register.OFM_PRECISION]
    if OutputWord.STORAGE.value_in(word) in _ABSENT or AccumulatorWord.NO_OUTPUT.value_in(op.get(Register.ACC_FORMAT)):
        return NOWHERE
    order = OutputWord.TRANSPOSE.value_in(word)
    axes = StoredOrder(order).axes if order in tuple(StoredOrder) else (0, 1, 2)
    made = results(op)
    return made[axes[0]], made[axes[1]], made[axes[2]]


def has_ifm_in_memory(op: Operation) -> bool:
    """Whether a kernel's first operand is in memory, and not a scalar or in a chaining buffer."""
    return op.language is not Language.U85 or InputWord.STORAGE.value_in(op[Register.IFM_PRECISION]) not in _ABSENT


def _u85_ifm(op: Operation) -> Extents:
    if not has_ifm_in_memory(op):
        return NOWHERE
    if op.op is Op.ELEMENTWISE:
        return _broadcast_extents(op, Register.IFM_BROADCAST)
    if op.op is Op.RESIZE:
        return op[Register.KERNEL_HEIGHT_M1] + 1, op[Register.KERNEL_WIDTH_M1] + 1, results(op)[2]
    return _ifm(op)


def _u85_ifm2(op: Operation) -> Extents | None:
    loads = AccumulatorWord.INPUT.value_in(op.get(Register.ACC_FORMAT)) == AccumulatorInput.IFM2
    if op.op is Op.ELEMENTWISE:
        if op.parameter in UNARY or InputWord.STORAGE.value_in(op[Register.IFM2_PRECISION]) in _ABSENT:
            return None
        return _broadcast_extents(op, Register.IFM2_BROADCAST)
    if is_product(op):
        return 1, results(op)[2], op[Register.IFM_DEPTH_M1] + 1  # a matrix of weights
    return results(op) if loads and op.op is not Op.RESIZE else None


def _broadcast_extents(op: Operation, register: Register) -> Extents:
    """Extents of an operand: of one element along the axes whose bits are set, which are the same in all languages."""
    broadcast = Broadcast(op.get(register))
    height, width, depth = results(op)
    return (
        1 if broadcast & Broadcast.HEIGHT else height,
        1 if broadcast & Broadcast.WIDTH else width,
        1 if broadcast & Broadcast.DEPTH else depth,
    )


EXTENTS: Mapping[Language, MapRules] = {
    Language.U55_U65: MapRules(results, _ifm, _ifm2, 2),
    Language.U85: MapRules(_u85_ofm, _u85_ifm, _u85_ifm2, 3),
}


Ranges = NDArray[np.int64]
NO_RANGES: Ranges = np.empty((0, 2), np.int64)


class FeatureMapError(NpuMemplanError):
    """The registers of a feature map make no sense."""


def run(start: int, length: int) -> Ranges:
    """Bytes one after the other."""
    return np.array([[start, start + length]], np.int64)


_MOST_RUNS = 1 << 22  # of one feature map: 4 million separate runs fill the largest arena


def merge_ranges(parts: Iterable[Ranges]) -> Ranges:
    """Union of ranges, each part of which is ascending, disjoint and never adjacent already. Shape [n, 2]."""
    stacked = [p for p in parts if len(p)]
    if not stacked:
        return NO_RANGES
    return stacked[0] if len(stacked) == 1 else _merge_unsorted(np.concatenate(stacked))


def _merge_unsorted(ranges: Ranges) -> Ranges:
    """Any non-empty ranges, sorted and with touching ones joined."""
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ranges[:, 1])
    starts_new = np.concatenate(([True], ranges[1:, 0] > ends[:-1]))
    first = np.flatnonzero(starts_new)
    last = np.append(first[1:], len(ranges)) - 1
    return np.stack((ranges[first, 0], ends[last]), axis=1)


def strided_ranges(base: int, run_bytes: int, dimensions: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges of `run_bytes` at base + sum(i_d * stride_d) for every index; dimensions are (count, stride)."""
    loops: list[tuple[int, int]] = []
    if run_bytes <= 0:
        return NO_RANGES
    for count, stride in sorted(dimensions, key=lambda d: abs(d[1])):
        if count <= 0:
            return NO_RANGES
        if count == 1:
            continue
        if not loops and 0 <= stride <= run_bytes:
            run_bytes += (count - 1) * stride
        else:
            loops.append((count, stride))
    if math.prod(count for count, _ in loops) > _MOST_RUNS:
        extents = " x ".join(str(count) for count, _ in loops)
        raise FeatureMapError(f"a feature map of {extents} separate runs fits no memory: the stream is damaged")
    starts, extent, apart = np.array([base], np.int64), run_bytes, True
    for count, stride in loops:  # ascending strides: runs stay in order while each loop clears the one inside it
        apart &= stride > extent
        extent += (count - 1) * stride
        starts = (np.arange(count, dtype=np.int64)[:, None] * stride + starts).ravel()
    ranges = np.empty((len(starts), 2), np.int64)
    ranges[:, 0] = starts
    ranges[:, 1] = starts + run_bytes
    return ranges if apart else _merge_unsorted(ranges)


def share_byte(first: Ranges, second: Ranges) -> bool:
    """Whether two ascending lists of disjoint half-open ranges [n, 2] share a byte."""
    if not len(first) or not len(second):
        return False
    if first[-1, 1] <= second[0, 0] or second[-1, 1] <= first[0, 0]:
        return False
    if len(first) == 1 and len(second) == 1:
        return True
    if len(first) > len(second):
        first, second = second, first
    # For each range of `first`: the last range of `second` that starts before it ends must end before it starts.
    index = np.searchsorted(second[:, 0], first[:, 1], side="left") - 1
    return bool(np.any((index >= 0) & (second[np.maximum(index, 0), 1] > first[:, 0])))


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
    signed = bool(Precision.SIGNED.value_in(precision))
    code = (OutputPrecision if registers is OFM else InputPrecision).SIZE.value_in(precision)
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
        brick=bool(Precision.BRICK.value_in(precision)),
        zero_point=decode_int16(op.get(registers.zero_point), signed),
        height=height,
        width=width,
        depth=depth,
    )


PART_KERNEL_SLICE = 16


def is_sparse(op: Operation) -> bool:
    """Two weights of every four are zero, and not stored."""
    return op.op is Op.CONV and not is_product(op) and bool(WeightWord.SPARSE.value_in(op.get(Register.WEIGHT_FORMAT)))


def is_wide(op: Operation) -> bool:
    """Sums of 48 bits."""
    return bool(AccumulatorWord.FORMAT.value_in(op.get(Register.ACC_FORMAT)))


def micro_block(op: Operation, accelerator: Architecture) -> Shape:
    """The micro-block that ACC_FORMAT names; where the configuration has no such micro-block, its first."""
    code = AccumulatorWord.MICRO_BLOCK.value_in(op.get(Register.ACC_FORMAT))
    if code in tuple(MicroBlock):
        plane = MicroBlock(code).plane
        for shape in accelerator.micro_blocks:
            if (shape.height, shape.width) == plane:
                return shape
    return accelerator.micro_blocks[0]


def deep_slice(op: Operation, accelerator: Architecture) -> int:
    """Input channels of one pass, depth first."""
    bits = 8 << InputWord.SIZE.value_in(op[Register.IFM_PRECISION])
    return slice_depth(accelerator, micro_block(op, accelerator), bits, is_sparse(op), False)


def slice_depth(accelerator: Architecture, micro: Shape, bits: int, sparse: bool, part_kernel: bool) -> int:
    """Input channels of one pass over elements of `bits`."""
    if part_kernel:
        return PART_KERNEL_SLICE
    if bits == 32 or (accelerator.cores == 1 and micro.depth == 16 and not sparse):
        return 32
    return 128 if sparse and bits == 8 else 64


def weight_arrangement(op: Operation, accelerator: Architecture) -> WeightArrangement:
    """The order of the weights of a CONV or DEPTHWISE whose blocks are chosen."""
    word = op[Register.KERNEL_STRIDE]
    bits = 8 << InputWord.SIZE.value_in(op[Register.IFM_PRECISION])
    depthwise = op.op is Op.DEPTHWISE
    part = bool(KernelStride.PART_KERNEL_FIRST.value_in(word)) and not depthwise
    micro, sparse = micro_block(op, accelerator), is_sparse(op)
    return WeightArrangement(
        op[Register.OFM_BLK_DEPTH_M1] + 1,
        micro.depth,
        slice_depth(accelerator, micro, bits, sparse, part),
        bits,
        depthwise,
        part,
        sparse,
        (KernelStride.stride_y(word), KernelStride.stride_x(word)),
        (1 + KernelStride.DILATION_Y.value_in(word), 1 + KernelStride.DILATION_X.value_in(word)),
    )


_FIXED_POOLS = (PoolMode.NONE, PoolMode.ARGMAX_Y)


def is_indivisible(op: Operation) -> bool:
    """Whether an Ethos-U85 kernel can be cut neither by rows nor by channels."""
    if op.language is not Language.U85 or op.op is Op.DMA_START:
        return False
    output = op[Register.OFM_PRECISION]
    return (
        is_product(op)
        or bool(OutputWord.TRANSPOSE.value_in(output) or OutputWord.REVERSE.value_in(output))
        or is_fixed(op)
    )


def is_fixed(op: Operation) -> bool:
    """Whether an Ethos-U85 kernel's blocks stay as its compiler chose them: kernels of chains, with accumulators kept
    or loaded, with channels stored backwards or bricks in another order, and those that native lowering never makes.
    """
    if op.op is Op.DMA_START:
        return False
    accumulators, output = op.get(Register.ACC_FORMAT), op[Register.OFM_PRECISION]
    kept = AccumulatorWord.INPUT.value_in(accumulators) or AccumulatorWord.NO_OUTPUT.value_in(accumulators)
    in_bricks = OutputWord.BRICK.value_in(output) and (
        OutputWord.TRANSPOSE.value_in(output) or OutputWord.REVERSE.value_in(output)
    )
    turned = in_bricks or OutputWord.REVERSE.value_in(output) == StoredBackwards.C
    odd = op.op is Op.RESIZE or InputWord.SIZE.value_in(op[Register.IFM_PRECISION]) > 2
    pool = op.op is Op.POOL and op.parameter in _FIXED_POOLS
    return bool(kept or turned or odd or pool or chained_maps(op) or OutputWord.STORAGE.value_in(output))


class AccessError(NpuMemplanError):
    """The registers of an operation do not describe accesses that can be enumerated."""


class Role(Enum):
    """Why an operation touches memory."""

    IFM = "ifm"
    IFM2 = "ifm2"
    OFM = "ofm"
    WEIGHTS = "weights"
    SCALES = "scales"
    LUT = "lut"
    DMA_SRC = "dma_src"
    DMA_DST = "dma_dst"
    DMA_INDEX = "dma_index"
    DMA_KEPT = "dma_kept"  # what a transfer may leave as it is, of the bytes that it may write

    __hash__ = object.__hash__  # each member is one object; that of Enum is written in Python


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One contiguous use of one region."""

    role: Role
    region: int  # 0..7, or SHRAM_REGION for memory inside the NPU
    parts: tuple[tuple[Register | None, Ranges], ...]  # register (LUT: None), bytes addressed by it; several for tiles
    is_write: bool

    @property
    def ranges(self) -> Ranges:
        """All bytes touched: ascending disjoint half-open ranges, int64 [n, 2]."""
        return merge_ranges(part for _, part in self.parts)


_LUT_BYTES = {1: 256, 2: 2048, 4: 1024}  # by bytes of an OFM element
_SLOT_BYTES = 256


def lut_index(op: Operation) -> int | None:
    """LUT slot (of 256 bytes) that a kernel's activation reads from; None when it uses no table."""
    found = lut_span(op)
    return None if found is None else found[0] // _SLOT_BYTES


def lut_span(op: Operation) -> tuple[int, int] | None:
    """(first byte after slot 0, bytes) of the table that a kernel's activation reads; None when it uses none."""
    word = op.get(Register.ACTIVATION)
    if op.language is Language.U85:
        kind = TableWord.FUNCTION.value_in(word)
        size = TableKind(kind).size_bytes if kind in tuple(TableKind) else 0
        return (TableWord.TABLE.value_in(word) * size, size) if size else None
    slot = Activation.table(word)
    if slot is None:
        return None
    code = OutputPrecision.SIZE.value_in(op.get(Register.OFM_PRECISION))
    return _SLOT_BYTES * slot, _LUT_BYTES.get(1 << code, 0)


def accesses(op: Operation, accelerator: Architecture) -> tuple[Access, ...]:
    """All accesses of one operation: reads first, then writes."""
    if op.op is Op.DMA_START:
        return _operation_accesses(op, accelerator)
    try:
        at_zero = _kernel_at_zero(op.content(ADDRESS_REGISTERS), tuple(op.registers), accelerator)
    except AccessError:
        return _operation_accesses(op, accelerator)  # its error names the stream offset
    return tuple(
        Access(a.role, a.region, tuple((r, s if r is None else s + op.get(r)) for r, s in a.parts), a.is_write)
        for a in at_zero
    )


@lru_cache(1 << 13)
def _kernel_at_zero(content: Content, names: tuple[Register, ...], accelerator: Architecture) -> tuple[Access, ...]:
    """The accesses of a kernel that sets the registers `names`, every base address 0. `content` has no addresses:
    candidates have most of their kernels in common, so the cache answers for most.
    """
    kernel = Operation.from_content(content)
    return _operation_accesses(
        kernel.with_registers({name: 0 for name in names if name not in kernel.registers}), accelerator
    )


def _operation_accesses(op: Operation, accelerator: Architecture) -> tuple[Access, ...]:
    try:
        if op.op is Op.DMA_START:
            return _dma(op)
        return _kernel_accesses(op, accelerator)
    except (FeatureMapError, MissingRegisterError) as error:
        raise AccessError(str(error)) from None


def _dma(op: Operation) -> tuple[Access, ...]:
    """The accesses of a transfer: one run of bytes; on Ethos-U85 also rows and planes. Indices are in memory and
    unknown here, so an indexed transfer accesses every row that exists.
    """
    r = Register
    source, target, length = op[r.DMA0_SRC_REGION], op[r.DMA0_DST_REGION], op[r.DMA0_LEN]
    for name, region in (("DMA0_SRC_REGION", source), ("DMA0_DST_REGION", target)):
        if op.language is Language.U55_U65 and region & ~(
            DmaRegion.INTERNAL.word_with(1) | DmaRegion.REGION.word_with(7)
        ):
            raise AccessError(
                f"DMA_START at stream offset {op.offset_bytes:#x}: {name} = {region:#x} selects a 2D/3D transfer, "
                "which no supported compiler emits; only 1D transfers are supported"
            )
    dimensions = DmaRegion.DIMENSIONS.value_in(source)
    if DmaRegion.INTERNAL.value_in(source):
        raise AccessError(f"DMA_START at stream offset {op.offset_bytes:#x} reads from inside the NPU")
    gathers, scatters = bool(DmaRegion.INDEXED.value_in(source)), bool(DmaRegion.INDEXED.value_in(target))
    rows = op[r.DMA0_SIZE0] if dimensions > 0 else 1
    planes = op[r.DMA0_SIZE1] if dimensions > 1 else 1
    choices = op[r.DMA0_IDX_MAX] + 1 if gathers or scatters else 0

    def side_ranges(base: Register, indexed: bool, near: Register, far: Register) -> Ranges:
        inner = op[near] if dimensions > 0 or indexed else 0
        count = choices if indexed else rows
        return strided_ranges(op[base], length, ((count, inner), (planes, op[far] if dimensions > 1 else 0)))

    where = SHRAM_REGION if DmaRegion.INTERNAL.value_in(target) else DmaRegion.REGION.value_in(target)
    read = side_ranges(r.DMA0_SRC, gathers, r.DMA0_SRC_STRIDE0, r.DMA0_SRC_STRIDE1)
    written = side_ranges(r.DMA0_DST, scatters, r.DMA0_DST_STRIDE0, r.DMA0_DST_STRIDE1)
    found = [Access(Role.DMA_SRC, DmaRegion.REGION.value_in(source), ((r.DMA0_SRC, read),), False)]
    if gathers or scatters:
        apart = op.get(r.DMA0_IDX_SKIP1) if dimensions > 1 else 0
        index = strided_ranges(op[r.DMA0_IDX], INDEX_BYTES * rows, ((planes, INDEX_BYTES * rows + apart),))
        found.append(Access(Role.DMA_INDEX, op[r.DMA0_IDX_REGION], ((r.DMA0_IDX, index),), False))
    if scatters:
        found.append(Access(Role.DMA_KEPT, where, ((r.DMA0_DST, written),), False))
    found.append(Access(Role.DMA_DST, where, ((r.DMA0_DST, written),), True))
    return tuple(found)


INDEX_BYTES = 4  # of one index of an indexed transfer


def _kernel_accesses(op: Operation, accelerator: Architecture) -> tuple[Access, ...]:
    source = _feature_map(Role.IFM, FeatureMap.ifm(op), False)
    found = [_first_byte(source) if _ignores_input(op) else source]
    second = FeatureMap.ifm2(op)
    if second is not None:
        found.append(_feature_map(Role.IFM2, second, False))
    for role, streams in constant_streams(op, accelerator):
        parts = [(s.base, run(op[s.base], op[s.length])) for s in streams if op[s.length]]
        if parts:
            found.append(Access(role, op[streams[0].region], tuple(parts), False))
    table = lut_span(op)
    if table is not None:
        start = accelerator.lut_address + table[0]
        found.append(Access(Role.LUT, SHRAM_REGION, ((None, run(start, table[1])),), False))
    found.append(_feature_map(Role.OFM, FeatureMap.ofm(op), True))
    return tuple(found)


def _ignores_input(op: Operation) -> bool:
    """Whether results are the accumulators loaded from IFM2, and IFM only gives addresses and extents."""
    loads = AccumulatorWord.INPUT.value_in(op.get(Register.ACC_FORMAT)) == AccumulatorInput.IFM2
    return op.language is Language.U85 and op.op is Op.POOL and op.parameter == PoolMode.NONE and loads


def _first_byte(access: Access) -> Access:
    """The access without its elements: its first byte, which ties the bases of a feature map to its buffer."""
    parts = tuple((register, run(int(ranges[0, 0]), 1)) for register, ranges in access.parts)
    return Access(access.role, access.region, parts, access.is_write)


_Constants = Iterator[tuple[Role, tuple[WeightRegisters, ...]]]


def _constant_accesses(op: Operation, accelerator: Architecture) -> _Constants:
    if op.op in (Op.CONV, Op.DEPTHWISE):
        cores = min(2, accelerator.cores) if op.get(Register.PARALLEL_MODE) else 1
        yield Role.WEIGHTS, WEIGHTS[:cores]
        yield Role.SCALES, SCALES[:cores]


def _u85_constants(op: Operation, accelerator: Architecture) -> _Constants:
    """The fast format has one stream for all cores; scales are one table always."""
    if op.op in (Op.CONV, Op.DEPTHWISE) and not is_product(op):
        yield (
            Role.WEIGHTS,
            WEIGHTS[: 1 if WeightWord.FAST.value_in(op.get(Register.WEIGHT_FORMAT)) else accelerator.cores],
        )
    if op.op not in (Op.ELEMENTWISE, Op.RESIZE) and not OutputWord.GLOBAL_SCALE.value_in(op[Register.OFM_PRECISION]):
        yield Role.SCALES, SCALES[:1]


_CONSTANTS = {Language.U55_U65: _constant_accesses, Language.U85: _u85_constants}


def constant_streams(op: Operation, accelerator: Architecture) -> _Constants:
    """Weights and scales that a kernel reads: their role, and the registers of each stream."""
    return _CONSTANTS[op.language](op, accelerator)


def _feature_map(role: Role, view: FeatureMap, is_write: bool) -> Access:
    parts = tuple(
        (view.base_register(tile), view.tile_ranges(view.bases[tile], 0, rows, columns, (0, view.depth)))
        for tile, rows, columns in view.tiles(view.height, view.width)
    )
    return Access(role, view.region, parts, is_write)
