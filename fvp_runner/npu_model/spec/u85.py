"""What the registers of Ethos-U85's operations say, and which parts of its language a reference has confirmed.

Invariant: the results are the kinds of spec of `operations` wherever an operation is the same. A chained map has no
address, whatever its address registers hold; a scalar is no map. The micro-block is one that the configuration has;
every operation names all its inputs in `inputs`. Either input of an ELEMENTWISE may be broadcast, chained or a scalar;
scales that it does not use are identities. An indexed side of a DMA_START touches at most the rows 0 to DMA0_IDX_MAX;
which of them, only memory says. `CONFIRMED` names what operators of TFLite (`tests/npu_model/test_u85_model.py` holds
it against the streams of its tests) and of TOSA (`benchmarks.tosa_conformance`, a sample of it in tests/tosa) reach and
equals their references on every element; what is not in it is executed from its description, and every report of a
stream says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npu_memplan.ethosu.arch import Architecture, Language
from npu_memplan.ethosu.stream.decode import Command, Operation
from npu_memplan.ethosu.stream.isa import (
    AccumulatorInput,
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
)

from ..arithmetic.rescale import Scale
from ..arithmetic.weights import StreamOrder
from .feature_maps import (
    ELEMENT_TYPES,
    Activation,
    InputSpec,
    KernelSpec,
    MapLayout,
    OutputSpec,
    Registers,
    Shape3,
    Window,
)
from .operations import (
    INTERNAL,
    DmaSpec,
    ElementwiseSpec,
    Index,
    Side,
    Span,
    SumSpec,
    check_mode,
    input_depth,
    read_extents,
)

_ROUNDINGS = {
    ScaleRounding.DOUBLE_SYMMETRIC: Rounding.TFL,
    ScaleRounding.NATURAL: Rounding.NATURAL,
    ScaleRounding.TRUNCATE_TO_ZERO: Rounding.TRUNCATE,
}
_CHAINING_BUFFERS = range(8)


def read_input(regs: Registers, name: str, shape: Shape3) -> InputSpec:
    """IFM or IFM2 with the extents that the operation gives it."""
    register = Register[f"{name}_PRECISION"]
    word = regs.checked_bits(register, 0b1100_0000_1100_1101)
    dtype, brick = ELEMENT_TYPES[word >> 2 & 3, word & 1], bool(regs.one_of(register, (0, 1), word >> 6 & 3))
    storage = MapStorage(regs.one_of(register, (0, 2, 3), word >> 14))  # no compiler is known to emit 3x1 tiles
    zero = regs.signed_16(Register[f"{name}_ZERO_POINT"], dtype.kind == "i")
    if storage is MapStorage.NONE:
        value = regs.low_word(Register.OP_SCALAR)
        return InputSpec(name, dtype, zero, None, (1, 1, 1), value - (1 << 32) if value >> 31 else value)
    if storage is MapStorage.CHAINED:
        return InputSpec(name, dtype, zero, _read_chained_map(regs, name, dtype, zero), shape)
    return InputSpec(name, dtype, zero, MapLayout.read_registers(regs, name, dtype, brick, *shape[:2]), shape)


def _read_chained_map(regs: Registers, name: str, dtype: np.dtype[Any], zero: int) -> MapLayout:
    buffer = regs.one_of(Register[f"{name}_REGION"], _CHAINING_BUFFERS)
    return MapLayout(name, 0, (0, 0, 0, 0), 1, 1, 1, 0, 0, 0, dtype, False, zero, buffer)


def result_shape(regs: Registers) -> Shape3:
    """Rows, columns and channels that the operation computes."""
    r = Register
    return regs.raw_value(r.OFM_HEIGHT_M1) + 1, regs.raw_value(r.OFM_WIDTH_M1) + 1, regs.raw_value(r.OFM_DEPTH_M1) + 1


def read_scale(regs: Registers, register: Register) -> Scale:
    """OFM_SCALE, IFM_SCALE or IFM2_SCALE."""
    word = regs.raw_value(register)
    parameter = word >> 32
    legal = tuple(ScaleRounding) if register is Register.OFM_SCALE else (0, 1)
    mode = ScaleRounding(regs.one_of(register, legal, parameter >> 13 & 7))
    early = parameter >> 6 & 0x1F
    if early > 30 or parameter >> 11 & 3:
        regs.raise_illegal(f"{register.name} = {word:#x} has bits that mean nothing")
    return Scale.single_scale(word & 0xFFFFFFFF, parameter & 0x3F, _ROUNDINGS.get(mode, mode), 31 - early)


def final_output(regs: Registers, output: OutputSpec) -> OutputSpec:
    """`output`, of an operation that has no accumulators to keep."""
    if output.kept:
        regs.raise_illegal(f"{regs.op.name} writes its results nowhere, but only sums can be kept")
    return output


def read_output(regs: Registers) -> OutputSpec:
    """OFM, activation and limits."""
    r = Register
    word = regs.raw_value(r.OFM_PRECISION)
    dtype = ELEMENT_TYPES[word >> 1 & 3, word & 1]
    brick = bool(regs.one_of(r.OFM_PRECISION, (0, 1), word >> 6 & 3))
    reverse = (word >> 9 & 3) - 1
    order = StoredOrder(regs.one_of(r.OFM_PRECISION, tuple(StoredOrder), word >> 11 & 7))
    storage = MapStorage(regs.one_of(r.OFM_PRECISION, (0, 2, 3), word >> 14))
    height, width, depth = result_shape(regs)
    made = (height, width, depth)
    stored = made[order.axes[0]], made[order.axes[1]]
    kept = bool(regs.raw_value(r.ACC_FORMAT) >> 6 & 1) or storage is MapStorage.NONE
    zero = regs.signed_16(r.OFM_ZERO_POINT, dtype.kind == "i")
    if storage is MapStorage.TILE_2X2 and not kept:
        layout = MapLayout.read_registers(regs, "OFM", dtype, brick, *stored)
    elif kept:
        layout = MapLayout("OFM", 0, (0, 0, 0, 0), 1, 1, 1, 0, 0, 0, dtype, False, zero)
    else:
        layout = _read_chained_map(regs, "OFM", dtype, zero)
    table, slot = _table_kind(regs)
    low, high = _clamp_limits(regs, dtype, table)
    return OutputSpec(
        layout=layout,
        height=height,
        width=width,
        depth=depth,
        rounding=Rounding.TFL,
        global_scale=bool(word & 256),
        activation=Activation.NONE if table is TableKind.NONE else Activation.LUT,
        lut_slot=slot,
        low=low,
        high=high,
        zero_point=zero,
        table=table,
        axes=order.axes,
        reverse=reverse,
        wraps=table is TableKind.NONE and bool(regs.raw_value(r.ACTIVATION) >> 12 & 1),
        kept=kept,
    )


def _table_kind(regs: Registers) -> tuple[TableKind, int]:
    """Kind of the look-up, and its first slot of 256 bytes."""
    word = regs.checked_bits(Register.ACTIVATION, 0x10FF)
    kind = TableKind(regs.one_of(Register.ACTIVATION, tuple(TableKind), word & 0x1F))
    start = (word >> 5 & 7) * kind.size_bytes
    if start + kind.size_bytes > 2048:
        regs.raise_illegal(
            f"ACTIVATION = {word:#x}: table {word >> 5 & 7} of {kind.size_bytes} bytes is beyond the LUT RAM"
        )
    return kind, start // 256


def _clamp_limits(regs: Registers, dtype: np.dtype[Any], table: TableKind) -> tuple[int, int]:
    """The limits that results are clamped to before the table and the narrowing to the output's type."""
    indexed = {TableKind.U8_U8: "u1", TableKind.S16_S16: "i2", TableKind.S16_S32: "i2"}
    info = np.iinfo(np.dtype(indexed.get(table, "i1")) if table is not TableKind.NONE else dtype)
    if table in (TableKind.TANH, TableKind.SIGMOID):  # they take values before these are narrowed
        info = np.iinfo(np.int32)
    low, high = int(info.min), int(info.max)
    if not regs.raw_value(Register.ACTIVATION) >> 12 & 1 and table not in (TableKind.TANH, TableKind.SIGMOID):
        signed = table is not TableKind.U8_U8 if table is not TableKind.NONE else dtype.kind == "i"
        low = max(low, regs.signed_16(Register.ACTIVATION_MIN, signed))
        high = min(high, regs.signed_16(Register.ACTIVATION_MAX, signed))
        if low > high:
            regs.raise_illegal(f"ACTIVATION_MIN {low} is above ACTIVATION_MAX {high}")
    return low, high


