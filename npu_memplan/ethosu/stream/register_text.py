"""Values of registers as text, for each language.

Invariant: a value that means nothing is shown as its number, never hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum, IntFlag
from functools import partial

from ..arch.architecture import Language
from .fields import Activation, DmaRegion, InputPrecision, KernelStride, OutputPrecision, ScaleWord
from .fields_u85 import (
    AccumulatorWord,
    InputWord,
    OutputWord,
    ScaledWord,
    StepWord,
    StrideWord,
    TableWord,
    WeightWord,
)
from .groups import REGION_REGISTERS
from .isa import AccFormat, ActivationFunction, Broadcast, ElementwiseMode, Op, PoolMode, Register, Rounding, Upscale
from .isa_u85 import (
    AccumulatorFormat,
    AccumulatorInput,
    InputBroadcast,
    MapStorage,
    MicroBlock,
    ResizeKind,
    ScaleRounding,
    StoredBackwards,
    StoredOrder,
    TableKind,
)

MODES: Mapping[Op, type[IntEnum]] = {Op.POOL: PoolMode, Op.ELEMENTWISE: ElementwiseMode, Op.RESIZE: ResizeKind}


def name_in(enumeration: type[IntEnum], value: int) -> str:
    return next((member.name for member in enumeration if member == value), str(value))


def _precision(fields: type[InputPrecision | OutputPrecision | InputWord | OutputWord], value: int) -> str:
    kind = "int" if fields.SIGNED.of(value) else "uint"
    return f"{kind}{8 << fields.SIZE.of(value)} {'NHCWB16' if fields.BRICK.of(value) else 'NHWC'}"


def _scale_of(fields: type[OutputPrecision | OutputWord], value: int) -> str:
    return "global scale" if fields.GLOBAL_SCALE.of(value) else "scale per channel"


def _kernel(value: int) -> str:
    stride = f"stride {KernelStride.stride_y(value)}x{KernelStride.stride_x(value)}"
    dilation = f"dilation {1 + KernelStride.DILATION_Y.of(value)}x{1 + KernelStride.DILATION_X.of(value)}"
    order = "part-kernel first" if KernelStride.PART_KERNEL_FIRST.of(value) else "depth first"
    return f"{stride}, {dilation}, {order}"


def _scale(value: int) -> str:
    return f"{ScaleWord.MULTIPLIER.of(value)} >> {ScaleWord.SHIFT.of(value)}"


def _flags(enumeration: type[IntFlag], value: int) -> str:
    return " ".join(str(flag.name) for flag in enumeration if value & flag) or "none"


# ---------------------------------------------------------------------- Ethos-U55 and U65


def _first_input(value: int) -> str:
    operand = InputPrecision.SCALED_OPERAND.of(value)
    rounding = name_in(Rounding, InputPrecision.ROUNDING.of(value))
    text = f" operand {'A' if operand == 1 else 'B'} scaled {rounding}" if operand else ""
    return _precision(InputPrecision, value) + text


def _output(value: int) -> str:
    rounding = name_in(Rounding, OutputPrecision.ROUNDING.of(value))
    return f"{_precision(OutputPrecision, value)} {_scale_of(OutputPrecision, value)} {rounding}"


def _activation(value: int) -> str:
    function, table = Activation.FUNCTION.of(value), Activation.table(value)
    word = name_in(ActivationFunction, function).lower() if table is None else f"LUT {table}"
    clip = Activation.CLIP_RANGE.of(value)
    return word + (f", clip range {clip}" if clip else "")


def _region(value: int) -> str:
    return "SHRAM" if DmaRegion.INTERNAL.of(value) else ""


# ---------------------------------------------------------------------- Ethos-U85


def _u85_map(fields: type[InputWord | OutputWord], value: int) -> str:
    storage = fields.STORAGE.of(value)
    return _precision(fields, value) + (f" {name_in(MapStorage, storage)}" if storage else "")


def _u85_output(value: int) -> str:
    parts = [_u85_map(OutputWord, value), _scale_of(OutputWord, value)]
    order, backwards = OutputWord.TRANSPOSE.of(value), OutputWord.REVERSE.of(value)
    parts += [f"stored as {name_in(StoredOrder, order)}"] if order else []
    parts += [f"{name_in(StoredBackwards, backwards)} backwards"] if backwards else []
    return " ".join(parts)


def _u85_scale(value: int) -> str:
    early = ScaledWord.DOUBLE_ROUND.of(value)
    text = f"{_scale(value)} {name_in(ScaleRounding, ScaledWord.ROUNDING.of(value))}"
    return text + (f", first rounding {early} bits earlier" if early else "")


def _accumulators(value: int) -> str:
    parts = [
        name_in(AccumulatorFormat, AccumulatorWord.FORMAT.of(value)),
        name_in(AccumulatorInput, AccumulatorWord.INPUT.of(value)),
        "micro-block " + name_in(MicroBlock, AccumulatorWord.MICRO_BLOCK.of(value))[1:].lower(),
    ]
    return " ".join(parts + (["no output"] if AccumulatorWord.NO_OUTPUT.of(value) else []))


def _u85_activation(value: int) -> str:
    kind = TableWord.FUNCTION.of(value)
    text = name_in(TableKind, kind).lower() + (f" table {TableWord.TABLE.of(value)}" if kind else "")
    return text + (", not clipped" if TableWord.UNCLIPPED.of(value) else "")


def _weights(value: int) -> str:
    return ("fast" if WeightWord.FAST.of(value) else "standard") + (", 2:4" if WeightWord.SPARSE.of(value) else "")


def _side(value: int) -> str:
    parts = ["LUT RAM"] if DmaRegion.INTERNAL.of(value) else [f"region {DmaRegion.REGION.of(value)}"]
    dimensions = DmaRegion.DIMENSIONS.of(value)
    parts += [f"{dimensions + 1}D"] if dimensions else []
    return " ".join(parts + (["indexed"] if DmaRegion.INDEXED.of(value) else []))


def _step(value: int) -> str:
    one, block = StepWord.ONE_WHOLE.of(value), StepWord.BLOCK_WHOLE.of(value)
    return f"a step {one} and {StepWord.ONE_REST.of(value)}, a block {block} and {StepWord.BLOCK_REST.of(value)}"


def _u85_kernel(value: int) -> str:
    return _kernel(value) + (", pieces of 4x4" if StrideWord.SMALL_PIECES.of(value) else "")


def _offset(value: int) -> str:
    return str(value - 0x1000 if value & 0x800 else value)


def _scalar(value: int) -> str:
    return str(value - (1 << 32) if value & 1 << 31 else value)


REGISTER_TEXT: Mapping[Language, Mapping[Register, Callable[[int], str]]] = {
    Language.U55_U65: {
        Register.IFM_PRECISION: _first_input,
        Register.IFM2_PRECISION: partial(_precision, InputPrecision),
        Register.OFM_PRECISION: _output,
        Register.KERNEL_STRIDE: _kernel,
        Register.ACTIVATION: _activation,
        Register.IFM2_BROADCAST: partial(_flags, Broadcast),
        Register.IFM_UPSCALE: partial(name_in, Upscale),
        Register.ACC_FORMAT: partial(name_in, AccFormat),
        **dict.fromkeys((Register.OFM_SCALE, Register.OPA_SCALE, Register.OPB_SCALE), _scale),
        **dict.fromkeys(REGION_REGISTERS, _region),
    },
    Language.U85: {
        **dict.fromkeys(REGION_REGISTERS, _region),
        **dict.fromkeys((Register.IFM_PRECISION, Register.IFM2_PRECISION), partial(_u85_map, InputWord)),
        Register.OFM_PRECISION: _u85_output,
        Register.KERNEL_STRIDE: _u85_kernel,
        Register.ACTIVATION: _u85_activation,
        Register.ACC_FORMAT: _accumulators,
        Register.WEIGHT_FORMAT: _weights,
        Register.OP_SCALAR: _scalar,
        **dict.fromkeys((Register.RESIZE_X_OFFSET, Register.RESIZE_Y_OFFSET), _offset),
        **dict.fromkeys((Register.RESIZE_X_STEP, Register.RESIZE_Y_STEP), _step),
        **dict.fromkeys((Register.DMA0_SRC_REGION, Register.DMA0_DST_REGION), _side),
        **dict.fromkeys((Register.IFM_BROADCAST, Register.IFM2_BROADCAST), partial(_flags, InputBroadcast)),
        **dict.fromkeys((Register.OFM_SCALE, Register.IFM_SCALE, Register.IFM2_SCALE), _u85_scale),
    },
}
