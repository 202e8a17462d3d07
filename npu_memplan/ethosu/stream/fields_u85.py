"""The bit fields of registers that Ethos-U85 lays out in its own way.

Invariant: as in `fields`; what is not here is as it is there. Source: the register descriptions of Arm's compiler
(ethos-u-vela 5.2.0, Apache-2.0).
"""

from __future__ import annotations

from .fields import Field, Precision, ScaleWord


class MapWord(Precision):
    """IFM_PRECISION, IFM2_PRECISION and OFM_PRECISION, which have these in common."""

    BRICK = Field(6, 2)  # 1: NHCWB16 instead of NHWC
    STORAGE = Field(14, 2)  # isa_u85.MapStorage


class InputWord(MapWord):
    """IFM_PRECISION and IFM2_PRECISION."""

    SIZE = Field(2, 2)  # log2 of an element's bytes


class OutputWord(MapWord):
    """OFM_PRECISION."""

    SIZE = Field(1, 2)  # log2 of an element's bytes
    GLOBAL_SCALE = Field(8, 1)  # OFM_SCALE instead of a scale for each channel
    REVERSE = Field(9, 2)  # isa_u85.StoredBackwards
    TRANSPOSE = Field(11, 3)  # isa_u85.StoredOrder


class ScaledWord(ScaleWord):
    """OFM_SCALE, IFM_SCALE and IFM2_SCALE."""

    DOUBLE_ROUND = Field(38, 5)  # bits by which the first of two roundings comes earlier
    ROUNDING = Field(45, 3)  # isa_u85.ScaleRounding


class AccumulatorWord:
    """ACC_FORMAT."""

    FORMAT = Field(0, 2)  # isa_u85.AccumulatorFormat
    INPUT = Field(4, 2)  # isa_u85.AccumulatorInput
    NO_OUTPUT = Field(6, 1)
    MICRO_BLOCK = Field(8, 3)  # isa_u85.MicroBlock


class TableWord:
    """ACTIVATION."""

    FUNCTION = Field(0, 5)  # isa_u85.TableKind
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
