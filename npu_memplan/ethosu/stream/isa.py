"""The Ethos-U register command sets of all families: names and numbers, nothing else.

Invariant: a `Register` value is `mode << 10 | opcode`, so that the two opcode spaces of the stream (mode 0: value in
the command word; mode 1: value in a following word) are one enumeration, and a register's mode is derived, never
stored. Ethos-U85 gives some opcodes another meaning: what only it has stands above `_U85`, and `REGISTERS` and `OPS`
say which language has which register and operation, so that inside one language an opcode has one meaning. Source: the
register descriptions of Arm's compiler (ethos-u-vela 5.2.0, Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag, unique

from ..arch.architecture import Language

_MODE1 = 1 << 10  # one 32-bit payload word follows the command word
_U85 = 1 << 11  # registers of Ethos-U85 alone


class CommandCode(IntEnum):
    """The first bits of a command word."""

    @property
    def has_payload(self) -> bool:
        """True of mode 1: a 32-bit value follows the command word."""
        return bool(self.value & _MODE1)

    @property
    def opcode(self) -> int:
        """Bits 0-9 of the command word."""
        return self.value & 0x3FF


@unique
class Register(CommandCode):
    """Every register a stream can set. `.name` is the architecture's name."""

    IFM_PAD_TOP = 0x100
    IFM_PAD_LEFT = 0x101
    IFM_PAD_RIGHT = 0x102
    IFM_PAD_BOTTOM = 0x103
    IFM_DEPTH_M1 = 0x104
    IFM_PRECISION = 0x105
    IFM_UPSCALE = 0x107
    IFM_ZERO_POINT = 0x109
    IFM_WIDTH0_M1 = 0x10A
    IFM_HEIGHT0_M1 = 0x10B
    IFM_HEIGHT1_M1 = 0x10C
    IFM_IB_END = 0x10D
    IFM_REGION = 0x10F
    OFM_WIDTH_M1 = 0x111
    OFM_HEIGHT_M1 = 0x112
    OFM_DEPTH_M1 = 0x113
    OFM_PRECISION = 0x114
    OFM_BLK_WIDTH_M1 = 0x115
    OFM_BLK_HEIGHT_M1 = 0x116
    OFM_BLK_DEPTH_M1 = 0x117
    OFM_ZERO_POINT = 0x118
    OFM_WIDTH0_M1 = 0x11A
    OFM_HEIGHT0_M1 = 0x11B
    OFM_HEIGHT1_M1 = 0x11C
    OFM_REGION = 0x11F
    KERNEL_WIDTH_M1 = 0x120
    KERNEL_HEIGHT_M1 = 0x121
    KERNEL_STRIDE = 0x122
    PARALLEL_MODE = 0x123
    ACC_FORMAT = 0x124
    ACTIVATION = 0x125
    ACTIVATION_MIN = 0x126
    ACTIVATION_MAX = 0x127
    WEIGHT_REGION = 0x128
    SCALE_REGION = 0x129
    AB_START = 0x12D
    BLOCKDEP = 0x12F
    DMA0_SRC_REGION = 0x130
    DMA0_DST_REGION = 0x131
    DMA0_SIZE0 = 0x132
    DMA0_SIZE1 = 0x133
    IFM2_BROADCAST = 0x180
    IFM2_SCALAR = 0x181
    IFM2_PRECISION = 0x185
    IFM2_ZERO_POINT = 0x189
    IFM2_WIDTH0_M1 = 0x18A
    IFM2_HEIGHT0_M1 = 0x18B
    IFM2_HEIGHT1_M1 = 0x18C
    IFM2_IB_START = 0x18D
    IFM2_REGION = 0x18F
    IFM_BASE0 = _MODE1 | 0x00
    IFM_BASE1 = _MODE1 | 0x01
    IFM_BASE2 = _MODE1 | 0x02
    IFM_BASE3 = _MODE1 | 0x03
    IFM_STRIDE_X = _MODE1 | 0x04
    IFM_STRIDE_Y = _MODE1 | 0x05
    IFM_STRIDE_C = _MODE1 | 0x06
    OFM_BASE0 = _MODE1 | 0x10
    OFM_BASE1 = _MODE1 | 0x11
    OFM_BASE2 = _MODE1 | 0x12
    OFM_BASE3 = _MODE1 | 0x13
    OFM_STRIDE_X = _MODE1 | 0x14
    OFM_STRIDE_Y = _MODE1 | 0x15
    OFM_STRIDE_C = _MODE1 | 0x16
    WEIGHT_BASE = _MODE1 | 0x20
    WEIGHT_LENGTH = _MODE1 | 0x21
    SCALE_BASE = _MODE1 | 0x22
    SCALE_LENGTH = _MODE1 | 0x23
    OFM_SCALE = _MODE1 | 0x24
    OPA_SCALE = _MODE1 | 0x25
    OPB_SCALE = _MODE1 | 0x26
    DMA0_SRC = _MODE1 | 0x30
    DMA0_DST = _MODE1 | 0x31
    DMA0_LEN = _MODE1 | 0x32
    DMA0_SKIP0 = _MODE1 | 0x33
    DMA0_SKIP1 = _MODE1 | 0x34
    IFM2_BASE0 = _MODE1 | 0x80
    IFM2_BASE1 = _MODE1 | 0x81
    IFM2_BASE2 = _MODE1 | 0x82
    IFM2_BASE3 = _MODE1 | 0x83
    IFM2_STRIDE_X = _MODE1 | 0x84
    IFM2_STRIDE_Y = _MODE1 | 0x85
    IFM2_STRIDE_C = _MODE1 | 0x86
    WEIGHT1_BASE = _MODE1 | 0x90
    WEIGHT1_LENGTH = _MODE1 | 0x91
    SCALE1_BASE = _MODE1 | 0x92
    SCALE1_LENGTH = _MODE1 | 0x93
    IFM_BROADCAST = _U85 | 0x108
    RESIZE_X_SCALE_N_M1 = _U85 | 0x12A
    RESIZE_Y_SCALE_N_M1 = _U85 | 0x12B
    RESIZE_X_OFFSET = _U85 | 0x12C
    RESIZE_Y_OFFSET = _U85 | 0x12D
    WEIGHT_FORMAT = _U85 | 0x12E
    DMA0_IDX_REGION = _U85 | 0x134
    IFM_SCALE = _U85 | _MODE1 | 0x25
    IFM2_SCALE = _U85 | _MODE1 | 0x26
    OP_SCALAR = _U85 | _MODE1 | 0x27
    DMA0_SRC_STRIDE0 = _U85 | _MODE1 | 0x33
    DMA0_SRC_STRIDE1 = _U85 | _MODE1 | 0x34
    DMA0_DST_STRIDE0 = _U85 | _MODE1 | 0x35
    DMA0_DST_STRIDE1 = _U85 | _MODE1 | 0x36
    DMA0_IDX = _U85 | _MODE1 | 0x37
    DMA0_IDX_MAX = _U85 | _MODE1 | 0x38
    DMA0_IDX_SKIP1 = _U85 | _MODE1 | 0x39
    WEIGHT2_BASE = _U85 | _MODE1 | 0x92
    WEIGHT2_LENGTH = _U85 | _MODE1 | 0x93
    WEIGHT3_BASE = _U85 | _MODE1 | 0x94
    WEIGHT3_LENGTH = _U85 | _MODE1 | 0x95
    RESIZE_X_STEP = _U85 | _MODE1 | 0x96
    RESIZE_Y_STEP = _U85 | _MODE1 | 0x97


