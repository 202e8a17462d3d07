"""A command stream in words people can read: what each operation does, with which registers.

Invariant: everything printed is computed from the stream; a register's raw value is always shown with its meaning, and
alone where it has none, so nothing is lost or hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from functools import partial
from typing import Any

from ..arch import Architecture
from ..arch.architecture import Language
from ..stream.decode import Command, Marker, Operation, Wait, decode
from ..stream.fields import (
    ADDRESS_REGISTERS,
    FEATURE_MAPS,
    IFM2,
    OFM,
    REGION_REGISTERS,
    AccumulatorWord,
    Activation,
    DmaRegion,
    InputPrecision,
    InputWord,
    KernelStride,
    OutputPrecision,
    OutputWord,
    Precision,
    ScaledWord,
    ScaleWord,
    StepWord,
    StrideWord,
    TableWord,
    WeightWord,
    decode_int16,
    registers_of,
)
from ..stream.isa import (
    SHRAM_REGION,
    AccFormat,
    AccumulatorFormat,
    AccumulatorInput,
    ActivationFunction,
    Broadcast,
    ElementwiseMode,
    InputBroadcast,
    MapStorage,
    MicroBlock,
    Op,
    PoolMode,
    Register,
    ResizeKind,
    Rounding,
    ScaleRounding,
    StoredBackwards,
    StoredOrder,
    TableKind,
    Upscale,
)
from .access import FeatureMap, Kernel, accesses, lut_span

MODES: Mapping[Op, type[IntEnum]] = {Op.POOL: PoolMode, Op.ELEMENTWISE: ElementwiseMode, Op.RESIZE: ResizeKind}


def name_in(enumeration: type[IntEnum], value: int) -> str:
    return next((member.name for member in enumeration if member == value), str(value))


def _describe_precision(fields: type[InputPrecision | OutputPrecision | InputWord | OutputWord], value: int) -> str:
    kind = "int" if fields.SIGNED.value_in(value) else "uint"
    return f"{kind}{8 << fields.SIZE.value_in(value)} {'NHCWB16' if fields.BRICK.value_in(value) else 'NHWC'}"


def _scale_of(fields: type[OutputPrecision | OutputWord], value: int) -> str:
    return "global scale" if fields.GLOBAL_SCALE.value_in(value) else "scale per channel"


def _kernel(value: int) -> str:
    stride = f"stride {KernelStride.stride_y(value)}x{KernelStride.stride_x(value)}"
    dilation = f"dilation {1 + KernelStride.DILATION_Y.value_in(value)}x{1 + KernelStride.DILATION_X.value_in(value)}"
    order = "part-kernel first" if KernelStride.PART_KERNEL_FIRST.value_in(value) else "depth first"
    return f"{stride}, {dilation}, {order}"


def _scale(value: int) -> str:
    return f"{ScaleWord.MULTIPLIER.value_in(value)} >> {ScaleWord.SHIFT.value_in(value)}"


def _flags(enumeration: type[IntFlag], value: int) -> str:
    return " ".join(str(flag.name) for flag in enumeration if value & flag) or "none"


# ---------------------------------------------------------------------- Ethos-U55 and U65


def _first_input(value: int) -> str:
    operand = InputPrecision.SCALED_OPERAND.value_in(value)
    rounding = name_in(Rounding, InputPrecision.ROUNDING.value_in(value))
    text = f" operand {'A' if operand == 1 else 'B'} scaled {rounding}" if operand else ""
    return _describe_precision(InputPrecision, value) + text


def _output(value: int) -> str:
    rounding = name_in(Rounding, OutputPrecision.ROUNDING.value_in(value))
    return f"{_describe_precision(OutputPrecision, value)} {_scale_of(OutputPrecision, value)} {rounding}"


def _describe_activation(value: int) -> str:
    function, table = Activation.FUNCTION.value_in(value), Activation.table(value)
    word = name_in(ActivationFunction, function).lower() if table is None else f"LUT {table}"
    clip = Activation.CLIP_RANGE.value_in(value)
    return word + (f", clip range {clip}" if clip else "")


def _region(value: int) -> str:
    return "SHRAM" if DmaRegion.INTERNAL.value_in(value) else ""


# ---------------------------------------------------------------------- Ethos-U85


def _u85_map(fields: type[InputWord | OutputWord], value: int) -> str:
    storage = fields.STORAGE.value_in(value)
    return _describe_precision(fields, value) + (f" {name_in(MapStorage, storage)}" if storage else "")


def _u85_output(value: int) -> str:
    parts = [_u85_map(OutputWord, value), _scale_of(OutputWord, value)]
    order, backwards = OutputWord.TRANSPOSE.value_in(value), OutputWord.REVERSE.value_in(value)
    parts += [f"stored as {name_in(StoredOrder, order)}"] if order else []
    parts += [f"{name_in(StoredBackwards, backwards)} backwards"] if backwards else []
    return " ".join(parts)


def _u85_scale(value: int) -> str:
    early = ScaledWord.DOUBLE_ROUND.value_in(value)
    text = f"{_scale(value)} {name_in(ScaleRounding, ScaledWord.ROUNDING.value_in(value))}"
    return text + (f", first rounding {early} bits earlier" if early else "")


def _describe_accumulators(value: int) -> str:
    parts = [
        name_in(AccumulatorFormat, AccumulatorWord.FORMAT.value_in(value)),
        name_in(AccumulatorInput, AccumulatorWord.INPUT.value_in(value)),
        "micro-block " + name_in(MicroBlock, AccumulatorWord.MICRO_BLOCK.value_in(value))[1:].lower(),
    ]
    return " ".join(parts + (["no output"] if AccumulatorWord.NO_OUTPUT.value_in(value) else []))


def _u85_activation(value: int) -> str:
    kind = TableWord.FUNCTION.value_in(value)
    text = name_in(TableKind, kind).lower() + (f" table {TableWord.TABLE.value_in(value)}" if kind else "")
    return text + (", not clipped" if TableWord.UNCLIPPED.value_in(value) else "")


def _weights(value: int) -> str:
    return ("fast" if WeightWord.FAST.value_in(value) else "standard") + (
        ", 2:4" if WeightWord.SPARSE.value_in(value) else ""
    )


def _describe_side(value: int) -> str:
    parts = ["LUT RAM"] if DmaRegion.INTERNAL.value_in(value) else [f"region {DmaRegion.REGION.value_in(value)}"]
    dimensions = DmaRegion.DIMENSIONS.value_in(value)
    parts += [f"{dimensions + 1}D"] if dimensions else []
    return " ".join(parts + (["indexed"] if DmaRegion.INDEXED.value_in(value) else []))


def _step(value: int) -> str:
    fields = (StepWord.ONE_WHOLE, StepWord.ONE_REST, StepWord.BLOCK_WHOLE, StepWord.BLOCK_REST)
    one, one_rest, block, block_rest = (field.value_in(value) for field in fields)
    return f"a step {one} and {one_rest}, a block {block} and {block_rest}"


def _u85_kernel(value: int) -> str:
    return _kernel(value) + (", pieces of 4x4" if StrideWord.SMALL_PIECES.value_in(value) else "")


def _offset(value: int) -> str:
    return str(value - 0x1000 if value & 0x800 else value)


def _describe_scalar(value: int) -> str:
    return str(value - (1 << 32) if value & 1 << 31 else value)


REGISTER_TEXT: Mapping[Language, Mapping[Register, Callable[[int], str]]] = {
    Language.U55_U65: {
        Register.IFM_PRECISION: _first_input,
        Register.IFM2_PRECISION: partial(_describe_precision, InputPrecision),
        Register.OFM_PRECISION: _output,
        Register.KERNEL_STRIDE: _kernel,
        Register.ACTIVATION: _describe_activation,
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
        Register.ACC_FORMAT: _describe_accumulators,
        Register.WEIGHT_FORMAT: _weights,
        Register.OP_SCALAR: _describe_scalar,
        **dict.fromkeys((Register.RESIZE_X_OFFSET, Register.RESIZE_Y_OFFSET), _offset),
        **dict.fromkeys((Register.RESIZE_X_STEP, Register.RESIZE_Y_STEP), _step),
        **dict.fromkeys((Register.DMA0_SRC_REGION, Register.DMA0_DST_REGION), _describe_side),
        **dict.fromkeys((Register.IFM_BROADCAST, Register.IFM2_BROADCAST), partial(_flags, InputBroadcast)),
        **dict.fromkeys((Register.OFM_SCALE, Register.IFM_SCALE, Register.IFM2_SCALE), _u85_scale),
    },
}


@dataclass(frozen=True, slots=True)
class Line:
    """One command. `registers` are (name, raw value, meaning) that changed since the last command of its kind."""

    offset_bytes: int
    operation: str
    summary: str
    registers: tuple[tuple[str, int, str], ...] = ()
    accesses: tuple[dict[str, Any], ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The object for `--json`: all of it, raw."""
        return {
            "offset_bytes": self.offset_bytes,
            "operation": self.operation,
            "summary": self.summary,
            "registers": {n: {"value": v, "meaning": m} for n, v, m in self.registers},
            "accesses": list(self.accesses),
        }


