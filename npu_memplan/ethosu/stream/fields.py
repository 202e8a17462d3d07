"""The bit fields of registers, and which registers belong together: of a feature map, of weights, of a kind of
operation.

Invariant: this is the one place that packs and unpacks fields: `field.value_in(field.word_with(value))` is `value`; a
value that does not fit is an `EncodeError`, never a neighbour's bit. Every fact about a register's role is in the
tables here; no other module reads it off the letters of a name. Fields that Ethos-U85 lays out in its own way stand
apart, the others are the same on all. Source of each position: the register descriptions of Arm's compiler
(ethos-u-vela 5.2.0, Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ...errors import NpuMemplanError
from ..arch.architecture import Language
from .decode import Operation
from .isa import REGISTERS, Op
from .isa import Register as R


@dataclass(frozen=True, slots=True)
class MapRegisters:
    """The registers of one feature map."""

    name: str  # as register names begin
    bases: tuple[R, R, R, R]  # tiles top-left, top-right, bottom-left, bottom-right
    stride_x: R
    stride_y: R
    stride_c: R
    height0: R  # less one, as all heights and widths
    height1: R
    width0: R
    region: R
    precision: R
    zero_point: R

    @property
    def registers_in_order(self) -> tuple[R, ...]:
        places = (*self.bases, self.stride_x, self.stride_y, self.stride_c, self.region)
        return (*places, self.height0, self.height1, self.width0, self.precision, self.zero_point)

    @property
    def all(self) -> frozenset[R]:
        return frozenset(self.registers_in_order)


@dataclass(frozen=True, slots=True)
class WeightRegisters:
    """The registers of one stream of weights or scales, which one core reads."""

    base: R
    length: R
    region: R


def _map(name: str) -> MapRegisters:
    bases = (R[f"{name}_BASE0"], R[f"{name}_BASE1"], R[f"{name}_BASE2"], R[f"{name}_BASE3"])
    places = ("STRIDE_X", "STRIDE_Y", "STRIDE_C", "HEIGHT0_M1", "HEIGHT1_M1", "WIDTH0_M1")
    return MapRegisters(name, bases, *(R[f"{name}_{rest}"] for rest in (*places, "REGION", "PRECISION", "ZERO_POINT")))


def _stream(core: str, kind: str) -> WeightRegisters:
    return WeightRegisters(R[f"{kind}{core}_BASE"], R[f"{kind}{core}_LENGTH"], R[f"{kind}_REGION"])


IFM, IFM2, OFM = _map("IFM"), _map("IFM2"), _map("OFM")
FEATURE_MAPS = {view.name: view for view in (IFM, IFM2, OFM)}

# by core
WEIGHTS = tuple(_stream(core, "WEIGHT") for core in ("", "1", "2", "3"))
SCALES = tuple(_stream(core, "SCALE") for core in ("", "1"))

REGION_OF: dict[R, R] = {
    **{base: view.region for view in FEATURE_MAPS.values() for base in view.bases},
    **{stream.base: stream.region for stream in (*WEIGHTS, *SCALES)},
    R.DMA0_SRC: R.DMA0_SRC_REGION,
    R.DMA0_DST: R.DMA0_DST_REGION,
    R.DMA0_IDX: R.DMA0_IDX_REGION,
}
"""Address register -> the register that says which region it points into."""

ADDRESS_REGISTERS = frozenset(REGION_OF)
REGION_REGISTERS = frozenset(REGION_OF.values())
WRITTEN_THROUGH = frozenset((*OFM.bases, R.DMA0_DST))
"""The address registers whose bytes an operation writes."""

TILE_BASES: dict[R, tuple[R, ...]] = {view.bases[0]: view.bases[1:] for view in FEATURE_MAPS.values()}
"""The first base of a feature map -> those of its other tiles."""

_DMA = frozenset(r for r in R if r.name.startswith("DMA0_"))
_WEIGHTS = frozenset(r for stream in (*WEIGHTS, *SCALES) for r in (stream.base, stream.length, stream.region))
_RESIZE = frozenset(r for r in R if r.name.startswith("RESIZE_"))
_SECOND_INPUT = IFM2.all | {R.IFM2_BROADCAST, R.IFM2_SCALAR, R.IFM2_IB_START, R.OPA_SCALE, R.OPB_SCALE}
_KERNEL = frozenset(R) - _DMA
_SUMS = _KERNEL - _SECOND_INPUT
_OPERANDS = frozenset((R.IFM_BROADCAST, R.IFM2_BROADCAST, R.IFM_SCALE, R.IFM2_SCALE, R.OP_SCALAR))
_ONLY_WEIGHTS = _WEIGHTS | {R.WEIGHT_FORMAT}
_SCALE_TABLE = frozenset((SCALES[0].base, SCALES[0].length, SCALES[0].region))
_READ_BY = {
    Language.U55_U65: {
        Op.DMA_START: _DMA,
        Op.ELEMENTWISE: _KERNEL - _WEIGHTS,
        Op.POOL: _SUMS - _WEIGHTS,
        Op.CONV: _SUMS,
        Op.DEPTHWISE: _SUMS,
    },
    Language.U85: {  # IFM2 may be weights, or what accumulators start from
        Op.DMA_START: _DMA,
        Op.ELEMENTWISE: _KERNEL - _ONLY_WEIGHTS - _RESIZE,
        Op.POOL: _KERNEL - (_ONLY_WEIGHTS - _SCALE_TABLE) - _RESIZE - _OPERANDS,
        Op.CONV: _KERNEL - _RESIZE - _OPERANDS,
        Op.DEPTHWISE: _KERNEL - _RESIZE - _OPERANDS,
        Op.RESIZE: (_KERNEL - _ONLY_WEIGHTS - _OPERANDS - IFM2.all) | {IFM2.zero_point},
    },
}


_WHERE_AND_WHEN = ADDRESS_REGISTERS | {R.BLOCKDEP}


def kind_of(operation: Operation) -> Hashable:
    """A key that is equal for operations that differ only in addresses and BLOCKDEP."""
    return operation.content(_WHERE_AND_WHEN)


def registers_of(op: Op, language: Language = Language.U55_U65) -> frozenset[R]:
    """Registers that an operation of this kind depends on, addresses and regions included."""
    return _READ_BY[language][op] & KNOWN[language]


KNOWN = {language: frozenset(words.values()) for language, words in REGISTERS.items()}
"""The registers of a language."""


class EncodeError(NpuMemplanError):
    """A value does not fit its register."""


@dataclass(frozen=True, slots=True)
class Field:
    """Bits [low, low + width) of a register."""

    low: int
    width: int

    def value_in(self, word: int) -> int:
        return word >> self.low & (1 << self.width) - 1

    def word_with(self, value: int) -> int:
        """A word that has `value` in this field and nothing else."""
        if not 0 <= value < 1 << self.width:
            raise EncodeError(f"{value} does not fit a field of {self.width} bits")
        return value << self.low


class Precision:
    """IFM_PRECISION, IFM2_PRECISION and OFM_PRECISION, which have these in common."""

    SIGNED = Field(0, 1)
    BRICK = Field(6, 1)  # NHCWB16 instead of NHWC


class InputPrecision(Precision):
    """IFM_PRECISION and IFM2_PRECISION."""

    SIZE = Field(2, 2)  # log2 of an element's bytes
    SCALED_OPERAND = Field(8, 2)  # of IFM_PRECISION: 1 operand A, 2 operand B
    ROUNDING = Field(14, 2)  # of IFM_PRECISION: isa.Rounding of the scaled operand


class OutputPrecision(Precision):
    """OFM_PRECISION."""

    SIZE = Field(1, 2)  # log2 of an element's bytes
    GLOBAL_SCALE = Field(8, 1)  # OFM_SCALE instead of a scale for each channel
    ROUNDING = Field(14, 2)  # isa.Rounding


class KernelStride:
    """KERNEL_STRIDE: strides and dilations less one; a stride's low bit lies apart from its high bits."""

    X_LOW = Field(0, 1)
    Y_LOW = Field(1, 1)
    PART_KERNEL_FIRST = Field(2, 1)
    DILATION_X = Field(3, 1)
    DILATION_Y = Field(4, 1)
    X_HIGH = Field(6, 3)
    Y_HIGH = Field(9, 3)

    @classmethod
    def stride_x(cls, word: int) -> int:
        """Columns from one output element's window to the next."""
        return 1 + (cls.X_LOW.value_in(word) | cls.X_HIGH.value_in(word) << 1)

    @classmethod
    def stride_y(cls, word: int) -> int:
        """Rows from one output element's window to the next."""
        return 1 + (cls.Y_LOW.value_in(word) | cls.Y_HIGH.value_in(word) << 1)

    @classmethod
    def pack(cls, stride: tuple[int, int], dilation: tuple[int, int], part_kernel_first: bool) -> int:
        """The register's value; `stride` and `dilation` are (y, x)."""
        y, x = stride[0] - 1, stride[1] - 1
        return (
            cls.X_LOW.word_with(x & 1)
            | cls.Y_LOW.word_with(y & 1)
            | cls.PART_KERNEL_FIRST.word_with(part_kernel_first)
            | cls.DILATION_X.word_with(dilation[1] - 1)
            | cls.DILATION_Y.word_with(dilation[0] - 1)
            | cls.X_HIGH.word_with(x >> 1)
            | cls.Y_HIGH.word_with(y >> 1)
        )


