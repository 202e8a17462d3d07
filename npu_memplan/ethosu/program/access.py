"""What memory an operation reads and writes: the compiler's one source of truth for bytes.

Invariant: the ranges are exact for feature maps (every byte of every element in the touched
rectangle, no other), and whole lengths for weights, scales, LUTs and DMA. Lifting, waits and
lowering all ask here, so they agree on what an operation touches. The NPU model, which checks them, does not: it
derives the same bytes by means of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from ...errors import NpuMemplanError
from ..arch import Architecture, Language
from ..stream.commands import Content, MissingRegisterError, Operation
from ..stream.fields import Activation, DmaRegion, OutputPrecision
from ..stream.fields_u85 import AccumulatorWord, OutputWord, TableWord, WeightWord
from ..stream.groups import ADDRESS_REGISTERS, SCALES, WEIGHTS, WeightRegisters
from ..stream.isa import SHRAM_REGION, Op, PoolMode, Register
from ..stream.isa_u85 import AccumulatorInput, TableKind
from .extents import is_product
from .featuremap import FeatureMap
from .ranges import FeatureMapError, Ranges, merge_ranges, run, strided_ranges


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
    DMA_INDEX = "dma_index"
    DMA_KEPT = "dma_kept"  # what a transfer may leave as it is, of the bytes that it may write

    __hash__ = object.__hash__  # each member is one object; that of Enum is written in Python


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
_SLOT_BYTES = 256


def lut_index(op: Operation) -> int | None:
    """LUT slot (of 256 bytes) that a kernel's activation reads from; None when it uses no table."""
    found = lut_span(op)
    return None if found is None else found[0] // _SLOT_BYTES


def lut_span(op: Operation) -> tuple[int, int] | None:
    """(first byte after slot 0, bytes) of the table that a kernel's activation reads; None when it uses none."""
    word = op.get(Register.ACTIVATION)
    if op.language is Language.U85:
        kind = TableWord.FUNCTION.of(word)
        size = TableKind(kind).size_bytes if kind in tuple(TableKind) else 0
        return (TableWord.TABLE.of(word) * size, size) if size else None
    slot = Activation.table(word)
    if slot is None:
        return None
    code = OutputPrecision.SIZE.of(op.get(Register.OFM_PRECISION))
    return _SLOT_BYTES * slot, _LUT_BYTES.get(1 << code, 0)


def accesses(op: Operation, accelerator: Architecture) -> tuple[Access, ...]:
    """All accesses of one operation: reads first, then writes."""
    if op.op is Op.DMA_START:
        return _found(op, accelerator)
    try:
        at_zero = _kernel_at_zero(op.content(ADDRESS_REGISTERS), tuple(op.registers), accelerator)
    except AccessError:
        return _found(op, accelerator)  # which says where
    return tuple(
        Access(a.role, a.region, tuple((r, s if r is None else s + op.get(r)) for r, s in a.parts), a.is_write)
        for a in at_zero
    )


@lru_cache(1 << 13)
def _kernel_at_zero(content: Content, names: tuple[Register, ...], accelerator: Architecture) -> tuple[Access, ...]:
    """Of a kernel that sets `names`, with every base address 0, which is not in `content`: programs that are compared
    have most of their kernels in common.
    """
    kernel = Operation.of(content)
    return _found(kernel.with_registers({name: 0 for name in names if name not in kernel.registers}), accelerator)


def _found(op: Operation, accelerator: Architecture) -> tuple[Access, ...]:
    try:
        if op.op is Op.DMA_START:
            return _dma(op)
        return _kernel(op, accelerator)
    except (FeatureMapError, MissingRegisterError) as error:
        raise AccessError(str(error)) from None