def _read_map(regs: Registers, name: str, shape: Shape3) -> InputSpec:
    found = read_input(regs, name, shape)
    if found.layout is None:
        regs.raise_illegal(f"{name}_PRECISION says that the input is a scalar, which only element-wise operations take")
    return found


def _micro_depth(regs: Registers, accelerator: Architecture) -> int:
    """Channels of the micro-block that ACC_FORMAT chooses."""
    code = regs.one_of(Register.ACC_FORMAT, tuple(MicroBlock), regs.raw_value(Register.ACC_FORMAT) >> 8 & 7)
    plane = MicroBlock(code).plane
    for shape in accelerator.micro_blocks:
        if (shape.height, shape.width) == plane:
            return shape.depth
    known = ", ".join(f"{s.height}x{s.width}" for s in accelerator.micro_blocks)
    regs.raise_illegal(f"ACC_FORMAT selects micro-blocks of {plane[0]}x{plane[1]}, but {accelerator.name} has {known}")


def read_sum(regs: Registers, accelerator: Architecture) -> SumSpec:
    r = Register
    pool = None
    if regs.op is Op.POOL:
        pool = PoolMode(regs.one_of(r.OFM_PRECISION, tuple(PoolMode), regs.operation.parameter))
    elif regs.operation.parameter & ~(1 if regs.op is Op.CONV else 0):
        regs.raise_illegal(f"{regs.op.name} has parameter {regs.operation.parameter}, which means nothing")
    regs.checked_bits(r.KERNEL_STRIDE, 0x25F)  # pieces of 4x4 are not known to be emitted
    word = regs.checked_bits(r.ACC_FORMAT, 0x773)
    wide = bool(regs.one_of(r.ACC_FORMAT, (0, 1), word & 3))
    start = AccumulatorInput(regs.one_of(r.ACC_FORMAT, (0, 1, 2), word >> 4 & 3))
    output = read_output(regs)
    window = Window.read_registers(regs, output.height, output.width)
    depthwise = regs.op is Op.DEPTHWISE
    depth, sums = input_depth(regs, pool, output)
    source = _read_map(regs, "IFM", (*window.input_shape, depth))
    micro_depth = _micro_depth(regs, accelerator)
    by_matrix = regs.op is Op.CONV and bool(regs.operation.parameter & 1)
    matrix = _read_map(regs, "IFM2", (1, output.depth, depth)) if by_matrix else None
    loaded = _read_map(regs, "IFM2", result_shape(regs)) if start is AccumulatorInput.IFM2 else None
    format_word = regs.checked_bits(r.WEIGHT_FORMAT, 0x11) if pool is None else 0
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
            block_depth=regs.raw_value(r.OFM_BLK_DEPTH_M1) + 1,
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
        streams = tuple(Span.read_registers(regs, "WEIGHT", str(core) if core else "") for core in cores)
    scales = () if output.global_scale else (Span.read_registers(regs, "SCALE"),)
    scale = read_scale(regs, r.OFM_SCALE)
    if pool is PoolMode.AVERAGE and divides_average(regs.raw_value(r.OFM_SCALE), window.height * window.width):
        scale = Scale.single_scale(1, 0, scale.rounding)  # the average divides itself, and once
    return SumSpec(
        output, window, source, pool, depthwise, sums, slice_depth, 48 if wide else 32, scale,
        streams, scales, (6, 15) if wide else (4, 31), orders, fast, matrix, loaded, start,
    )  # fmt: skip


