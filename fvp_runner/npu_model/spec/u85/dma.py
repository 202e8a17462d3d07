"""What the registers of an Ethos-U85 DMA_START say: rows and planes with strides, and rows that an index chooses.

Invariant: an indexed side touches at most the rows 0 to DMA0_IDX_MAX; which of them, only memory says.
"""

from __future__ import annotations

from npu_memplan.ethosu.stream.isa import Register

from ..dma import INTERNAL, DmaSpec, Index, Side, check_mode, read_extents
from ..registers import Registers

_INDEXED = 1 << 11
_MAX_ROWS = 1 << 24
_INDEX_BYTES = 4


def read_transfer(regs: Registers) -> DmaSpec:
    check_mode(regs)
    r = Register
    source, target = regs.bits(r.DMA0_SRC_REGION, 0xF07), regs.bits(r.DMA0_DST_REGION, 0x907)
    dimensions = regs.one_of(r.DMA0_SRC_REGION, (0, 1, 2), source >> 9 & 3) + 1
    gathers, scatters = bool(source & _INDEXED), bool(target & _INDEXED)
    if gathers and scatters:
        regs.illegal("both sides of the transfer are indexed, but there is one index")
    planes, rows, length = read_extents(regs, dimensions > 1 or gathers or scatters, dimensions > 2, _MAX_ROWS)
    index = None
    if gathers or scatters:
        apart = regs.raw(r.DMA0_IDX_SKIP1) if dimensions > 2 else 0
        index = Index(
            regs.region(r.DMA0_IDX_REGION), regs.raw(r.DMA0_IDX), _INDEX_BYTES * rows + apart, regs.low(r.DMA0_IDX_MAX)
        )
    choices = 0 if index is None else index.largest + 1
    if choices > _MAX_ROWS:
        regs.illegal(f"DMA0_IDX_MAX allows {choices} rows; more than {_MAX_ROWS} are refused")

    def side(name: str, word: int, base: Register, near: Register, far: Register, indexed: bool) -> Side:
        row = regs.raw(near) if dimensions > 1 or indexed else 0
        plane = regs.raw(far) if dimensions > 2 else 0
        inside = bool(word & INTERNAL)
        return Side(name, word & 7, inside, regs.raw(base), (plane, row), choices if indexed else 0)

    return DmaSpec(
        side("DMA0_SRC", source, r.DMA0_SRC, r.DMA0_SRC_STRIDE0, r.DMA0_SRC_STRIDE1, gathers),
        side("DMA0_DST", target, r.DMA0_DST, r.DMA0_DST_STRIDE0, r.DMA0_DST_STRIDE1, scatters),
        (planes, rows, length),
        index,
    )