@unique
class Op(CommandCode):
    """Opcodes that do something instead of setting a register; the value is that of a `Register` of its place."""

    STOP = 0x000
    IRQ = 0x001
    CONV = 0x002
    DEPTHWISE = 0x003
    POOL = 0x005
    ELEMENTWISE = 0x006
    RESIZE = 0x007  # Ethos-U85
    DMA_START = 0x010
    DMA_WAIT = 0x011
    KERNEL_WAIT = 0x012
    PMU_MASK = 0x013
    BRANCH = _MODE1 | 0x100  # Ethos-U85; the payload is the byte offset of the stream to go on at

    @property
    def is_kernel(self) -> bool:
        """True for operations of the MAC/element-wise engines (not DMA, not waits)."""
        return self in (Op.CONV, Op.DEPTHWISE, Op.POOL, Op.ELEMENTWISE, Op.RESIZE)


@unique
class PoolMode(IntEnum):
    """Parameter of POOL; from SUM on of Ethos-U85."""

    MAX = 0
    AVERAGE = 1
    REDUCE_SUM = 2  # over the input's depth
    SUM = 3
    NONE = 4  # elements as they are, or the accumulators that IFM2 loads
    MIN = 5
    ARGMAX_X = 6
    ARGMAX_Y = 7

    @property
    def is_argmax(self) -> bool:
        """Results are places, not values."""
        return self in (PoolMode.ARGMAX_X, PoolMode.ARGMAX_Y)


