"""How the registers and constants of each family say an operation that lowering has described.

Invariant: layers describe operations once, in the registers of Ethos-U55; what another family says otherwise is here.
An operation of Ethos-U85 computes the same values from the same maps; roundings stand with their scales, either input
may be broadcast (so that operands in the other order change places), an average divides by itself only, tables state
their types, and no registers divide SHRAM. Every result is that of the functions which are built into Ethos-U55:
TFLite's 256 values of the sigmoid at steps of 1/24, between which it draws lines, and their mirror image below zero.
Sums of 32 bits have biases of 32 and multipliers of 31 bits, those of 48 bits have 48 and 15; what does not fit is
reported before anything is encoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...fixed_point import largest_sum
from .. import weight_codec
from ..arch import Architecture, Language
from ..program.access import Kernel, is_wide, micro_block, weight_arrangement
from ..program.program import NpuOperation
from ..schedule.rams import round_up
from ..stream.decode import Operation
from ..stream.fields import (
    IFM,
    IFM2,
    AccumulatorWord,
    Activation,
    InputPrecision,
    InputWord,
    OutputPrecision,
    Precision,
    ScaledWord,
    ScaleWord,
    TableWord,
    WeightWord,
)
from ..stream.isa import (
    ActivationFunction,
    Broadcast,
    ElementwiseMode,
    InputBroadcast,
    MapStorage,
    Op,
    PoolMode,
    Rounding,
    ScaleRounding,
    TableKind,
)
from ..stream.isa import Register as R
from ..weight_codec import WeightCodecError
from ..weight_order import is_sparse
from .scaling import Scale


@dataclass(frozen=True, slots=True)
class Streams:
    """Bytes that an operation with weights reads; of each core, as far as each has its own."""

    weights: tuple[bytes, ...]
    scales: tuple[bytes, ...]


Weights = NDArray[np.int16]
Biases = NDArray[np.int64]
Scales = Sequence[Scale]


@dataclass(frozen=True, slots=True)
class Form:
    """The functions of one language.

    `kernel`: an operation of Ethos-U55 in this language, with sums of 48 bits and sparse weights where that is stated.
    `fitted`: weights and scales as the multipliers take them, and whether sums have more than 32 bits.
    `encode`: the streams of an operation whose blocks are chosen.
    `function_table`: what the table memory holds for a function of 16-bit values; None: the function is built in.
    `may_be_sparse`: whether a convolution's weights can be stored, and multiplied, as two of every four.
    """

    kernel: Callable[[NpuOperation, bool, bool], NpuOperation]
    fitted: Callable[[Weights, Biases, Scales, int], tuple[Weights, Scales, bool]]
    encode: Callable[[Operation, Architecture, Weights, Biases, Scales], Streams]
    function_table: Callable[[ActivationFunction], NDArray[np.int64] | None]
    may_be_sparse: Callable[[Weights], bool]


def keep_kernel(operation: NpuOperation, wide: bool, sparse: bool) -> NpuOperation:
    return operation


def fit_weights_u55(
    weights: NDArray[np.int16], bias: NDArray[np.int64], scales: Sequence[Scale], ifm_bits: int
) -> tuple[NDArray[np.int16], Sequence[Scale], bool]:
    return weights, scales, ifm_bits == 16


def no_function_table(function: ActivationFunction) -> NDArray[np.int64] | None:
    return None


def never_sparse(weights: NDArray[np.int16]) -> bool:
    return False


def encode_u55(
    operation: Operation,
    accelerator: Architecture,
    weights: NDArray[np.int16],
    bias: NDArray[np.int64],
    scales: Sequence[Scale],
) -> Streams:
    cores, window = accelerator.cores, Kernel.from_registers(operation)
    streams, tables = [], []
    for core in range(cores):
        channels = range(core, len(bias), cores)
        if not channels:
            streams.append(b"")
            tables.append(b"")
            continue
        streams.append(
            weight_codec.encode_weights(
                weights[core::cores],
                accelerator,
                block_depth=-(-(operation[R.OFM_BLK_DEPTH_M1] + 1 - core) // cores),
                ifm_bits=8 << InputPrecision.SIZE.value_in(operation[R.IFM_PRECISION]),
                depthwise=operation.op is Op.DEPTHWISE,
                part_kernel_first=window.part_kernel_first,
                dilation_xy=(window.dilation_x, window.dilation_y),
            )
        )
        used = [scales[c if len(scales) > 1 else 0] for c in channels]
        biases = [int(bias[c]) for c in channels]
        tables.append(weight_codec.encode_scales(biases, [s.multiplier for s in used], [s.shift for s in used]))
    return Streams(tuple(streams), tuple(tables))


_ONLY_U55 = frozenset(
    (R.IFM_IB_END, R.AB_START, R.IFM2_IB_START, R.PARALLEL_MODE, R.IFM2_SCALAR, R.OPA_SCALE, R.OPB_SCALE)
)
_ROUNDINGS = {
    Rounding.TFL: ScaleRounding.DOUBLE_SYMMETRIC,
    Rounding.TRUNCATE: ScaleRounding.TRUNCATE_TO_ZERO,
    Rounding.NATURAL: ScaleRounding.NATURAL,
}
_HEADROOM = {1: 20, 2: 15}  # bits by which an operand that is rescaled is shifted to the left, by its bytes
_FUNCTIONS = {ActivationFunction.TANH: TableKind.TANH, ActivationFunction.SIGMOID: TableKind.SIGMOID}
_WIDE_TABLES = {2: TableKind.S16_S16, 4: TableKind.S8_S32}  # by bytes of a result
_SLOT_BYTES = 256
_UNITY = ScaleWord.MULTIPLIER.word_with(1)


def convert_u85(operation: NpuOperation, wide: bool, sparse: bool) -> NpuOperation:
    """The same kernel. `wide`: its sums have 48 bits; `sparse`: of every four weights two are zero at least."""
    op, parameter, registers = operation.op, operation.parameter, operation.registers
    made = {register: value for register, value in registers.items() if register not in _ONLY_U55}
    moved = dict(operation.addresses)
    output = registers[R.OFM_PRECISION]
    size = 1 << OutputPrecision.SIZE.value_in(output)
    rounding = _ROUNDINGS[Rounding(OutputPrecision.ROUNDING.value_in(output))]
    kept = OutputPrecision.SIGNED, OutputPrecision.SIZE, OutputPrecision.BRICK, OutputPrecision.GLOBAL_SCALE
    made[R.OFM_PRECISION] = sum(field.word_with(field.value_in(output)) for field in kept)
    made[R.IFM_PRECISION] = _input(registers[R.IFM_PRECISION])
    made[R.ACC_FORMAT] = AccumulatorWord.FORMAT.word_with(wide)
    made[R.OFM_SCALE] = registers.get(R.OFM_SCALE, _UNITY) | ScaledWord.ROUNDING.word_with(rounding)
    made[R.ACTIVATION] = _activation_word(registers[R.ACTIVATION], size, bool(Precision.SIGNED.value_in(output)))
    if size == 4 and Activation.table(registers[R.ACTIVATION]) is None:
        made[R.OFM_ZERO_POINT] = 0  # where nothing narrows them, Ethos-U55 adds none
    if op is Op.POOL and parameter == PoolMode.AVERAGE:
        pads = (R.IFM_PAD_TOP, R.IFM_PAD_LEFT, R.IFM_PAD_BOTTOM, R.IFM_PAD_RIGHT)
        parameter = PoolMode.AVERAGE if any(registers[pad] for pad in pads) else PoolMode.SUM
    elif op is Op.ELEMENTWISE:
        _scale_operands(ElementwiseMode(parameter), registers, made)
        if R.IFM2_BROADCAST in registers:
            made, moved = _broadcast(registers, made, moved)
        else:
            made[R.IFM_BROADCAST] = 0
    elif op is not Op.POOL:
        made[R.WEIGHT_FORMAT] = WeightWord.SPARSE.word_with(sparse)
        if R.IFM2_PRECISION in registers:  # of a product of two maps
            made[R.IFM2_PRECISION] = _input(registers[R.IFM2_PRECISION])
    return replace(operation, parameter=int(parameter), registers=made, addresses=moved, language=Language.U85)


def _input(word: int) -> int:
    kept = InputPrecision.SIGNED, InputPrecision.SIZE, InputPrecision.BRICK
    return sum(field.word_with(field.value_in(word)) for field in kept)


def _activation_word(word: int, size: int, signed: bool) -> int:
    """A table's place is counted in tables of its size; of 32 bits nothing is clamped without a table."""
    slot = Activation.table(word)
    if slot is None:
        function = ActivationFunction(Activation.FUNCTION.value_in(word))
        if function is ActivationFunction.NONE:
            return TableWord.UNCLIPPED.word_with(size == 4)
        return TableWord.FUNCTION.word_with(_FUNCTIONS[function])
    kind = _WIDE_TABLES.get(size, TableKind.S8_S8 if signed else TableKind.U8_U8)
    return TableWord.FUNCTION.word_with(kind) | TableWord.TABLE.word_with(slot * _SLOT_BYTES // kind.size_bytes)


def _scale_operands(mode: ElementwiseMode, registers: Mapping[R, int], made: dict[R, int]) -> None:
    """IFM_SCALE and IFM2_SCALE; only the shift of a 32-bit product's scale takes part."""
    size = 1 << InputPrecision.SIZE.value_in(registers[R.IFM_PRECISION])
    first = second = _UNITY
    if mode in (ElementwiseMode.ADD, ElementwiseMode.SUB) and size < 4:
        scaled = InputPrecision.SCALED_OPERAND.value_in(registers[R.IFM_PRECISION])
        first, second = registers[R.OPA_SCALE], registers[R.OPB_SCALE]
        if scaled:
            headroom = _HEADROOM[size]
            one = first | ScaledWord.DOUBLE_ROUND.word_with(headroom)
            other = ScaleWord.MULTIPLIER.word_with(1 << (headroom - 1))
            first, second = (one, other) if scaled == 1 else (other, one)
    made[R.IFM_SCALE] = first
    if not mode.is_unary:
        made[R.IFM2_SCALE] = second
    if mode is ElementwiseMode.MUL and size == 4:
        shift = ScaleWord.SHIFT.value_in(made[R.OFM_SCALE])
        made[R.OFM_SCALE] = (
            made[R.OFM_SCALE] & ScaledWord.ROUNDING.word_with(7) | ScaleWord.SHIFT.word_with(shift) | _UNITY
        )


_Addresses = dict[R, tuple[str, int]]


def _broadcast(registers: Mapping[R, int], made: dict[R, int], moved: _Addresses) -> tuple[dict[R, int], _Addresses]:
    """Both operands' broadcasts, and the operands in their order; a scalar is in OP_SCALAR."""
    word = Broadcast(registers[R.IFM2_BROADCAST])
    made[R.IFM_BROADCAST], made[R.IFM2_PRECISION] = 0, _input(registers[R.IFM2_PRECISION])
    made[R.IFM2_BROADCAST] = int(word & (Broadcast.HEIGHT | Broadcast.WIDTH | Broadcast.DEPTH))
    if Broadcast.SCALAR in word:
        made[R.IFM2_BROADCAST] = int(InputBroadcast.SCALAR)
        made[R.IFM2_PRECISION] |= InputWord.STORAGE.word_with(MapStorage.NONE)
        made[R.OP_SCALAR] = registers[R.IFM2_SCALAR] & 0xFFFFFFFF
    if Broadcast.SWAP_OPERANDS not in word:
        return made, moved
    return {_OTHER.get(r, r): value for r, value in made.items()}, {_OTHER.get(r, r): at for r, at in moved.items()}


_PAIRS = [*zip(IFM.registers_in_order, IFM2.registers_in_order, strict=True), (R.IFM_BROADCAST, R.IFM2_BROADCAST)]
_OTHER = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}}
"""Where a register's value goes when the operands change places; scales are in their order already."""


