"""What memory an operation reads and writes: the compiler's one source of truth for bytes.

Invariant: the ranges are exact for feature maps (every byte of every element in the touched
rectangle, no other), and whole lengths for weights, scales, LUTs and DMA. Lifting, waits and
lowering all ask here, so they agree on what an operation touches. The NPU model, which checks them, does not: it
derives the same bytes by means of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ...errors import NpuMemplanError
from ..arch import Architecture
from ..stream.commands import MissingRegisterError, Operation
from ..stream.fields import Activation, DmaRegion
from ..stream.groups import SCALES, WEIGHTS
from ..stream.isa import SHRAM_REGION, Op, Register
from .featuremap import FeatureMap, FeatureMapError, Ranges, merge_ranges


class AccessError(NpuMemplanError):
    """The registers of an operation do not describe accesses that can be enumerated."""


class Role(Enum):
    """Why an operation touches memory."""

    IFM = "ifm"
    IFM2 = "ifm2"
    OFM = "ofm"
    WEIGHTS = "weights"
    SCALES = "scales"
    LUT = "lut"
    DMA_SRC = "dma_src"
    DMA_DST = "dma_dst"


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One contiguous use of one region.

    `parts` are (address register, byte ranges addressed through it); several for tiles. The LUT has
    no address register: its parts carry None and its region is `SHRAM_REGION`.
    """

    role: Role
    region: int  # 0..7, or SHRAM_REGION for memory inside the NPU
    parts: tuple[tuple[Register | None, Ranges], ...]
    is_write: bool

    @property
    def ranges(self) -> Ranges:
        """All bytes touched: ascending disjoint half-open ranges, int64 [n, 2]."""
        return merge_ranges(part for _, part in self.parts)


_LUT_BYTES = {1: 256, 2: 2048, 4: 1024}  # by bytes of an OFM element


def lut_index(op: Operation) -> int | None:
    """LUT slot that a kernel's activation reads; None when it uses no table."""
    return Activation.table(op.get(Register.ACTIVATION))


def accesses(op: Operation, accelerator: Architecture) -> tuple[Access, ...]:
    """All accesses of one operation: reads first, then writes."""
    try:
        return _dma(op) if op.op is Op.DMA_START else _kernel(op, accelerator)
    except (FeatureMapError, MissingRegisterError) as error:
        raise AccessError(str(error)) from None


def _span(start: int, length: int) -> Ranges:
    return np.array([[start, start + length]], np.int64)


def _dma(op: Operation) -> tuple[Access, ...]:
    r = Register
    source, destination, length = op[r.DMA0_SRC_REGION], op[r.DMA0_DST_REGION], op[r.DMA0_LEN]
    for name, region in (("DMA0_SRC_REGION", source), ("DMA0_DST_REGION", destination)):
        if region & ~(DmaRegion.INTERNAL.at(1) | DmaRegion.REGION.at(7)):
            raise AccessError(
                f"DMA_START at stream offset {op.offset_bytes:#x}: {name} = {region:#x} asks for a 2D/3D transfer, "
                "which no supported compiler emits; only 1D transfers are supported"
            )
    if DmaRegion.INTERNAL.of(source):
        raise AccessError(f"DMA_START at stream offset {op.offset_bytes:#x} reads from inside the NPU")
    target = SHRAM_REGION if DmaRegion.INTERNAL.of(destination) else destination
    return (
        Access(Role.DMA_SRC, source, ((r.DMA0_SRC, _span(op[r.DMA0_SRC], length)),), False),
        Access(Role.DMA_DST, target, ((r.DMA0_DST, _span(op[r.DMA0_DST], length)),), True),
    )


def _kernel(op: Operation, accelerator: Architecture) -> tuple[Access, ...]:
    found = [_feature_map(Role.IFM, FeatureMap.ifm(op), False)]
    second = FeatureMap.ifm2(op)
    if second is not None:
        found.append(_feature_map(Role.IFM2, second, False))
    if op.op in (Op.CONV, Op.DEPTHWISE):
        cores = 2 if op.get(Register.PARALLEL_MODE) else 1
        for role, streams in ((Role.WEIGHTS, WEIGHTS), (Role.SCALES, SCALES)):
            parts = [(s.base, _span(op[s.base], op[s.length])) for s in streams[:cores] if op[s.length]]
            if parts:
                found.append(Access(role, op[streams[0].region], tuple(parts), False))
    ofm = FeatureMap.ofm(op)
    slot = lut_index(op)
    if slot is not None:
        address = accelerator.lut_address + 256 * slot
        found.append(Access(Role.LUT, SHRAM_REGION, ((None, _span(address, _LUT_BYTES[ofm.element_bytes])),), False))
    found.append(_feature_map(Role.OFM, ofm, True))
    return tuple(found)


def _feature_map(role: Role, view: FeatureMap, is_write: bool) -> Access:
    parts = tuple(
        (view.base_register(tile), view.tile_ranges(view.bases[tile], rows, columns, view.depth))
        for tile, rows, columns in view.tiles(view.height, view.width)
    )
    return Access(role, view.region, parts, is_write)