def divides_average(word: int, taps: int) -> bool:
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
    output = final_output(regs, read_output(regs))
    height, width = regs.raw_value(r.KERNEL_HEIGHT_M1) + 1, regs.raw_value(r.KERNEL_WIDTH_M1) + 1
    source = _read_map(regs, "IFM", (height, width, output.depth))
    axes = [_resize_axis(regs, letter) for letter in "YX"]
    return ResizeSpec(output, kind, source, axes[0], axes[1], read_scale(regs, r.OFM_SCALE))


def _resize_axis(regs: Registers, letter: str) -> ResizeAxis:
    numerator = regs.checked_bits(Register[f"RESIZE_{letter}_SCALE_N_M1"], 0x7FF) + 1
    offset = regs.checked_bits(Register[f"RESIZE_{letter}_OFFSET"], 0xFFF)
    word = regs.raw_value(Register[f"RESIZE_{letter}_STEP"])
    return ResizeAxis(numerator, (word >> 32 & 0xF) * numerator + (word & 0x7FF), offset - ((offset & 0x800) << 1))


Kind = ElementwiseMode
_SCALED_INPUTS = frozenset((Kind.ADD, Kind.SUB, Kind.MIN, Kind.MAX, Kind.ABS, Kind.LRELU, Kind.MUL))
_UNSCALED_OUTPUT = frozenset((Kind.CLZ, Kind.SHL, Kind.SHR, Kind.LSR, Kind.DIV))