_STEPS, _LAST = 24, 255


@cache
def _sigmoid() -> tuple[int, ...]:
    """256 values with 16 fraction bits: lowered by half of what a line would be too high in the middle."""

    def real_sigmoid(step: float) -> float:
        return 1 / (1 + math.exp(-step / _STEPS))

    lowered = (
        real_sigmoid(i) - ((real_sigmoid(i) + real_sigmoid(i + 1)) / 2 - real_sigmoid(i + 0.5)) / 2
        for i in range(_LAST)
    )
    return (*(math.floor(65536 * value + 0.5) for value in lowered), 65535)


def function_table_u85(function: ActivationFunction) -> NDArray[np.int64]:
    """512 words `slope << 16 | base` for steps from -256 up: [512], unsigned 32 bits."""
    above = _sigmoid()
    # at steps -255 .. 255; of the sigmoid less 1/2 with 16 fraction bits, of tanh = 2 * sigmoid - 1 with 15
    values = [value - 32768 for value in (*(65536 - above[-i] for i in range(-_LAST, 0)), *above)]
    is_tanh = function is ActivationFunction.TANH
    most = 32767 if is_tanh else 32766
    bases = [-most, *values[:-1], most]  # beyond, the function stays at its limits
    if not is_tanh:
        bases[1] += 1  # halves are rounded down there, but the limit is reached
    slopes = [0, *(b - a for a, b in pairwise(values)), 0]
    words = [(slope & 0xFFFF) << 16 | (base & 0xFFFF) for base, slope in zip(bases, slopes, strict=True)]
    return np.array(words, np.int64)