class Activation:
    """ACTIVATION."""

    FUNCTION = Field(0, 5)  # isa.ActivationFunction, or 16 + the slot of a table
    CLIP_RANGE = Field(12, 3)  # 3: the table is indexed by eight bits of a 32-bit result

    FIRST_TABLE = 16

    @classmethod
    def table(cls, word: int) -> int | None:
        """Slot of the table that is looked up; None when none is."""
        function = cls.FUNCTION.value_in(word)
        return function - cls.FIRST_TABLE if function >= cls.FIRST_TABLE else None


class DmaRegion:
    """DMA0_SRC_REGION and DMA0_DST_REGION."""

    REGION = Field(0, 3)
    INTERNAL = Field(8, 1)  # the address is inside the NPU: in SHRAM, or the LUT RAM
    DIMENSIONS = Field(9, 2)  # 0: one run of bytes; 1: DMA0_SIZE0 of them; 2: DMA0_SIZE1 planes; the same on both sides
    INDEXED = Field(11, 1)  # Ethos-U85: DMA0_IDX says which row


class ScaleWord:
    """OFM_SCALE, OPA_SCALE and OPB_SCALE: `decode` keeps the command word's parameter above the payload."""

    MULTIPLIER = Field(0, 32)
    SHIFT = Field(32, 6)


