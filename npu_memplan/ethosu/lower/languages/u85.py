"""An operation as Ethos-U85's registers say it, from what those of Ethos-U55 say.

Invariant: the same values from the same maps. What differs: roundings stand with their scales, either input may be
broadcast (so that operands in the other order change places), an average divides by itself only, tables say their
types, and block registers hand out no SHRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...arch import Language
from ...program.program import NpuOperation
from ...stream.fields import (
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
from ...stream.isa import (
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
from ...stream.isa import Register as R

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
_UNITY = ScaleWord.MULTIPLIER.at(1)


def in_u85(operation: NpuOperation, wide: bool, sparse: bool) -> NpuOperation:
    """The same kernel. `wide`: its sums have 48 bits; `sparse`: of every four weights two are zero at least."""
    op, parameter, registers = operation.op, operation.parameter, operation.registers
    made = {register: value for register, value in registers.items() if register not in _ONLY_U55}
    moved = dict(operation.addresses)
    output = registers[R.OFM_PRECISION]
    size = 1 << OutputPrecision.SIZE.of(output)
    rounding = _ROUNDINGS[Rounding(OutputPrecision.ROUNDING.of(output))]
    kept = OutputPrecision.SIGNED, OutputPrecision.SIZE, OutputPrecision.BRICK, OutputPrecision.GLOBAL_SCALE
    made[R.OFM_PRECISION] = sum(field.at(field.of(output)) for field in kept)
    made[R.IFM_PRECISION] = _input(registers[R.IFM_PRECISION])
    made[R.ACC_FORMAT] = AccumulatorWord.FORMAT.at(wide)
    made[R.OFM_SCALE] = registers.get(R.OFM_SCALE, _UNITY) | ScaledWord.ROUNDING.at(rounding)
    made[R.ACTIVATION] = _activation(registers[R.ACTIVATION], size, bool(Precision.SIGNED.of(output)))
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
        made[R.WEIGHT_FORMAT] = WeightWord.SPARSE.at(sparse)
        if R.IFM2_PRECISION in registers:  # of a product of two maps
            made[R.IFM2_PRECISION] = _input(registers[R.IFM2_PRECISION])
    return replace(operation, parameter=int(parameter), registers=made, addresses=moved, language=Language.U85)


def _input(word: int) -> int:
    kept = InputPrecision.SIGNED, InputPrecision.SIZE, InputPrecision.BRICK
    return sum(field.at(field.of(word)) for field in kept)


def _activation(word: int, size: int, signed: bool) -> int:
    """A table's place is counted in tables of its size; of 32 bits nothing is clamped without a table."""
    slot = Activation.table(word)
    if slot is None:
        function = ActivationFunction(Activation.FUNCTION.of(word))
        if function is ActivationFunction.NONE:
            return TableWord.UNCLIPPED.at(size == 4)
        return TableWord.FUNCTION.at(_FUNCTIONS[function])
    kind = _WIDE_TABLES.get(size, TableKind.S8_S8 if signed else TableKind.U8_U8)
    return TableWord.FUNCTION.at(kind) | TableWord.TABLE.at(slot * _SLOT_BYTES // kind.size_bytes)


def _scale_operands(mode: ElementwiseMode, registers: Mapping[R, int], made: dict[R, int]) -> None:
    """IFM_SCALE and IFM2_SCALE; only the shift of a 32-bit product's scale takes part."""
    size = 1 << InputPrecision.SIZE.of(registers[R.IFM_PRECISION])
    first = second = _UNITY
    if mode in (ElementwiseMode.ADD, ElementwiseMode.SUB) and size < 4:
        scaled = InputPrecision.SCALED_OPERAND.of(registers[R.IFM_PRECISION])
        first, second = registers[R.OPA_SCALE], registers[R.OPB_SCALE]
        if scaled:
            headroom = _HEADROOM[size]
            one = first | ScaledWord.DOUBLE_ROUND.at(headroom)
            other = ScaleWord.MULTIPLIER.at(1 << (headroom - 1))
            first, second = (one, other) if scaled == 1 else (other, one)
    made[R.IFM_SCALE] = first
    if not mode.is_unary:
        made[R.IFM2_SCALE] = second
    if mode is ElementwiseMode.MUL and size == 4:
        shift = ScaleWord.SHIFT.of(made[R.OFM_SCALE])
        made[R.OFM_SCALE] = made[R.OFM_SCALE] & ScaledWord.ROUNDING.at(7) | ScaleWord.SHIFT.at(shift) | _UNITY


_Addresses = dict[R, tuple[str, int]]


def _broadcast(registers: Mapping[R, int], made: dict[R, int], moved: _Addresses) -> tuple[dict[R, int], _Addresses]:
    """Both operands' broadcasts, and the operands in their order; a scalar is in OP_SCALAR."""
    word = Broadcast(registers[R.IFM2_BROADCAST])
    made[R.IFM_BROADCAST], made[R.IFM2_PRECISION] = 0, _input(registers[R.IFM2_PRECISION])
    made[R.IFM2_BROADCAST] = int(word & (Broadcast.HEIGHT | Broadcast.WIDTH | Broadcast.DEPTH))
    if Broadcast.SCALAR in word:
        made[R.IFM2_BROADCAST] = int(InputBroadcast.SCALAR)
        made[R.IFM2_PRECISION] |= InputWord.STORAGE.at(MapStorage.NONE)
        made[R.OP_SCALAR] = registers[R.IFM2_SCALAR] & 0xFFFFFFFF
    if Broadcast.SWAP_OPERANDS not in word:
        return made, moved
    return {_OTHER.get(r, r): value for r, value in made.items()}, {_OTHER.get(r, r): at for r, at in moved.items()}


_PAIRS = [*zip(IFM.ordered, IFM2.ordered, strict=True), (R.IFM_BROADCAST, R.IFM2_BROADCAST)]
_OTHER = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}}
"""Where a register's value goes when the operands change places; scales are in their order already."""
