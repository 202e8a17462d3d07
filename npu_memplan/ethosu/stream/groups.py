"""Which registers belong together: of a feature map, of a stream of weights, of a kind of operation.

Invariant: every fact about a register's role is in these tables; nobody reads it off the letters of a name.
"""

from __future__ import annotations

from dataclasses import dataclass

from .isa import Op
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
    def all(self) -> frozenset[R]:
        """Each of them."""
        places = (*self.bases, self.stride_x, self.stride_y, self.stride_c, self.region)
        return frozenset((*places, self.height0, self.height1, self.width0, self.precision, self.zero_point))


@dataclass(frozen=True, slots=True)
class WeightRegisters:
    """The registers of one stream of weights or scales, which one core reads."""

    base: R
    length: R
    region: R


IFM = MapRegisters(
    "IFM",
    (R.IFM_BASE0, R.IFM_BASE1, R.IFM_BASE2, R.IFM_BASE3),
    R.IFM_STRIDE_X, R.IFM_STRIDE_Y, R.IFM_STRIDE_C,
    R.IFM_HEIGHT0_M1, R.IFM_HEIGHT1_M1, R.IFM_WIDTH0_M1,
    R.IFM_REGION, R.IFM_PRECISION, R.IFM_ZERO_POINT,
)  # fmt: skip
IFM2 = MapRegisters(
    "IFM2",
    (R.IFM2_BASE0, R.IFM2_BASE1, R.IFM2_BASE2, R.IFM2_BASE3),
    R.IFM2_STRIDE_X, R.IFM2_STRIDE_Y, R.IFM2_STRIDE_C,
    R.IFM2_HEIGHT0_M1, R.IFM2_HEIGHT1_M1, R.IFM2_WIDTH0_M1,
    R.IFM2_REGION, R.IFM2_PRECISION, R.IFM2_ZERO_POINT,
)  # fmt: skip
OFM = MapRegisters(
    "OFM",
    (R.OFM_BASE0, R.OFM_BASE1, R.OFM_BASE2, R.OFM_BASE3),
    R.OFM_STRIDE_X, R.OFM_STRIDE_Y, R.OFM_STRIDE_C,
    R.OFM_HEIGHT0_M1, R.OFM_HEIGHT1_M1, R.OFM_WIDTH0_M1,
    R.OFM_REGION, R.OFM_PRECISION, R.OFM_ZERO_POINT,
)  # fmt: skip
FEATURE_MAPS = {view.name: view for view in (IFM, IFM2, OFM)}

# by core
WEIGHTS = (
    WeightRegisters(R.WEIGHT_BASE, R.WEIGHT_LENGTH, R.WEIGHT_REGION),
    WeightRegisters(R.WEIGHT1_BASE, R.WEIGHT1_LENGTH, R.WEIGHT_REGION),
)
SCALES = (
    WeightRegisters(R.SCALE_BASE, R.SCALE_LENGTH, R.SCALE_REGION),
    WeightRegisters(R.SCALE1_BASE, R.SCALE1_LENGTH, R.SCALE_REGION),
)

REGION_OF: dict[R, R] = {
    **{base: view.region for view in FEATURE_MAPS.values() for base in view.bases},
    **{stream.base: stream.region for stream in (*WEIGHTS, *SCALES)},
    R.DMA0_SRC: R.DMA0_SRC_REGION,
    R.DMA0_DST: R.DMA0_DST_REGION,
}
"""Address register -> the register that says which region it points into."""

ADDRESS_REGISTERS = frozenset(REGION_OF)
REGION_REGISTERS = frozenset(REGION_OF.values())
WRITTEN_THROUGH = frozenset((*OFM.bases, R.DMA0_DST))
"""The address registers whose bytes an operation writes."""

TILE_BASES: dict[R, tuple[R, ...]] = {view.bases[0]: view.bases[1:] for view in FEATURE_MAPS.values()}
"""The first base of a feature map -> those of its other tiles."""

_DMA_REGIONS = (R.DMA0_SRC_REGION, R.DMA0_DST_REGION)
_DMA_EXTENTS = (R.DMA0_LEN, R.DMA0_SIZE0, R.DMA0_SIZE1, R.DMA0_SKIP0, R.DMA0_SKIP1)
_DMA = frozenset((R.DMA0_SRC, R.DMA0_DST, *_DMA_REGIONS, *_DMA_EXTENTS))
_WEIGHTS = frozenset(r for stream in (*WEIGHTS, *SCALES) for r in (stream.base, stream.length, stream.region))
_SECOND_INPUT = IFM2.all | {R.IFM2_BROADCAST, R.IFM2_SCALAR, R.IFM2_IB_START, R.OPA_SCALE, R.OPB_SCALE}
_KERNEL = frozenset(R) - _DMA
_READ_BY = {
    Op.DMA_START: _DMA,
    Op.ELEMENTWISE: _KERNEL - _WEIGHTS,
    Op.POOL: _KERNEL - _WEIGHTS - _SECOND_INPUT,
    Op.CONV: _KERNEL - _SECOND_INPUT,
    Op.DEPTHWISE: _KERNEL - _SECOND_INPUT,
}


def registers_of(op: Op) -> frozenset[R]:
    """Registers that an operation of this kind depends on, addresses and regions included."""
    return _READ_BY[op]
