"""Which reader each operation of Ethos-U85 has."""

from __future__ import annotations

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.isa import Op

from ..dma import DmaSpec
from ..registers import Registers
from .dma import read_transfer
from .elementwise import OperandsSpec, read_elementwise
from .kernels import ResizeSpec, SumSpec, read_resize, read_sum

U85KernelSpec = SumSpec | OperandsSpec | ResizeSpec


def read_u85(registers: Registers, accelerator: Architecture) -> U85KernelSpec | DmaSpec:
    if registers.op is Op.DMA_START:
        return read_transfer(registers)
    if registers.op is Op.ELEMENTWISE:
        return read_elementwise(registers)
    if registers.op is Op.RESIZE:
        return read_resize(registers)
    return read_sum(registers, accelerator)