def read_elementwise(regs: Registers) -> ElementwiseSpec:
    r = Register
    kind = ElementwiseMode(regs.one_of(r.OFM_PRECISION, tuple(ElementwiseMode), regs.operation.parameter))
    output = final_output(regs, read_output(regs))
    first = read_input(regs, "IFM", _result_shape_of(regs, r.IFM_BROADCAST))
    second = None if kind.is_unary else read_input(regs, "IFM2", _result_shape_of(regs, r.IFM2_BROADCAST))
    if first.layout is None and second is not None and second.layout is None:
        regs.raise_illegal("both inputs are scalars, but there is one OP_SCALAR")
    plain, made = Scale.single_scale(1, 0), read_scale(regs, r.OFM_SCALE)
    scaled = kind in _SCALED_INPUTS
    if kind is Kind.MUL and first.dtype.itemsize == 4:  # only the shift takes part in a 32-bit product
        made = replace(made, multiplier=plain.multiplier)
    other = scaled and (second is not None or kind is Kind.LRELU)
    return ElementwiseSpec(
        output,
        first,
        second,
        kind,
        read_scale(regs, r.IFM_SCALE) if scaled else plain,
        read_scale(regs, r.IFM2_SCALE) if other else plain,
        plain if kind in _UNSCALED_OUTPUT else made,
        made.rounding,
    )


def _result_shape_of(regs: Registers, register: Register) -> Shape3:
    word = InputBroadcast(regs.checked_bits(register, 0xF))
    made = result_shape(regs)
    axes = (InputBroadcast.HEIGHT, InputBroadcast.WIDTH, InputBroadcast.DEPTH)
    height, width, depth = (1 if word & axis else extent for axis, extent in zip(axes, made, strict=True))
    return height, width, depth


_INDEXED = 1 << 11
_MAX_ROWS = 1 << 24
_INDEX_BYTES = 4


