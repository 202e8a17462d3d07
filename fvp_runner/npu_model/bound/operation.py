"""An operation's spec on real memory, whatever it is.

Invariant: one bound class for each spec.
"""

from __future__ import annotations

from ..spec.dma import DmaSpec
from ..spec.elementwise import ElementwiseSpec
from ..spec.stream import DecodedStep
from ..spec.u85.kernels import ResizeSpec
from .convolution import Convolution, DecodedConstants
from .dma import Dma
from .elementwise import Elementwise
from .memory import RegionMemory
from .pooling import Pooling
from .resize import Resizing

Kernel = Convolution | Pooling | Elementwise | Resizing
Bound = Kernel | Dma


def bind(step: DecodedStep, memory: RegionMemory, checks: bool, memo: list[DecodedConstants]) -> Bound:
    """The operation on real memory; `memo` keeps its decoded weights (at most one set) for the next binding."""
    registers, spec = step.registers, step.spec
    if isinstance(spec, ElementwiseSpec):
        return Elementwise(spec, memory, registers)
    if isinstance(spec, DmaSpec):
        return Dma(spec, memory, registers)
    if isinstance(spec, ResizeSpec):
        return Resizing(spec, memory, registers)
    if spec.pool is not None:
        return Pooling(spec, memory, registers, checks)
    return Convolution(spec, memory, registers, checks, memo)
