"""What the registers of a CONV, DEPTHWISE or POOL say: here those of Ethos-U55 and U65, in `u85` those of Ethos-U85.

Invariant: one weight stream, one scale table and one order of weights for each core that takes part; only a sum over
the depth has an input depth of its own, and one output channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.isa import Op, PoolMode, Register
from npu_memplan.ethosu.stream.isa_u85 import AccumulatorInput

from ..arithmetic.rescale import Scale
from ..arithmetic.weights import WeightOrder
from .layout import InputSpec, MapLayout
from .output import KernelSpec, OutputSpec
from .registers import Registers
from .window import Window, read_type


@dataclass(frozen=True, slots=True)
class Span:
    """Constant bytes an operation reads: a weight stream or a scale table."""

    name: str
    region: int
    start: int
    length: int

    @staticmethod
    def read(regs: Registers, name: str, suffix: str = "", is_used: bool = True) -> Span:
        """WEIGHT or SCALE of the core that `suffix` names."""
        length = regs.low(Register[f"{name}{suffix}_LENGTH"]) if is_used else 0
        base = regs.raw(Register[f"{name}{suffix}_BASE"]) if length else 0
        return Span(f"{name}{suffix}", regs.region(Register[f"{name}_REGION"]), base, length)


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
        regs.illegal(f"OFM_DEPTH_M1 = {output.depth - 1}, but a sum over the depth has one channel")
    sums = regs.op is Op.CONV or pool is PoolMode.REDUCE_SUM
    return regs.raw(Register.IFM_DEPTH_M1) + 1 if sums else output.depth, sums


def read_sum(regs: Registers, accelerator: Architecture) -> SumSpec:
    r, pool = Register, None
    if regs.op is Op.POOL:
        if regs.operation.parameter not in (0, 1, 2):
            regs.illegal(f"POOL mode {regs.operation.parameter} is none of 0 (MAX), 1 (AVERAGE) and 2 (REDUCE_SUM)")
        pool = PoolMode(regs.operation.parameter)
    output = OutputSpec.read(regs)
    window = Window.read(regs, output.height, output.width)
    dtype, brick = read_type(regs, "IFM")
    depth, sums = input_depth(regs, pool, output)
    if dtype.itemsize > 2 and pool is not PoolMode.REDUCE_SUM:
        regs.illegal("IFM_PRECISION selects 32-bit input, which only REDUCE_SUM takes")
    ifm = MapLayout.read(regs, "IFM", dtype, brick, *window.input_shape)
    source = InputSpec("IFM", dtype, ifm.zero_point, ifm, (*window.input_shape, depth))
    bits = 40 if regs.one_of(r.ACC_FORMAT, (0, 1)) else 32
    slice_depth = 16 if window.part_kernel_first or dtype.itemsize == 2 else 32
    scaled = output.global_scale and pool is not PoolMode.MAX
    scale = Scale.of(*(regs.scale(r.OFM_SCALE) if scaled else (1, 0)), output.rounding)
    if pool is PoolMode.AVERAGE and not window.is_padded:
        pool = PoolMode.SUM  # whose scale divides
    depthwise = regs.op is Op.DEPTHWISE
    if pool is not None:
        return SumSpec(output, window, source, pool, depthwise, sums, slice_depth, bits, scale)
    parallel = 2 if accelerator.cores == 2 and regs.one_of(r.PARALLEL_MODE, (0, 1)) else 1
    block = regs.raw(r.OFM_BLK_DEPTH_M1) + 1
    weights, scales, orders = [], [], []
    for core in range(parallel):
        suffix, channels = "1" if core else "", -(-(output.depth - core) // parallel)
        weights.append(Span.read(regs, "WEIGHT", suffix, channels > 0))
        scales.append(Span.read(regs, "SCALE", suffix, channels > 0))
        core_block = -(-(block - core) // parallel)
        if core_block < 1:
            regs.illegal(f"OFM_BLK_DEPTH_M1 = {block - 1} leaves core {core} no channels")
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
