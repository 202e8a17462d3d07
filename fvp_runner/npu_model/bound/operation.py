"""An operation's spec on real memory, whatever it is.

Invariant: one bound class for each spec.
"""

from __future__ import annotations

from ..spec.convolution import ConvolutionSpec
from ..spec.elementwise import ElementwiseSpec
from ..spec.pooling import PoolingSpec
from ..spec.stream import DecodedStep
from .convolution import Convolution, DecodedConstants
from .dma import Dma
from .elementwise import Elementwise
from .memory import RegionMemory
from .pooling import Pooling

Bound = Convolution | Pooling | Elementwise | Dma


def bind(step: DecodedStep, memory: RegionMemory, checks: bool, memo: list[DecodedConstants]) -> Bound:
    """The operation on real memory; `memo` keeps its decoded weights (at most one set) for the next binding."""
    registers, spec = step.registers, step.spec
    if isinstance(spec, ConvolutionSpec):
        return Convolution(spec, memory, registers, checks, memo)
    if isinstance(spec, PoolingSpec):
        return Pooling(spec, memory, registers, checks)
    if isinstance(spec, ElementwiseSpec):
        return Elementwise(spec, memory, registers)
    return Dma(spec, memory, registers)
