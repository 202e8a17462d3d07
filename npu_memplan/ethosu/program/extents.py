"""How many rows, columns and channels of its feature maps an operation touches.

Invariant: the OFM's extents come from its registers, those of the inputs follow from them, the kernel and broadcasts;
a map that is not in memory (a scalar, a chained operand) has none. One set of rules for each language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..arch.architecture import Language
from ..stream.commands import Operation
from ..stream.fields_u85 import AccumulatorWord, InputWord, OutputWord
from ..stream.isa import UNARY, Broadcast, Op, PoolMode, Register, Upscale
from ..stream.isa_u85 import BY_MAP, AccumulatorInput, MapStorage, StoredOrder
from .kernel import Kernel

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
    kernel = Kernel.of(op)
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
    return None if scalar else _spread(op, Register.IFM2_BROADCAST)


def _u85_ofm(op: Operation) -> Extents:
    word = op[Register.OFM_PRECISION]
    if OutputWord.STORAGE.of(word) in _ABSENT or AccumulatorWord.NO_OUTPUT.of(op.get(Register.ACC_FORMAT)):
        return NOWHERE
    order = OutputWord.TRANSPOSE.of(word)
    axes = StoredOrder(order).axes if order in tuple(StoredOrder) else (0, 1, 2)
    made = results(op)
    return made[axes[0]], made[axes[1]], made[axes[2]]


def has_ifm_in_memory(op: Operation) -> bool:
    """Whether a kernel's first operand is in memory, and not a scalar or in a chaining buffer."""
    return op.language is not Language.U85 or InputWord.STORAGE.of(op[Register.IFM_PRECISION]) not in _ABSENT


def _u85_ifm(op: Operation) -> Extents:
    if not has_ifm_in_memory(op):
        return NOWHERE
    if op.op is Op.ELEMENTWISE:
        return _spread(op, Register.IFM_BROADCAST)
    if op.op is Op.RESIZE:
        return op[Register.KERNEL_HEIGHT_M1] + 1, op[Register.KERNEL_WIDTH_M1] + 1, results(op)[2]
    return _ifm(op)


def _u85_ifm2(op: Operation) -> Extents | None:
    loads = AccumulatorWord.INPUT.of(op.get(Register.ACC_FORMAT)) == AccumulatorInput.IFM2
    if op.op is Op.ELEMENTWISE:
        if op.parameter in UNARY or InputWord.STORAGE.of(op[Register.IFM2_PRECISION]) in _ABSENT:
            return None
        return _spread(op, Register.IFM2_BROADCAST)
    if is_product(op):
        return 1, results(op)[2], op[Register.IFM_DEPTH_M1] + 1  # a matrix of weights
    return results(op) if loads and op.op is not Op.RESIZE else None


def _spread(op: Operation, register: Register) -> Extents:
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
