"""What the registers of a CONV or DEPTHWISE say.

Invariant: one weight stream, one scale table and one order of weights for each core that takes part.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_memplan.ethosu.stream.isa import AccFormat, Op, Register

from ..arithmetic.weights import WeightOrder
from .layout import MapLayout
from .output import OutputSpec
from .registers import Registers
from .window import Window, WindowedSpec, read_type, slice_channels


@dataclass(frozen=True, slots=True)
class Span:
    """Constant bytes an operation reads: a weight stream or a scale table."""

    name: str
    region: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class ConvolutionSpec(WindowedSpec):
    weights: tuple[Span, ...]  # one for each core
    scales: tuple[Span, ...]
    orders: tuple[WeightOrder, ...]
    accumulator: AccFormat
    depthwise: bool

    @staticmethod
    def read(regs: Registers, ofm_ublock: int, cores: int) -> ConvolutionSpec:
        r = Register
        output = OutputSpec.read(regs)
        window = Window.read(regs, output.height, output.width)
        dtype, brick = read_type(regs, "IFM")
        if dtype.itemsize > 2:
            regs.illegal("IFM_PRECISION asks for 32-bit input, which convolutions do not take")
        depthwise = regs.op is Op.DEPTHWISE
        depth = output.depth if depthwise else regs.raw(r.IFM_DEPTH_M1) + 1
        ifm = MapLayout.read(regs, "IFM", dtype, brick, *window.input_shape)
        accumulator = AccFormat(regs.one_of(r.ACC_FORMAT, (0, 1)))
        parallel = 2 if cores == 2 and regs.one_of(r.PARALLEL_MODE, (0, 1)) else 1
        block = regs.raw(r.OFM_BLK_DEPTH_M1) + 1
        weights: list[Span] = []
        scales: list[Span] = []
        orders = []
        for core in range(parallel):
            prefix = "1" if core else ""
            channels = -(-(output.depth - core) // parallel)
            for name, spans in (("WEIGHT", weights), ("SCALE", scales)):
                length = regs.low(Register[f"{name}{prefix}_LENGTH"]) if channels else 0
                base = regs.raw(Register[f"{name}{prefix}_BASE"]) if length else 0
                region = regs.region(Register[f"{name}_REGION"])
                spans.append(Span(f"{name}{prefix}", region, base, length))
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
                    micro_depth=ofm_ublock,
                    ifm_bits=8 * dtype.itemsize,
                    part_kernel_first=window.part_kernel_first,
                    depthwise=depthwise,
                    slice_depth=slice_channels(window, dtype),
                )
            )
        return ConvolutionSpec(
            output, window, ifm, depth, not depthwise, slice_channels(window, dtype),
            tuple(weights), tuple(scales), tuple(orders), accumulator, depthwise,
        )  # fmt: skip
