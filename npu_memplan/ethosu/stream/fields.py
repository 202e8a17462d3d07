"""The bit fields of registers: the one place that packs and unpacks them.

Invariant: `field.of(word)` is what `field.at(value)` put there; a value that does not fit is an `EncodeError`, never a
neighbour's bit. Source of each position: the register descriptions of Arm's compiler (ethos-u-vela, Apache-2.0).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import NpuMemplanError


class EncodeError(NpuMemplanError):
    """A value does not fit its register."""


@dataclass(frozen=True, slots=True)
class Field:
    """Bits [low, low + width) of a register."""

    low: int
    width: int

    def of(self, word: int) -> int:
        return word >> self.low & (1 << self.width) - 1

    def at(self, value: int) -> int:
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
        return 1 + (cls.X_LOW.of(word) | cls.X_HIGH.of(word) << 1)

    @classmethod
    def stride_y(cls, word: int) -> int:
        """Rows from one output element's window to the next."""
        return 1 + (cls.Y_LOW.of(word) | cls.Y_HIGH.of(word) << 1)

    @classmethod
    def pack(cls, stride: tuple[int, int], dilation: tuple[int, int], part_kernel_first: bool) -> int:
        """The register's value; `stride` and `dilation` are (y, x)."""
        y, x = stride[0] - 1, stride[1] - 1
        return (
            cls.X_LOW.at(x & 1)
            | cls.Y_LOW.at(y & 1)
            | cls.PART_KERNEL_FIRST.at(part_kernel_first)
            | cls.DILATION_X.at(dilation[1] - 1)
            | cls.DILATION_Y.at(dilation[0] - 1)
            | cls.X_HIGH.at(x >> 1)
            | cls.Y_HIGH.at(y >> 1)
        )


class Activation:
    """ACTIVATION."""

    FUNCTION = Field(0, 5)  # isa.ActivationFunction, or 16 + the slot of a table
    CLIP_RANGE = Field(12, 3)  # 3: the table is indexed by eight bits of a 32-bit result

    FIRST_TABLE = 16

    @classmethod
    def table(cls, word: int) -> int | None:
        """Slot of the table that is looked up; None when none is."""
        function = cls.FUNCTION.of(word)
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


def signed16(value: int, signed: bool = True) -> int:
    """A 16-bit register as a number: two's complement when the tensor is signed."""
    return value - 0x10000 if signed and value & 0x8000 else value


def word16(value: int) -> int:
    """A number as a 16-bit register; `EncodeError` when it has more bits."""
    if not -0x8000 <= value <= 0xFFFF:
        raise EncodeError(f"{value} does not fit a register of 16 bits")
    return value & 0xFFFF