@unique
class ElementwiseMode(IntEnum):
    """Parameter of ELEMENTWISE; from LSR on of Ethos-U85."""

    MUL = 0
    ADD = 1
    SUB = 2
    MIN = 3
    MAX = 4
    LRELU = 5
    ABS = 6
    CLZ = 7
    SHR = 8  # arithmetic
    SHL = 9
    LSR = 10  # logical
    DIV = 11
    CMP_EQ = 16
    CMP_NE = 17
    CMP_GE = 18
    CMP_GT = 19
    AND = 33
    OR = 34
    XOR = 35
    NOT = 36
    AND_NOT = 42

    @property
    def is_unary(self) -> bool:
        """True when only IFM is read."""
        return self in (ElementwiseMode.LRELU, ElementwiseMode.ABS, ElementwiseMode.CLZ, ElementwiseMode.NOT)


UNARY = frozenset(mode.value for mode in ElementwiseMode if mode.is_unary)


@unique
class Rounding(IntEnum):
    """OFM_PRECISION, ROUNDING."""

    TFL = 0
    TRUNCATE = 1
    NATURAL = 2


@unique
class ActivationFunction(IntEnum):
    """ACTIVATION, FUNCTION, without tables: functions of x / (3 * 4096) with results in 15 fraction bits."""

    NONE = 0
    TANH = 3
    SIGMOID = 4


@unique
class Upscale(IntEnum):
    """IFM_UPSCALE."""

    NONE = 0
    NEAREST = 1
    TRANSPOSE = 2


@unique
class AccFormat(IntEnum):
    """ACC_FORMAT."""

    INT32 = 0
    INT40 = 1
    FP16 = 2


class Broadcast(IntFlag):
    """IFM2_BROADCAST."""

    HEIGHT = 1
    WIDTH = 2
    DEPTH = 4
    SWAP_OPERANDS = 64
    SCALAR = 128


SHRAM_REGION = 0x103  # bit 8 set: DMA0_DST is an address inside SHRAM (a LUT slot)
BRICK_CHANNELS = 16  # channels of one NHCWB16 brick


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


_ONLY_U55_U65 = frozenset(
    (
        Register.IFM_IB_END,
        Register.PARALLEL_MODE,
        Register.AB_START,
        Register.IFM2_SCALAR,
        Register.IFM2_IB_START,
        Register.OPA_SCALE,
        Register.OPB_SCALE,
        Register.DMA0_SKIP0,
        Register.DMA0_SKIP1,
        Register.SCALE1_BASE,
        Register.SCALE1_LENGTH,
    )
)

# the words of each language, by mode and opcode (bit 10: mode 1)
REGISTERS: Mapping[Language, Mapping[int, Register]] = {
    Language.U55_U65: {int(r): r for r in Register if not r & _U85},
    Language.U85: {int(r) & ~_U85: r for r in Register if r not in _ONLY_U55_U65},
}
OPS: Mapping[Language, Mapping[int, Op]] = {
    Language.U55_U65: {int(op): op for op in Op if op not in (Op.RESIZE, Op.BRANCH)},
    Language.U85: {int(op): op for op in Op},
}
