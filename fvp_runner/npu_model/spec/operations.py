"""The meaning of each operation's registers: here those of Ethos-U55 and U65, in `u85` those of Ethos-U85.

Invariant: a CONV, DEPTHWISE or POOL has one weight stream, one scale table and one order of weights for each core that
takes part; only a sum over the depth has an input depth of its own, and one output channel. Scales that an ELEMENTWISE
does not use are identities, whatever their registers hold. A DMA_START is a list of equally long rows; 1D transfers,
the only ones compilers emit, have one. 2D and 3D transfers follow their description (rows of DMA0_LEN bytes, DMA0_SKIP0
bytes left out after each row, DMA0_SKIP1 after each plane, on the side whose region register selects it) and are not
verified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.isa import (
    AccumulatorInput,
    Broadcast,
    ElementwiseMode,
    Op,
    PoolMode,
    Register,
    Rounding,
    ScaleRounding,
)

from ..arithmetic.rescale import Scale
from ..arithmetic.weights import WeightOrder
from .feature_maps import InputSpec, KernelSpec, MapLayout, OutputSpec, Registers, Window, read_type


@dataclass(frozen=True, slots=True)
class Span:
    """Constant bytes an operation reads: a weight stream or a scale table."""

    name: str
    region: int
    start: int
    length: int

    @staticmethod
    def read_registers(regs: Registers, name: str, suffix: str = "", is_used: bool = True) -> Span:
        """WEIGHT or SCALE of the core that `suffix` names."""
        length = regs.low_word(Register[f"{name}{suffix}_LENGTH"]) if is_used else 0
        base = regs.raw_value(Register[f"{name}{suffix}_BASE"]) if length else 0
        return Span(f"{name}{suffix}", regs.region_number(Register[f"{name}_REGION"]), base, length)


@dataclass(frozen=True, slots=True)
class SumSpec(KernelSpec):
    """Sums, or the like, over windows of the input."""

    window: Window
    input: InputSpec
    pool: PoolMode | None  # None: with weights. An average is divided by how many elements are inside the input
    depthwise: bool
    sums_channels: bool  # every result needs all channels of the input
    slice_depth: int  # input channels of one job, where a kernel sums over them
    accumulator_bits: int  # 32, 40 or 48
    scale: Scale  # of all channels, where no table has one for each
    weights: tuple[Span, ...] = ()  # one for each stream
    scales: tuple[Span, ...] = ()  # tables, of every n-th channel each
    record: tuple[int, int] = (5, 32)  # of a table: bytes of the bias, bits of the scale
    orders: tuple[WeightOrder, ...] = ()  # of every n-th output channel each
    fast: bool = False  # the format of the weights
    matrix: InputSpec | None = None  # weights that come from IFM2
    loaded: InputSpec | None = None  # accumulators that come from IFM2
    start: AccumulatorInput = AccumulatorInput.RESET

    @property
    def ignores_input(self) -> bool:
        """The results are the accumulators from IFM2; IFM is there for its extents."""
        return self.pool is PoolMode.NONE and self.loaded is not None

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """All of them that take part."""
        first = None if self.ignores_input else self.input
        return tuple(found for found in (first, self.matrix, self.loaded) if found is not None)

    @property
    def macs(self) -> int:
        deep = self.input.shape[2] if self.sums_channels else 1
        return math.prod(self.output.shape) * self.window.height * self.window.width * deep


def input_depth(regs: Registers, pool: PoolMode | None, output: OutputSpec) -> tuple[int, bool]:
    """Channels of the input, and whether every result needs all of them."""
    if pool is PoolMode.REDUCE_SUM and output.depth != 1:
        regs.raise_illegal(f"OFM_DEPTH_M1 = {output.depth - 1}, but a sum over the depth has one channel")
    sums = regs.op is Op.CONV or pool is PoolMode.REDUCE_SUM
    return regs.raw_value(Register.IFM_DEPTH_M1) + 1 if sums else output.depth, sums


def read_sum(regs: Registers, accelerator: Architecture) -> SumSpec:
    r, pool = Register, None
    if regs.op is Op.POOL:
        if regs.operation.parameter not in (0, 1, 2):
            regs.raise_illegal(
                f"POOL mode {regs.operation.parameter} is none of 0 (MAX), 1 (AVERAGE) and 2 (REDUCE_SUM)"
            )
        pool = PoolMode(regs.operation.parameter)
    output = OutputSpec.read_registers(regs)
    window = Window.read_registers(regs, output.height, output.width)
    dtype, brick = read_type(regs, "IFM")
    depth, sums = input_depth(regs, pool, output)
    if dtype.itemsize > 2 and pool is not PoolMode.REDUCE_SUM:
        regs.raise_illegal("IFM_PRECISION selects 32-bit input, which only REDUCE_SUM takes")
    ifm = MapLayout.read_registers(regs, "IFM", dtype, brick, *window.input_shape)
    source = InputSpec("IFM", dtype, ifm.zero_point, ifm, (*window.input_shape, depth))
    bits = 40 if regs.one_of(r.ACC_FORMAT, (0, 1)) else 32
    slice_depth = 16 if window.part_kernel_first or dtype.itemsize == 2 else 32
    scaled = output.global_scale and pool is not PoolMode.MAX
    scale = Scale.single_scale(*(regs.scale_pair(r.OFM_SCALE) if scaled else (1, 0)), output.rounding)
    if pool is PoolMode.AVERAGE and not window.is_padded:
        pool = PoolMode.SUM  # whose scale divides
    depthwise = regs.op is Op.DEPTHWISE
    if pool is not None:
        return SumSpec(output, window, source, pool, depthwise, sums, slice_depth, bits, scale)
    parallel = 2 if accelerator.cores == 2 and regs.one_of(r.PARALLEL_MODE, (0, 1)) else 1
    block = regs.raw_value(r.OFM_BLK_DEPTH_M1) + 1
    weights, scales, orders = [], [], []
    for core in range(parallel):
        suffix, channels = "1" if core else "", -(-(output.depth - core) // parallel)
        weights.append(Span.read_registers(regs, "WEIGHT", suffix, channels > 0))
        scales.append(Span.read_registers(regs, "SCALE", suffix, channels > 0))
        core_block = -(-(block - core) // parallel)
        if core_block < 1:
            regs.raise_illegal(f"OFM_BLK_DEPTH_M1 = {block - 1} leaves core {core} no channels")
        orders.append(
            WeightOrder(
                kernel_height=window.height,
                kernel_width=window.width,
                dilation_y=window.dilation_y,
                dilation_x=window.dilation_x,
                ifm_depth=1 if depthwise else depth,
                ofm_depth=channels,
                block_depth=core_block,
                ifm_bits=8 * dtype.itemsize,
                part_kernel_first=window.part_kernel_first,
                depthwise=depthwise,
                micro_depth=accelerator.ofm_micro.depth,
                slice_depth=slice_depth,
            )
        )
    return SumSpec(
        output, window, source, None, depthwise, sums, slice_depth, bits, scale, tuple(weights), tuple(scales),
        orders=tuple(orders),
    )  # fmt: skip


Kind = ElementwiseMode  # the modes of Ethos-U55 are the first ten
_SCALED = frozenset((Kind.ADD, Kind.SUB, Kind.MUL, Kind.ABS))  # have an output scale
# The operand that is not rescaled is shifted by half of what TFLite shifts both by.
_INPUT_SHIFT = {1: 20, 2: 15}


@dataclass(frozen=True, slots=True)
class ElementwiseSpec(KernelSpec):
    """A kernel of one or two inputs, element by element."""

    first: InputSpec
    second: InputSpec | None  # None: unary
    kind: ElementwiseMode
    first_scale: Scale  # of operand A
    second_scale: Scale  # of operand B; of what is negative in an LRELU
    scale: Scale
    scale_rounding: Rounding | ScaleRounding  # of the output's scale, also where only shifts use it
    swap: bool = False  # the second input is operand A

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)

    @staticmethod
    def read_registers(regs: Registers) -> ElementwiseSpec:
        r = Register
        parameter = regs.operation.parameter
        if parameter > ElementwiseMode.SHL:
            regs.raise_illegal(f"ELEMENTWISE mode {parameter} is none of 0 (MUL) to 9 (SHL)")
        kind = Kind(parameter)
        output = OutputSpec.read_registers(regs)
        shape = output.shape
        dtype, brick = read_type(regs, "IFM")
        ifm = MapLayout.read_registers(regs, "IFM", dtype, brick, *shape[:2])
        first = InputSpec("IFM", dtype, 0 if dtype.itemsize == 4 else ifm.zero_point, ifm, shape)
        second, swap = None, False
        if not kind.is_unary:
            broadcast = Broadcast(regs.checked_bits(r.IFM2_BROADCAST, 0xC7))
            swap = bool(broadcast & Broadcast.SWAP_OPERANDS)
            dtype2, brick2 = read_type(regs, "IFM2")
            zero2 = regs.signed_16(r.IFM2_ZERO_POINT, dtype2.kind == "i")
            zero2 = 0 if dtype2.itemsize == 4 else zero2
            if broadcast & Broadcast.SCALAR:
                scalar = regs.signed_16(r.IFM2_SCALAR, dtype2.kind == "i")
                second = InputSpec("IFM2", dtype2, zero2, None, (1, 1, 1), scalar)
            else:
                axes = (Broadcast.HEIGHT, Broadcast.WIDTH, Broadcast.DEPTH)
                y, x, c = (1 if broadcast & axis else n for axis, n in zip(axes, shape, strict=True))
                ifm2 = MapLayout.read_registers(regs, "IFM2", dtype2, brick2, y, x)
                second = InputSpec("IFM2", dtype2, zero2, ifm2, (y, x, c))
        a = b = scale = Scale.single_scale(1, 0)
        if kind in (Kind.ADD, Kind.SUB) and dtype.itemsize < 4:
            a, b = _operand_scales(regs, _INPUT_SHIFT[dtype.itemsize])
        if kind is Kind.LRELU:
            b = Scale.single_scale(*regs.scale_pair(r.OFM_SCALE), output.rounding)
        elif kind in _SCALED and output.global_scale:
            multiplier, shift = regs.scale_pair(r.OFM_SCALE)
            if kind is Kind.MUL and dtype.itemsize == 4:
                multiplier = 1  # only the shift takes part in a 32-bit product
            scale = Scale.single_scale(multiplier, shift, output.rounding)
        return ElementwiseSpec(output, first, second, kind, a, b, scale, output.rounding, swap)


def _operand_scales(regs: Registers, shift: int) -> tuple[Scale, Scale]:
    """The scales of both operands of a sum, or OPA_SCALE of one of them and a left shift of the other."""
    r = Register
    precision = regs.raw_value(r.IFM_PRECISION)
    scaled = regs.one_of(r.IFM_PRECISION, (0, 1, 2), precision >> 8 & 3)  # 0: both; 1: A, 2: B
    if not scaled:
        return Scale.single_scale(*regs.scale_pair(r.OPA_SCALE)), Scale.single_scale(*regs.scale_pair(r.OPB_SCALE))
    multiplier, right = regs.scale_pair(r.OPA_SCALE)
    one = Scale.single_scale(multiplier << shift, min(right + shift, 63), Rounding(precision >> 14))
    other = Scale.single_scale(1 << (shift - 1), 0)
    return (one, other) if scaled == 1 else (other, one)


INTERNAL = 1 << 8
_MAX_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """Source or destination: [planes, rows, length] bytes."""

    name: str
    region: int
    internal: bool
    start: int
    strides: tuple[int, int]  # between planes, between rows
    choices: int = 0  # rows that an index may choose; 0: every row is the next one

    def touched_extent(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """[planes, rows, length] that may be touched when `shape` is moved."""
        return (shape[0], self.choices, shape[2]) if self.choices else shape

    def stop_address(self, shape: tuple[int, int, int]) -> int:
        shape = self.touched_extent(shape)
        return self.start + (shape[0] - 1) * self.strides[0] + (shape[1] - 1) * self.strides[1] + shape[2]


@dataclass(frozen=True, slots=True)
class Index:
    """The numbers of rows in memory: [planes, rows] of 32 bits, rows close together."""

    region: int
    start: int
    plane_stride: int
    largest: int  # number that may occur


@dataclass(frozen=True, slots=True)
class DmaSpec:
    source: Side
    destination: Side
    shape: tuple[int, int, int]  # planes, rows, bytes
    index: Index | None = None

    @staticmethod
    def read_registers(regs: Registers) -> DmaSpec:
        check_mode(regs)
        r = Register
        words = [regs.checked_bits(x, 0x707) for x in (r.DMA0_SRC_REGION, r.DMA0_DST_REGION)]
        dimensions = [regs.one_of(r.DMA0_SRC_REGION, (0, 1, 2), word >> 9 & 3) + 1 for word in words]
        planes, rows, length = read_extents(regs, max(dimensions) > 1, max(dimensions) > 2, _MAX_ROWS)
        sides = []
        for name, word, dims, base in (
            ("DMA0_SRC", words[0], dimensions[0], r.DMA0_SRC),
            ("DMA0_DST", words[1], dimensions[1], r.DMA0_DST),
        ):
            row = length + (regs.low_word(r.DMA0_SKIP0) if dims > 1 else 0)
            plane = row * rows + (regs.low_word(r.DMA0_SKIP1) if dims > 2 else 0)
            sides.append(Side(name, word & 7, bool(word & INTERNAL), regs.raw_value(base), (plane, row)))
        return DmaSpec(sides[0], sides[1], (planes, rows, length))

    @property
    def size_bytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.shape[2]


def check_mode(regs: Registers) -> None:
    """The operation's own parameter, before any register."""
    if regs.operation.parameter:
        regs.raise_illegal(f"DMA_START has parameter {regs.operation.parameter}; only channel 0, mode 0 exists")


def read_extents(regs: Registers, has_rows: bool, has_planes: bool, most_rows: int) -> tuple[int, int, int]:
    """Planes, rows and bytes of a transfer that there can be."""
    r = Register
    length = regs.raw_value(r.DMA0_LEN)
    rows = regs.raw_value(r.DMA0_SIZE0) if has_rows else 1
    planes = regs.raw_value(r.DMA0_SIZE1) if has_planes else 1
    if length < 1 or rows < 1 or planes < 1 or rows * planes > most_rows:
        regs.raise_illegal(f"a transfer of {planes} x {rows} rows of {length} bytes is empty or too large")
    if regs.raw_value(r.DMA0_SRC_REGION) & INTERNAL:
        regs.raise_illegal("DMA0_SRC_REGION selects a read from inside the NPU, which is not possible")
    return planes, rows, length