def read_transfer(regs: Registers) -> DmaSpec:
    check_mode(regs)
    r = Register
    source, target = regs.checked_bits(r.DMA0_SRC_REGION, 0xF07), regs.checked_bits(r.DMA0_DST_REGION, 0x907)
    dimensions = regs.one_of(r.DMA0_SRC_REGION, (0, 1, 2), source >> 9 & 3) + 1
    gathers, scatters = bool(source & _INDEXED), bool(target & _INDEXED)
    if gathers and scatters:
        regs.raise_illegal("both sides of the transfer are indexed, but there is one index")
    planes, rows, length = read_extents(regs, dimensions > 1 or gathers or scatters, dimensions > 2, _MAX_ROWS)
    index = None
    if gathers or scatters:
        apart = regs.raw_value(r.DMA0_IDX_SKIP1) if dimensions > 2 else 0
        index = Index(
            regs.region_number(r.DMA0_IDX_REGION),
            regs.raw_value(r.DMA0_IDX),
            _INDEX_BYTES * rows + apart,
            regs.low_word(r.DMA0_IDX_MAX),
        )
    choices = 0 if index is None else index.largest + 1
    if choices > _MAX_ROWS:
        regs.raise_illegal(f"DMA0_IDX_MAX allows {choices} rows; more than {_MAX_ROWS} are refused")

    def transfer_side(name: str, word: int, base: Register, near: Register, far: Register, indexed: bool) -> Side:
        row = regs.raw_value(near) if dimensions > 1 or indexed else 0
        plane = regs.raw_value(far) if dimensions > 2 else 0
        inside = bool(word & INTERNAL)
        return Side(name, word & 7, inside, regs.raw_value(base), (plane, row), choices if indexed else 0)

    return DmaSpec(
        transfer_side("DMA0_SRC", source, r.DMA0_SRC, r.DMA0_SRC_STRIDE0, r.DMA0_SRC_STRIDE1, gathers),
        transfer_side("DMA0_DST", target, r.DMA0_DST, r.DMA0_DST_STRIDE0, r.DMA0_DST_STRIDE1, scatters),
        (planes, rows, length),
        index,
    )


def operation_features(operation: Operation) -> Iterator[str]:
    """The features that an operation uses, in words; registers that mean nothing to it are left out."""
    get = operation.get
    if operation.op is Op.DMA_START:
        yield from _transfer_features(get(Register.DMA0_SRC_REGION), get(Register.DMA0_DST_REGION))
        return
    yield _operation_kind(operation)
    output, accumulators = get(Register.OFM_PRECISION), get(Register.ACC_FORMAT)
    yield from _unusual_value("stored order", StoredOrder, output >> 11 & 7, StoredOrder.HWC)
    yield from _unusual_value("stored backwards", StoredBackwards, output >> 9 & 3, StoredBackwards.NONE)
    yield from _unusual_value("look-up", TableKind, get(Register.ACTIVATION) & 31, TableKind.NONE)
    if operation.op is not Op.RESIZE and (operation.op is Op.ELEMENTWISE or output >> 8 & 1):
        yield from _unusual_value("rounding", ScaleRounding, get(Register.OFM_SCALE) >> 45 & 7, None)
    if 8 in (1 << (output >> 1 & 3), 1 << (get(Register.IFM_PRECISION) >> 2 & 3)):
        yield "64-bit elements"
    if operation.op in (Op.CONV, Op.DEPTHWISE, Op.POOL):
        if accumulators & 3:
            yield "48-bit sums"
        yield from _unusual_value("sums start from", AccumulatorInput, accumulators >> 4 & 3, AccumulatorInput.RESET)
    if operation.op is Op.POOL and _may_divide_twice(operation):
        yield "POOL AVERAGE, whose scale may divide by the window too (as Vela up to 5.0 writes it),"
    if operation.op in (Op.CONV, Op.DEPTHWISE) and not operation.parameter & 1:
        weights = get(Register.WEIGHT_FORMAT)
        if weights & 1:
            yield "fast weights"
        if weights & 16:
            yield "2:4 weights"


