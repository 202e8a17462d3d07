"""What the values of Ethos-U85's registers say.

Invariant: a value that means nothing is shown as its number, never hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from .fields import KernelStride
from .fields_u85 import (
    AccumulatorWord,
    InputWord,
    OutputWord,
    ScaledWord,
    StepWord,
    StrideWord,
    TableWord,
    TransferWord,
    WeightWord,
)
from .isa import Op, Register
from .isa_u85 import (
    AccumulatorFormat,
    AccumulatorInput,
    ElementwiseKind,
    InputBroadcast,
    MapStorage,
    MicroBlock,
    PoolOperation,
    ResizeKind,
    ScaleRounding,
    StoredBackwards,
    StoredOrder,
    TableKind,
)

MODES: Mapping[Op, type[IntEnum]] = {Op.POOL: PoolOperation, Op.ELEMENTWISE: ElementwiseKind, Op.RESIZE: ResizeKind}


def _name(enumeration: type[IntEnum], value: int) -> str:
    return next((member.name for member in enumeration if member == value), str(value))


def _map(fields: type[InputWord] | type[OutputWord], value: int) -> list[str]:
    kind = "int" if fields.SIGNED.of(value) else "uint"
    words = [f"{kind}{8 << fields.SIZE.of(value)}", "NHCWB16" if fields.BRICK.of(value) else "NHWC"]
    storage = fields.STORAGE.of(value)
    return words + ([_name(MapStorage, storage)] if storage else [])


def _input(value: int) -> str:
    return " ".join(_map(InputWord, value))


def _output(value: int) -> str:
    words = _map(OutputWord, value)
    words.append("global scale" if OutputWord.GLOBAL_SCALE.of(value) else "scale per channel")
    order, backwards = OutputWord.TRANSPOSE.of(value), OutputWord.REVERSE.of(value)
    words += [f"stored as {_name(StoredOrder, order)}"] if order else []
    words += [f"{_name(StoredBackwards, backwards)} backwards"] if backwards else []
    return " ".join(words)


def _scale(value: int) -> str:
    early = ScaledWord.DOUBLE_ROUND.of(value)
    words = f"{ScaledWord.MULTIPLIER.of(value)} >> {ScaledWord.SHIFT.of(value)}"
    words += f" {_name(ScaleRounding, ScaledWord.ROUNDING.of(value))}"
    return words + (f", first rounding {early} bits earlier" if early else "")


def _accumulators(value: int) -> str:
    words = [
        _name(AccumulatorFormat, AccumulatorWord.FORMAT.of(value)),
        _name(AccumulatorInput, AccumulatorWord.INPUT.of(value)),
        "micro-block " + _name(MicroBlock, AccumulatorWord.MICRO_BLOCK.of(value))[1:].lower(),
    ]
    return " ".join(words + (["no output"] if AccumulatorWord.NO_OUTPUT.of(value) else []))


def _activation(value: int) -> str:
    kind = TableWord.FUNCTION.of(value)
    words = _name(TableKind, kind).lower() + (f" table {TableWord.TABLE.of(value)}" if kind else "")
    return words + (", not clipped" if TableWord.UNCLIPPED.of(value) else "")


def _weights(value: int) -> str:
    return ("fast" if WeightWord.FAST.of(value) else "standard") + (", 2:4" if WeightWord.SPARSE.of(value) else "")


def _broadcast(value: int) -> str:
    return " ".join(str(axis.name) for axis in InputBroadcast if value & axis) or "none"


def _side(value: int) -> str:
    words = ["LUT RAM"] if TransferWord.INTERNAL.of(value) else [f"region {TransferWord.REGION.of(value)}"]
    dimensions = TransferWord.DIMENSIONS.of(value)
    words += [f"{dimensions + 1}D"] if dimensions else []
    return " ".join(words + (["indexed"] if TransferWord.INDEXED.of(value) else []))


def _step(value: int) -> str:
    one, block = StepWord.ONE_WHOLE.of(value), StepWord.BLOCK_WHOLE.of(value)
    return f"a step {one} and {StepWord.ONE_REST.of(value)}, a block {block} and {StepWord.BLOCK_REST.of(value)}"


def _kernel(value: int) -> str:
    stride = f"stride {KernelStride.stride_y(value)}x{KernelStride.stride_x(value)}"
    dilation = f"dilation {1 + KernelStride.DILATION_Y.of(value)}x{1 + KernelStride.DILATION_X.of(value)}"
    order = "part-kernel first" if KernelStride.PART_KERNEL_FIRST.of(value) else "depth first"
    return f"{stride}, {dilation}, {order}" + (", pieces of 4x4" if StrideWord.SMALL_PIECES.of(value) else "")


def _offset(value: int) -> str:
    return str(value - 0x1000 if value & 0x800 else value)


def _scalar(value: int) -> str:
    return str(value - (1 << 32) if value & 1 << 31 else value)


WORDS: Mapping[Register, Callable[[int], str]] = {
    Register.IFM_PRECISION: _input,
    Register.IFM2_PRECISION: _input,
    Register.OFM_PRECISION: _output,
    Register.KERNEL_STRIDE: _kernel,
    Register.ACTIVATION: _activation,
    Register.ACC_FORMAT: _accumulators,
    Register.WEIGHT_FORMAT: _weights,
    Register.OP_SCALAR: _scalar,
    Register.RESIZE_X_OFFSET: _offset,
    Register.RESIZE_Y_OFFSET: _offset,
    Register.RESIZE_X_STEP: _step,
    Register.RESIZE_Y_STEP: _step,
    Register.DMA0_SRC_REGION: _side,
    Register.DMA0_DST_REGION: _side,
    **dict.fromkeys((Register.IFM_BROADCAST, Register.IFM2_BROADCAST), _broadcast),
    **dict.fromkeys((Register.OFM_SCALE, Register.IFM_SCALE, Register.IFM2_SCALE), _scale),
}
