"""What the registers of a POOL say.

Invariant: only a sum over the depth has an input depth of its own, and one output channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_memplan.ethosu.stream.isa import AccFormat, PoolMode, Register

from .layout import MapLayout
from .output import OutputSpec
from .registers import Registers
from .window import Window, WindowedSpec, read_type, slice_channels


@dataclass(frozen=True, slots=True)
class PoolingSpec(WindowedSpec):
    mode: PoolMode
    scale: tuple[int, int]  # multiplier, shift
    accumulator: AccFormat

    @staticmethod
    def read(regs: Registers) -> PoolingSpec:
        parameter = regs.operation.parameter
        if parameter not in (0, 1, 2):
            regs.illegal(f"POOL mode {parameter} is none of 0 (MAX), 1 (AVERAGE) and 2 (REDUCE_SUM)")
        mode = PoolMode(parameter)
        output = OutputSpec.read(regs)
        window = Window.read(regs, output.height, output.width)
        dtype, brick = read_type(regs, "IFM")
        depth = output.depth
        if mode is PoolMode.REDUCE_SUM:
            depth = regs.raw(Register.IFM_DEPTH_M1) + 1
            if output.depth != 1:
                regs.illegal(f"OFM_DEPTH_M1 = {output.depth - 1}, but a sum over the depth has one channel")
        elif dtype.itemsize > 2:
            regs.illegal("IFM_PRECISION asks for 32-bit input, which only REDUCE_SUM takes")
        ifm = MapLayout.read(regs, "IFM", dtype, brick, *window.input_shape)
        scale = (1, 0)
        if mode is not PoolMode.MAX and output.global_scale:
            scale = regs.scale(Register.OFM_SCALE)
        accumulator = AccFormat(regs.one_of(Register.ACC_FORMAT, (0, 1)))
        sums = mode is PoolMode.REDUCE_SUM
        return PoolingSpec(output, window, ifm, depth, sums, slice_channels(window, dtype), mode, scale, accumulator)
