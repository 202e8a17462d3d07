"""Which registers belong together: of a feature map, of a stream of weights, of a kind of operation.

Invariant: every fact about a register's role is in these tables; no other module reads it off the letters of a name.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ..arch.architecture import Language
from .commands import Operation
from .isa import Op
from .isa import Register as R
from .languages import REGISTERS


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
    def ordered(self) -> tuple[R, ...]:
        places = (*self.bases, self.stride_x, self.stride_y, self.stride_c, self.region)
        return (*places, self.height0, self.height1, self.width0, self.precision, self.zero_point)

    @property
    def all(self) -> frozenset[R]:
        return frozenset(self.ordered)


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
    """Equal for operations that differ only in addresses and in how far they run ahead."""
    return operation.content(_WHERE_AND_WHEN)


def registers_of(op: Op, language: Language = Language.U55_U65) -> frozenset[R]:
    """Registers that an operation of this kind depends on, addresses and regions included."""
    return _READ_BY[language][op] & KNOWN[language]


KNOWN = {language: frozenset(words.values()) for language, words in REGISTERS.items()}
"""The registers of a language."""