_DEPTH_UNIT = 16
_SUM_BITS, _SIGN_BIT = 31, 15
_NARROW_BITS, _WIDE_BITS = 31, 15  # of multipliers


def fit_weights_u85(
    weights: NDArray[np.int16], bias: NDArray[np.int64], scales: Sequence[Scale], ifm_bits: int
) -> tuple[NDArray[np.int16], Sequence[Scale], bool]:
    """Multipliers of 31 bits: twice the weights where all are 2**31; 15 bits for 48-bit sums where they suffice."""
    if all(scale.multiplier == 1 << _NARROW_BITS for scale in scales):
        weights, scales = 2 * weights, [Scale(scale.multiplier >> 1, scale.shift) for scale in scales]
    wide = ifm_bits == 16 and all(scale.multiplier < 1 << _WIDE_BITS for scale in scales)
    unfit = None if wide or ifm_bits == 8 else overflow_reason(weights, bias)
    if unfit is not None:
        raise WeightCodecError(unfit)
    return weights, scales, wide


def overflow_reason(weights: NDArray[Any], bias: NDArray[np.int64]) -> str | None:
    """Why sums of 16-bit values do not fit 32 bits; None when they do."""
    largest = largest_sum(weights, bias, 1 << _SIGN_BIT)
    if largest >> _SUM_BITS:
        return f"its sums may reach {largest}, but with 32-bit biases sums of Ethos-U85 have {_SUM_BITS + 1} bits"
    return None


def encode_u85(
    operation: Operation,
    accelerator: Architecture,
    weights: NDArray[np.int16],
    bias: NDArray[np.int64],
    scales: Sequence[Scale],
) -> Streams:
    """Streams in the order that the operation's registers say; the table is filled up to whole micro-blocks."""
    streams = weight_codec.encode_ordered(weights, accelerator, weight_arrangement(operation, accelerator))
    bits = (48, _WIDE_BITS) if is_wide(operation) else (32, _NARROW_BITS)
    used = [scales[c if len(scales) > 1 else 0] for c in range(len(bias))]
    unit = max(micro_block(operation, accelerator).depth, _DEPTH_UNIT)
    filling = [0] * (round_up(len(bias), unit) - len(bias))
    table = weight_codec.encode_scales(
        [*bias.tolist(), *filling],
        [*(s.multiplier for s in used), *filling],
        [*(s.shift for s in used), *filling],
        *bits,
    )
    return Streams(streams, (table,))


FORMS = {
    Language.U55_U65: Form(keep_kernel, fit_weights_u55, encode_u55, no_function_table, never_sparse),
    Language.U85: Form(convert_u85, fit_weights_u85, encode_u85, function_table_u85, is_sparse),
}
