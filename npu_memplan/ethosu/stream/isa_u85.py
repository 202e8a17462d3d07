"""Enumerations that only Ethos-U85 has, or numbers otherwise.

Invariant: numbers only. Source: the register descriptions of Arm's compiler (ethos-u-vela 5.2.0, Apache-2.0).
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, unique

BY_MAP = 1  # parameter of CONV: rows of IFM2 are the weights
RESIZE_BITS = 16  # by which RESIZE shifts its sums to the left
PLACE_BITS = 16  # below the place of a maximum in what ARGMAX gives


@unique
class ResizeKind(IntEnum):
    """Parameter of RESIZE."""

    BILINEAR = 0
    REPLICATE = 1
    NEAREST = 2


@unique
class ScaleRounding(IntEnum):
    """Rounding of OFM_SCALE; IFM_SCALE and IFM2_SCALE have the first two."""

    DOUBLE_SYMMETRIC = 0
    NATURAL = 1
    DOUBLE_ASYMMETRIC = 2
    SYMMETRIC = 3
    TRUNCATE_TO_ZERO = 4
    TRUNCATE_TO_LOWER = 5


@unique
class TableKind(IntEnum):
    """ACTIVATION, FUNCTION: types of the table's index and of its entries."""

    NONE = 0
    U8_U8 = 1
    S8_S8 = 4
    S8_S16 = 5
    S8_S32 = 7
    S16_S16 = 8
    S16_S32 = 9
    TANH = 10
    SIGMOID = 11

    @property
    def size_bytes(self) -> int:
        """Bytes of a table; slot n of its kind begins n times as far."""
        return {0: 0, 1: 256, 4: 256, 5: 512, 7: 1024}.get(self.value, 2048)


@unique
class MapStorage(IntEnum):
    """PRECISION, STORAGE: where a feature map is."""

    TILE_2X2 = 0
    TILE_3X1 = 1
    CHAINED = 2  # in the chaining buffer that REGION names: it has no address
    NONE = 3  # nowhere: a scalar, or accumulators that are kept


@unique
class StoredOrder(IntEnum):
    """OFM_PRECISION, TRANSPOSE: which axes of the result are the rows, columns and channels that are stored."""

    HWC = 0
    WHC = 1
    HCW = 2
    WCH = 3
    CHW = 6
    CWH = 7

    @property
    def axes(self) -> tuple[int, int, int]:
        """Axis of the result (0 height, 1 width, 2 depth) that becomes each axis of the map in memory."""
        height, width, depth = ("HWC".index(letter) for letter in self.name)
        return height, width, depth


@unique
class StoredBackwards(IntEnum):
    """OFM_PRECISION, REVERSE: the axis that is stored backwards."""

    NONE = 0
    H = 1
    W = 2
    C = 3


@unique
class AccumulatorFormat(IntEnum):
    """ACC_FORMAT, FORMAT."""

    INT32 = 0
    INT48 = 1


@unique
class AccumulatorInput(IntEnum):
    """ACC_FORMAT, INPUT: what sums start from."""

    RESET = 0
    KEEP = 1  # the accumulators of the operation before
    IFM2 = 2


@unique
class MicroBlock(IntEnum):
    """ACC_FORMAT, MICRO_BLOCK: rows and columns; the depth follows from the number of multipliers."""

    U1X1 = 0
    U1X2 = 1
    U1X4 = 2
    U2X2 = 3
    U2X4 = 4
    U4X4 = 5

    @property
    def plane(self) -> tuple[int, int]:
        return int(self.name[1]), int(self.name[3])


class InputBroadcast(IntFlag):
    """IFM_BROADCAST and IFM2_BROADCAST."""

    HEIGHT = 1
    WIDTH = 2
    DEPTH = 4
    SCALAR = 8


@unique
class BranchCondition(IntEnum):
    """Parameter of BRANCH."""

    ALWAYS = 0
    RESULT_TRUE = 1
