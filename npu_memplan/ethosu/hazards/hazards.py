"""Which operations must not run at the same time, byte by byte.

Invariant: two operations conflict when one writes a byte the other reads or writes, in the same
region or inside the NPU. Kernels also write SHRAM from its start to the end of their accumulators,
which on the smallest parts may reach into the table slots of operations that use no table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..arch import BANK_BYTES, Architecture
from ..program.access import AccessError, accesses
from ..program.ranges import Ranges, merge_ranges, share_byte
from ..stream.commands import Content, Operation
from ..stream.isa import SHRAM_REGION, AccFormat, Op, Register


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """Bytes that an operation reads and writes, by region."""

    reads: dict[int, Ranges]
    writes: dict[int, Ranges]

    def conflicts(self, other: Footprint) -> bool:
        """Whether the order of the two matters (read after write, write after read, write after write)."""
        return touch(self.writes, other.writes) or touch(self.writes, other.reads) or touch(self.reads, other.writes)

    def spoils_table(self, other: Footprint) -> bool:
        """Whether this kernel works in SHRAM from which the other reads a table."""
        mine, its = self.writes.get(SHRAM_REGION), other.reads.get(SHRAM_REGION)
        return mine is not None and its is not None and share_byte(mine, its)


def footprint(op: Operation, accelerator: Architecture) -> Footprint:
    """All bytes of one operation, accumulators in SHRAM included."""
    try:
        return _known(op.content(), accelerator)
    except AccessError:
        return _found(op, accelerator)  # which says where


@lru_cache(1 << 12)
def _known(content: Content, accelerator: Architecture) -> Footprint:
    """Programs that are compared have most of their operations in common."""
    return _found(Operation.of(content), accelerator)


def _found(op: Operation, accelerator: Architecture) -> Footprint:
    reads: dict[int, list[Ranges]] = {}
    writes: dict[int, list[Ranges]] = {}
    for access in accesses(op, accelerator):
        side = writes if access.is_write else reads
        side.setdefault(access.region, []).extend(ranges for _, ranges in access.parts)
    if op.op is not Op.DMA_START:
        writes.setdefault(SHRAM_REGION, []).append(np.array([[0, working_bytes(op, accelerator)]], np.int64))
    return Footprint(
        {region: merge_ranges(parts) for region, parts in reads.items()},
        {region: merge_ranges(parts) for region, parts in writes.items()},
    )


def working_bytes(op: Operation, accelerator: Architecture) -> int:
    """End of the SHRAM that a kernel works in: input blocks and double-buffered accumulators."""
    r = Register
    if accelerator.granules is None:
        return 0  # what kernels work in has no address
    whole = accelerator.shram_kib * BANK_BYTES
    start, inputs = op.get(r.AB_START, accelerator.shram_kib), op.get(r.IFM_IB_END)
    if op.op is Op.ELEMENTWISE:
        return min(whole, max(start, inputs) * BANK_BYTES)  # no accumulators
    form = op.get(r.ACC_FORMAT)
    bits = {int(AccFormat.INT40): 40, int(AccFormat.FP16): 16}.get(form, 32)
    depth = -(-(op[r.OFM_BLK_DEPTH_M1] + 1) // 8) * 8
    elements = (op[r.OFM_BLK_HEIGHT_M1] + 1) * (op[r.OFM_BLK_WIDTH_M1] + 1) * depth
    granule = accelerator.granules.acc40 if form == AccFormat.INT40 else accelerator.granules.acc32
    banks: int = 2 * -(-elements * bits // 8 // BANK_BYTES)
    return min(whole, max(inputs, start + -(-banks // granule) * granule) * BANK_BYTES)


def touch(first: dict[int, Ranges], second: dict[int, Ranges]) -> bool:
    """Whether two sets of bytes, by region, share one."""
    return any(region in second and share_byte(ranges, second[region]) for region, ranges in first.items())