def decode_int16(value: int, signed: bool = True) -> int:
    """A 16-bit register as a number: two's complement when the tensor is signed."""
    return value - 0x10000 if signed and value & 0x8000 else value


def encode_int16(value: int) -> int:
    """A number as a 16-bit register; `EncodeError` when it has more bits."""
    if not -0x8000 <= value <= 0xFFFF:
        raise EncodeError(f"{value} does not fit a register of 16 bits")
    return value & 0xFFFF


class MapWord(Precision):
    """IFM_PRECISION, IFM2_PRECISION and OFM_PRECISION, which have these in common."""

    BRICK = Field(6, 2)  # 1: NHCWB16 instead of NHWC
    STORAGE = Field(14, 2)  # isa.MapStorage


class InputWord(MapWord):
    """IFM_PRECISION and IFM2_PRECISION."""

    SIZE = Field(2, 2)  # log2 of an element's bytes


class OutputWord(MapWord):
    """OFM_PRECISION."""

    SIZE = Field(1, 2)  # log2 of an element's bytes
    GLOBAL_SCALE = Field(8, 1)  # OFM_SCALE instead of a scale for each channel
    REVERSE = Field(9, 2)  # isa.StoredBackwards
    TRANSPOSE = Field(11, 3)  # isa.StoredOrder


class ScaledWord(ScaleWord):
    """OFM_SCALE, IFM_SCALE and IFM2_SCALE."""

    DOUBLE_ROUND = Field(38, 5)  # bits by which the first of two roundings comes earlier
    ROUNDING = Field(45, 3)  # isa.ScaleRounding


class AccumulatorWord:
    """ACC_FORMAT."""

    FORMAT = Field(0, 2)  # isa.AccumulatorFormat
    INPUT = Field(4, 2)  # isa.AccumulatorInput
    NO_OUTPUT = Field(6, 1)
    MICRO_BLOCK = Field(8, 3)  # isa.MicroBlock


class TableWord:
    """ACTIVATION."""

    FUNCTION = Field(0, 5)  # isa.TableKind
    TABLE = Field(5, 3)  # slot, counted in tables of that kind
    UNCLIPPED = Field(12, 1)  # ACTIVATION_MIN and MAX mean nothing


class WeightWord:
    """WEIGHT_FORMAT."""

    FAST = Field(0, 1)
    SPARSE = Field(4, 1)  # two of every four input channels at most


class StrideWord:
    """KERNEL_STRIDE, where it differs."""

    SMALL_PIECES = Field(5, 1)  # kernels are cut into 4x4 elements instead of 8x8


class StepWord:
    """RESIZE_X_STEP and RESIZE_Y_STEP, in parts of the scale's numerator."""

    ONE_REST = Field(0, 11)
    BLOCK_REST = Field(16, 11)
    ONE_WHOLE = Field(32, 4)
    BLOCK_WHOLE = Field(36, 11)