def describe(words: Sequence[int], accelerator: Architecture, everything: bool = False) -> Iterator[Line]:
    """The commands of a stream. Registers are those that changed since the operation before it that
    depends on them; `everything` lists all that the operation depends on."""
    shown: dict[Register, int] = {}
    for command in decode(words, accelerator.language):
        if not isinstance(command, Operation):
            yield _describe_simple(command)
            continue
        registers = []
        for register in Register:
            if register not in command.registers or register not in registers_of(command.op, command.language):
                continue
            value = command[register]
            if everything or shown.get(register) != value:
                registers.append((register.name, value, describe_value(register, value, command)))
                shown[register] = value
        yield Line(
            command.offset_bytes,
            _operation_title(command),
            summary(command),
            tuple(registers),
            tuple(_accesses(command, accelerator)),
        )


def _describe_simple(command: Command) -> Line:
    assert not isinstance(command, Operation)
    if isinstance(command, Wait):
        kind = "kernels" if command.op is Op.KERNEL_WAIT else "DMAs"
        text = f"go on when at most {command.outstanding} {kind} are unfinished"
        return Line(command.offset_bytes, f"{command.op.name} {command.outstanding}", text)
    assert isinstance(command, Marker)
    text = f"go on at stream offset {command.target:#x}" if command.op.has_payload else ""
    return Line(command.offset_bytes, f"{command.op.name} {command.parameter:#x}", text)


