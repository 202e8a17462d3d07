"""Ethos-U85's convolutions, matrix products, pools and resizing.

Invariant: the micro-block is one that the configuration has; every operation names all its inputs in `inputs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.isa import Op, PoolMode, Register
from npu_memplan.ethosu.stream.isa_u85 import AccumulatorInput, MicroBlock, ResizeKind

from ...arithmetic.ordered_weights import StreamOrder
from ...arithmetic.rescale import Scale
from ..layout import InputSpec, Shape3
from ..output import KernelSpec
from ..registers import Registers
from ..sums import Span, SumSpec, input_depth
from ..window import Window
from .maps import read_input, read_output, read_scale, results, written


def _read_map(regs: Registers, name: str, shape: Shape3) -> InputSpec:
    found = read_input(regs, name, shape)
    if found.layout is None:
        regs.illegal(f"{name}_PRECISION says that the input is a scalar, which only element-wise operations take")
    return found


def _micro_depth(regs: Registers, accelerator: Architecture) -> int:
    """Channels of the micro-block that ACC_FORMAT chooses."""
    code = regs.one_of(Register.ACC_FORMAT, tuple(MicroBlock), regs.raw(Register.ACC_FORMAT) >> 8 & 7)
    plane = MicroBlock(code).plane
    for shape in accelerator.micro_blocks:
        if (shape.height, shape.width) == plane:
            return shape.depth
    known = ", ".join(f"{s.height}x{s.width}" for s in accelerator.micro_blocks)
    regs.illegal(f"ACC_FORMAT selects micro-blocks of {plane[0]}x{plane[1]}, but {accelerator.name} has {known}")


def read_sum(regs: Registers, accelerator: Architecture) -> SumSpec:
    r = Register
    pool = None
    if regs.op is Op.POOL:
        pool = PoolMode(regs.one_of(r.OFM_PRECISION, tuple(PoolMode), regs.operation.parameter))
    elif regs.operation.parameter & ~(1 if regs.op is Op.CONV else 0):
        regs.illegal(f"{regs.op.name} has parameter {regs.operation.parameter}, which means nothing")
    regs.bits(r.KERNEL_STRIDE, 0x25F)  # pieces of 4x4 are not known to be emitted
    word = regs.bits(r.ACC_FORMAT, 0x773)
    wide = bool(regs.one_of(r.ACC_FORMAT, (0, 1), word & 3))
    start = AccumulatorInput(regs.one_of(r.ACC_FORMAT, (0, 1, 2), word >> 4 & 3))
    output = read_output(regs)
    window = Window.read(regs, output.height, output.width)
    depthwise = regs.op is Op.DEPTHWISE
    depth, sums = input_depth(regs, pool, output)
    source = _read_map(regs, "IFM", (*window.input_shape, depth))
    micro_depth = _micro_depth(regs, accelerator)
    by_matrix = regs.op is Op.CONV and bool(regs.operation.parameter & 1)
    matrix = _read_map(regs, "IFM2", (1, output.depth, depth)) if by_matrix else None
    loaded = _read_map(regs, "IFM2", results(regs)) if start is AccumulatorInput.IFM2 else None
    format_word = regs.bits(r.WEIGHT_FORMAT, 0x11) if pool is None else 0
    sparse, fast = bool(format_word & 0x10) and not by_matrix, bool(format_word & 1)
    bits = 8 * source.dtype.itemsize
    slice_depth = _slice_depth(window.part_kernel_first and not by_matrix, bits, micro_depth, sparse, accelerator)
    orders: tuple[StreamOrder, ...] = ()
    streams: tuple[Span, ...] = ()
    if pool is None and not by_matrix:
        order = StreamOrder(
            kernel_height=window.height,
            kernel_width=window.width,
            dilation_y=window.dilation_y,
            dilation_x=window.dilation_x,
            stride_y=window.stride_y,
            stride_x=window.stride_x,
            ifm_depth=1 if depthwise else depth,
            ofm_depth=output.depth,
            block_depth=regs.raw(r.OFM_BLK_DEPTH_M1) + 1,
            slice_depth=slice_depth,
            micro_depth=micro_depth,
            ifm_bits=bits,
            part_kernel_first=window.part_kernel_first and not depthwise,
            depthwise=depthwise,
            sparse=sparse and not depthwise,
            cores=accelerator.cores,
            macs=accelerator.macs,
        )
        orders = (order,)
        cores = range(1 if fast else accelerator.cores)
        streams = tuple(Span.read(regs, "WEIGHT", str(core) if core else "") for core in cores)
    scales = () if output.global_scale else (Span.read(regs, "SCALE"),)
    scale = read_scale(regs, r.OFM_SCALE)
    if pool is PoolMode.AVERAGE and divides(regs.raw(r.OFM_SCALE), window.height * window.width):
        scale = Scale.of(1, 0, scale.rounding)  # the average divides itself, and once
    return SumSpec(
        output, window, source, pool, depthwise, sums, slice_depth, 48 if wide else 32, scale,
        streams, scales, (6, 15) if wide else (4, 31), orders, fast, matrix, loaded, start,
    )  # fmt: skip


def divides(word: int, taps: int) -> bool:
    """Whether OFM_SCALE `word` of an average over `taps` elements is 1/taps, which Vela 4.5 and 5.0 write, rounded up.

    Vela 5.2 writes 1 for the same layer, and nothing else differs. Arm's FVP gives tflite-micro's results for a stream
    of Vela 4.5 (AmbiqAI/vela_example_generator @209ad9e), so the window is divided by once there too.
    """
    excess = (word & 0xFFFFFFFF) * taps - (1 << (word >> 32 & 63))
    return taps > 1 and 0 < excess < 1 << max((word >> 32 & 63) - 24, 0)


def _slice_depth(part: bool, bits: int, micro_depth: int, sparse: bool, accelerator: Architecture) -> int:
    """Input channels of one pass: see the compiler's choice of blocks (regor's `FindBlockConfig`)."""
    if part:
        return 16
    small = accelerator.cores == 1  # configurations whose deep micro-blocks take half as many channels
    if bits == 32 or (small and micro_depth == 16 and not sparse):
        return 32
    return 128 if sparse and bits == 8 else 64


@dataclass(frozen=True, slots=True)
class ResizeAxis:
    """How output places become input places along one axis: (place * step + offset) / numerator."""

    numerator: int
    step: int  # for each output place, in parts of `numerator`
    offset: int  # signed


@dataclass(frozen=True, slots=True)
class ResizeSpec(KernelSpec):
    kind: ResizeKind
    input: InputSpec
    y: ResizeAxis
    x: ResizeAxis
    scale: Scale

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return (self.input,)


def read_resize(regs: Registers) -> ResizeSpec:
    r = Register
    kind = ResizeKind(regs.one_of(r.OFM_PRECISION, tuple(ResizeKind), regs.operation.parameter))
    output = written(regs, read_output(regs))
    height, width = regs.raw(r.KERNEL_HEIGHT_M1) + 1, regs.raw(r.KERNEL_WIDTH_M1) + 1
    source = _read_map(regs, "IFM", (height, width, output.depth))
    axes = [_axis(regs, letter) for letter in "YX"]
    return ResizeSpec(output, kind, source, axes[0], axes[1], read_scale(regs, r.OFM_SCALE))


def _axis(regs: Registers, letter: str) -> ResizeAxis:
    numerator = regs.bits(Register[f"RESIZE_{letter}_SCALE_N_M1"], 0x7FF) + 1
    offset = regs.bits(Register[f"RESIZE_{letter}_OFFSET"], 0xFFF)
    word = regs.raw(Register[f"RESIZE_{letter}_STEP"])
    return ResizeAxis(numerator, (word >> 32 & 0xF) * numerator + (word & 0x7FF), offset - ((offset & 0x800) << 1))