def _dma(op: Operation) -> tuple[Access, ...]:
    """One run of bytes; on Ethos-U85 also rows and planes. Which rows an index chooses is in memory: any of those
    that exist may be.
    """
    r = Register
    source, target, length = op[r.DMA0_SRC_REGION], op[r.DMA0_DST_REGION], op[r.DMA0_LEN]
    for name, region in (("DMA0_SRC_REGION", source), ("DMA0_DST_REGION", target)):
        if op.language is Language.U55_U65 and region & ~(DmaRegion.INTERNAL.at(1) | DmaRegion.REGION.at(7)):
            raise AccessError(
                f"DMA_START at stream offset {op.offset_bytes:#x}: {name} = {region:#x} selects a 2D/3D transfer, "
                "which no supported compiler emits; only 1D transfers are supported"
            )
    dimensions = DmaRegion.DIMENSIONS.of(source)
    if DmaRegion.INTERNAL.of(source):
        raise AccessError(f"DMA_START at stream offset {op.offset_bytes:#x} reads from inside the NPU")
    gathers, scatters = bool(DmaRegion.INDEXED.of(source)), bool(DmaRegion.INDEXED.of(target))
    rows = op[r.DMA0_SIZE0] if dimensions > 0 else 1
    planes = op[r.DMA0_SIZE1] if dimensions > 1 else 1
    choices = op[r.DMA0_IDX_MAX] + 1 if gathers or scatters else 0

    def side(base: Register, indexed: bool, near: Register, far: Register) -> Ranges:
        inner = op[near] if dimensions > 0 or indexed else 0
        count = choices if indexed else rows
        return strided_ranges(op[base], length, ((count, inner), (planes, op[far] if dimensions > 1 else 0)))

    where = SHRAM_REGION if DmaRegion.INTERNAL.of(target) else DmaRegion.REGION.of(target)
    read = side(r.DMA0_SRC, gathers, r.DMA0_SRC_STRIDE0, r.DMA0_SRC_STRIDE1)
    written = side(r.DMA0_DST, scatters, r.DMA0_DST_STRIDE0, r.DMA0_DST_STRIDE1)
    found = [Access(Role.DMA_SRC, DmaRegion.REGION.of(source), ((r.DMA0_SRC, read),), False)]
    if gathers or scatters:
        apart = op.get(r.DMA0_IDX_SKIP1) if dimensions > 1 else 0
        index = strided_ranges(op[r.DMA0_IDX], INDEX_BYTES * rows, ((planes, INDEX_BYTES * rows + apart),))
        found.append(Access(Role.DMA_INDEX, op[r.DMA0_IDX_REGION], ((r.DMA0_IDX, index),), False))
    if scatters:
        found.append(Access(Role.DMA_KEPT, where, ((r.DMA0_DST, written),), False))
    found.append(Access(Role.DMA_DST, where, ((r.DMA0_DST, written),), True))
    return tuple(found)


INDEX_BYTES = 4  # of one index of an indexed transfer


def _kernel(op: Operation, accelerator: Architecture) -> tuple[Access, ...]:
    source = _feature_map(Role.IFM, FeatureMap.ifm(op), False)
    found = [_first_byte(source) if _ignores_input(op) else source]
    second = FeatureMap.ifm2(op)
    if second is not None:
        found.append(_feature_map(Role.IFM2, second, False))
    for role, streams in constant_streams(op, accelerator):
        parts = [(s.base, run(op[s.base], op[s.length])) for s in streams if op[s.length]]
        if parts:
            found.append(Access(role, op[streams[0].region], tuple(parts), False))
    table = lut_span(op)
    if table is not None:
        start = accelerator.lut_address + table[0]
        found.append(Access(Role.LUT, SHRAM_REGION, ((None, run(start, table[1])),), False))
    found.append(_feature_map(Role.OFM, FeatureMap.ofm(op), True))
    return tuple(found)


def _ignores_input(op: Operation) -> bool:
    """Whether the results are what accumulators load from IFM2; IFM is there for its place and extents."""
    loads = AccumulatorWord.INPUT.of(op.get(Register.ACC_FORMAT)) == AccumulatorInput.IFM2
    return op.language is Language.U85 and op.op is Op.POOL and op.parameter == PoolMode.NONE and loads


def _first_byte(access: Access) -> Access:
    """What ties the bases of a feature map to its buffer, and no element of it."""
    parts = tuple((register, run(int(ranges[0, 0]), 1)) for register, ranges in access.parts)
    return Access(access.role, access.region, parts, access.is_write)


_Constants = Iterator[tuple[Role, tuple[WeightRegisters, ...]]]


def _constants(op: Operation, accelerator: Architecture) -> _Constants:
    if op.op in (Op.CONV, Op.DEPTHWISE):
        cores = min(2, accelerator.cores) if op.get(Register.PARALLEL_MODE) else 1
        yield Role.WEIGHTS, WEIGHTS[:cores]
        yield Role.SCALES, SCALES[:cores]


def _u85_constants(op: Operation, accelerator: Architecture) -> _Constants:
    """The fast format has one stream for all cores; scales are one table always."""
    if op.op in (Op.CONV, Op.DEPTHWISE) and not is_product(op):
        yield Role.WEIGHTS, WEIGHTS[: 1 if WeightWord.FAST.of(op.get(Register.WEIGHT_FORMAT)) else accelerator.cores]
    if op.op not in (Op.ELEMENTWISE, Op.RESIZE) and not OutputWord.GLOBAL_SCALE.of(op[Register.OFM_PRECISION]):
        yield Role.SCALES, SCALES[:1]


_CONSTANTS = {Language.U55_U65: _constants, Language.U85: _u85_constants}


def constant_streams(op: Operation, accelerator: Architecture) -> _Constants:
    """Weights and scales that a kernel reads: their role, and the registers of each stream."""
    return _CONSTANTS[op.language](op, accelerator)


def _feature_map(role: Role, view: FeatureMap, is_write: bool) -> Access:
    parts = tuple(
        (view.base_register(tile), view.tile_ranges(view.bases[tile], 0, rows, columns, (0, view.depth)))
        for tile, rows, columns in view.tiles(view.height, view.width)
    )
    return Access(role, view.region, parts, is_write)