def _operation_title(op: Operation) -> str:
    mode = MODES.get(op.op)
    return op.op.name if mode is None else f"{op.op.name} {name_in(mode, op.parameter)}"


def summary(op: Operation) -> str:
    """One line: shapes and places of what an operation works on."""
    if op.op is Op.DMA_START:
        target = op[Register.DMA0_DST_REGION]
        inside = DmaRegion.INTERNAL.value_in(target)
        place = "SHRAM" if inside else f"region {DmaRegion.REGION.value_in(target)}"
        source = DmaRegion.REGION.value_in(op[Register.DMA0_SRC_REGION])
        return (
            f"{op[Register.DMA0_LEN]} bytes, region {source} {op[Register.DMA0_SRC]:#x} -> "
            f"{place} {op[Register.DMA0_DST]:#x}"
        )
    views = [FeatureMap.ifm(op), FeatureMap.ifm2(op)]
    parts = [" , ".join(_view(v) for v in views if v is not None), "->", _view(FeatureMap.ofm(op))]
    if op.op not in (Op.ELEMENTWISE, Op.RESIZE):
        kernel = Kernel.from_registers(op)
        parts.append(f"kernel {kernel.height}x{kernel.width} stride {kernel.stride_y}x{kernel.stride_x}")
    table = lut_span(op)
    if table is not None:
        parts.append(f"LUT {table[0] // 256}")
    return " ".join(parts)


def _view(view: FeatureMap) -> str:
    kind = f"{'int' if view.signed else 'uint'}{8 * view.element_bytes}"
    layout = "NHCWB16" if view.brick else "NHWC"
    if not view.depth:
        return f"{kind} not in memory"
    return f"{kind}[{view.height},{view.width},{view.depth}] {layout} @{view.region}:{view.bases[0]:#x}"


def _accesses(op: Operation, accelerator: Architecture) -> Iterator[dict[str, Any]]:
    for access in accesses(op, accelerator):
        ranges = access.ranges
        if len(ranges):
            yield {
                "role": access.role.value,
                "region": "shram" if access.region == SHRAM_REGION else access.region,
                "first_byte": int(ranges[0, 0]),
                "end": int(ranges[-1, 1]),
                "bytes": int((ranges[:, 1] - ranges[:, 0]).sum()),
                "writes": access.is_write,
            }


def describe_value(register: Register, value: int, op: Operation) -> str:
    """The meaning of a raw value; "" when it is just a number."""
    if register in ADDRESS_REGISTERS:
        return f"{value:#x}"
    if register in _ONE_LESS:
        return str(value + 1)
    if register in _NUMBER_OF:
        return str(decode_int16(value, bool(Precision.SIGNED.value_in(op.get(_NUMBER_OF[register].precision)))))
    to_text = REGISTER_TEXT[op.language].get(register)
    return "" if to_text is None else to_text(value)


_ONE_LESS = frozenset(r for r in Register if r.name.endswith("_M1"))  # so the architecture names what it holds less one
_NUMBER_OF = {view.zero_point: view for view in FEATURE_MAPS.values()} | {
    Register.IFM2_SCALAR: IFM2,
    Register.ACTIVATION_MIN: OFM,
    Register.ACTIVATION_MAX: OFM,
}
