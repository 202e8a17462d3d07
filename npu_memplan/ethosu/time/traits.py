"""What of a kernel's time follows from its language's registers: micro-block, decoders, output unit.

Invariant: shapes and windows are not here; `work` reads them alike for all NPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..arch import Architecture, OutputKind, Shape
from ..program.access import PART_KERNEL_SLICE, FeatureMap, deep_slice, is_sparse, micro_block
from ..stream.decode import Operation
from ..stream.fields import AccumulatorWord, OutputWord, TableWord
from ..stream.isa import MapStorage, Op, Register, StoredBackwards, StoredOrder


class Engine(Enum):
    """The unit that a kernel computes with."""

    CONV = "convolution"
    DEPTHWISE = "depthwise"
    POOL = "pool"
    REDUCE_SUM = "reduce_sum"
    ELEMENTWISE = "elementwise"


@dataclass(frozen=True, slots=True)
class Traits:
    """The facts about one kernel that its language's registers state."""

    micro: Shape  # of all cores that work on one block together
    acc40: bool  # or 48 bits
    looks_up: bool
    clamps: bool
    turned: bool  # rows and columns change places in the output
    output: OutputKind
    cores: int  # that each make blocks of channels of their own
    taps: int  # kernel elements of one step, part-kernel first and depthwise
    channels: int  # input channels that a cycle takes
    part_slice: int  # input channels of one pass, part-kernel first
    deep_slice: int  # the same, depth first
    by_depth: bool  # depthwise kernels and pools read and make one depth of micro-blocks after the other


_HALF_SPEED = (StoredOrder.WHC, StoredOrder.WCH, StoredOrder.CWH)
_KINDS = {1: OutputKind.BITS_8, 2: OutputKind.BITS_16, 4: OutputKind.BITS_32, 8: OutputKind.BITS_64}


def u85_traits(
    operation: Operation, engine: Engine, maps: tuple[FeatureMap, FeatureMap], accelerator: Architecture
) -> Traits:
    """The traits of an Ethos-U85 kernel with the `maps` IFM and OFM. Source: regor's `ethos_u85_performance.cpp`; taps
    and channels of a step are those that its encoder of weights fills up to.
    """
    accumulators = operation.get(Register.ACC_FORMAT)
    output = operation[Register.OFM_PRECISION]
    micro = micro_block(operation, accelerator)
    bits = 8 * maps[0].element_bytes
    turned = (
        OutputWord.TRANSPOSE.value_in(output) in _HALF_SPEED or OutputWord.REVERSE.value_in(output) == StoredBackwards.W
    )
    return Traits(
        micro=micro,
        acc40=bool(AccumulatorWord.FORMAT.value_in(accumulators)) and engine is not Engine.ELEMENTWISE,
        looks_up=bool(TableWord.FUNCTION.value_in(operation.get(Register.ACTIVATION))),
        clamps=False,
        turned=turned,
        output=_output(operation, engine, bits, output),
        cores=1,
        taps=1,
        channels=2 * accelerator.ifm_micro_depth if is_sparse(operation) else accelerator.ifm_micro_depth,
        part_slice=PART_KERNEL_SLICE,
        deep_slice=deep_slice(operation, accelerator),
        by_depth=True,
    )


def _output(operation: Operation, engine: Engine, bits: int, word: int) -> OutputKind:
    size = 1 << OutputWord.SIZE.value_in(word)
    chained = OutputWord.STORAGE.value_in(word) == MapStorage.CHAINED
    pair = operation.op is Op.ELEMENTWISE and FeatureMap.ifm2(operation) is not None
    if chained and 32 in (8 * size, bits):
        return OutputKind.CHAINED_32
    if pair and bits == 32:
        return OutputKind.PAIR_32_TO_32 if size == 4 else OutputKind.CHAINED_32
    return _KINDS[size]