def unconfirmed_features(commands: Iterable[Command]) -> tuple[str, ...]:
    """One line for each part that no reference has confirmed, with the first operation that uses it."""
    found: dict[str, Operation] = {}
    for operation in commands:
        if not isinstance(operation, Operation) or operation.language is not Language.U85:
            continue
        for name in operation_features(operation):
            if name not in CONFIRMED:
                found.setdefault(name, operation)
    return tuple(
        f"{name} is unconfirmed: modelled from its description, no reference confirms it (first at "
        f"{operation.op.name} at stream offset {operation.offset_bytes:#x})"
        for name, operation in found.items()
    )


def _operation_kind(operation: Operation) -> str:
    parameter = operation.parameter
    if operation.op is Op.ELEMENTWISE:
        return f"ELEMENTWISE {_kind_name(ElementwiseMode, parameter)}"
    if operation.op is Op.POOL:
        return f"POOL {_kind_name(PoolMode, parameter)}"
    if operation.op is Op.RESIZE:
        return f"RESIZE {_kind_name(ResizeKind, parameter)}"
    return "matrix product" if operation.op is Op.CONV and parameter & 1 else operation.op.name


def _transfer_features(source: int, target: int) -> Iterator[str]:
    yield ("transfer", "transfer of rows", "transfer of planes", "transfer 3")[source >> 9 & 3]
    if source >> 11 & 1:
        yield "gather"
    if target >> 11 & 1:
        yield "scatter"


def _may_divide_twice(operation: Operation) -> bool:
    """Whether the scale of an average may be a ratio of scales over the elements of its window.

    Vela up to 5.0 writes such scales, Vela 5.2 the ratio alone. A scale of 1/elements is recognised
    (`divides_average`); a ratio near it could be either, and the model takes it for the ratio.
    """
    if operation.parameter != PoolMode.AVERAGE:
        return False
    word = operation.get(Register.OFM_SCALE)
    taps = (operation.get(Register.KERNEL_HEIGHT_M1) + 1) * (operation.get(Register.KERNEL_WIDTH_M1) + 1)
    times = math.ldexp((word & 0xFFFFFFFF) * taps, -(word >> 32 & 63))
    return taps > 1 and 1 / 2 < times < 2 and not divides_average(word, taps)


def _unusual_value(what: str, kinds: type, value: int, usual: object) -> Iterator[str]:
    if value != usual:
        yield f"{what} {_kind_name(kinds, value)}"


def _kind_name(kinds: type, value: int) -> str:
    try:
        return str(kinds(value).name)
    except ValueError:
        return str(value)


_OF_TFLITE = {
    "": "CONV,DEPTHWISE,matrix product,transfer,gather,64-bit elements,48-bit sums,fast weights,2:4 weights",
    "ELEMENTWISE ": "ABS,ADD,CLZ,DIV,LRELU,MAX,MIN,MUL,SHL,SHR,SUB",
    "POOL ": "ARGMAX_X,AVERAGE,MAX,NONE,REDUCE_SUM,SUM",
    "RESIZE ": "BILINEAR,NEAREST",
    "look-up ": "S16_S16,S8_S32,S8_S8,SIGMOID,TANH",
    "rounding ": "DOUBLE_SYMMETRIC,NATURAL,TRUNCATE_TO_LOWER",
    "stored order ": "CHW,HCW,WCH,WHC",
    "sums start from ": "IFM2",
}
_OF_TOSA = {
    "": "scatter,transfer of rows,transfer of planes",
    "ELEMENTWISE ": "AND,AND_NOT,CMP_EQ,CMP_GE,CMP_GT,CMP_NE,LSR,NOT,OR,XOR",
    "POOL ": "MIN",
    "look-up ": "S16_S32",
    "stored backwards ": "C,H,W",
    "stored order ": "CWH",
    "sums start from ": "KEEP",
}
CONFIRMED = frozenset(
    group + kind for found in (_OF_TFLITE, _OF_TOSA) for group, kinds in found.items() for kind in kinds.split(",")
)
