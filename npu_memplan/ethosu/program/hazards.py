"""When an operation may start: hazards between operations, waits between kernels and DMAs, and block dependencies.

Invariant: in the scheduled stream no operation starts while an unfinished one of the other engine conflicts with it,
whatever the addresses are; nothing of the compiler's own waits is used. Two operations conflict when one writes a byte
the other reads or writes, in the same region or inside the NPU; kernels also write SHRAM from its start to the end of
their accumulators, which on the smallest parts may reach into the table slots of operations that use no table. An
operation may write over its input only when output element e depends on input element e alone and both are at the same
place of the same address map. With the BLOCKDEP that is set, job f of a kernel reads no byte that the last (value - f)
OFM blocks of the previous kernel write; the value is the largest with that property, up to 3, and where a job's extent
is not exactly known the analysis takes more, never less.

The NPU runs two queues side by side. A started DMA is certainly finished once `max_outstanding_dma` later ones have
started, a started kernel once `max_outstanding_kernels` have; that, and explicit waits, is all the order there is
between the queues. On parts with two outstanding DMAs these are not assumed to stay in order. Kernels run in order; how
far one overlaps with the one before it is BLOCKDEP, which is 0 also where its working memory lies over a table that the
one before may still read.

OFM blocks are produced depth first, then in x, then in y. A convolution or sum over channels has one job for every 32
input channels of each block (16 with 16-bit elements); other kernels have one job a block. Part-kernel-first
convolutions take in 16 channels of 8 bits; they are treated as if it were 32, which can only make the value smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...errors import NpuMemplanError
from ..arch import BANK_BYTES
from ..arch.architecture import Architecture, Language
from ..stream.decode import Command, Content, Marker, Operation, Wait
from ..stream.fields import ADDRESS_REGISTERS, IFM, IFM2, OFM, SCALES, WEIGHTS, AccumulatorWord, OutputWord
from ..stream.isa import SHRAM_REGION, AccFormat, AccumulatorInput, Op, PoolMode, Register, Upscale
from .access import (
    PART_KERNEL_SLICE,
    AccessError,
    FeatureMap,
    Kernel,
    Ranges,
    accesses,
    deep_slice,
    is_product,
    lut_span,
    merge_ranges,
    share_byte,
    sums_depth,
)
from .program import NpuProgram, chain_bounds


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
        return _cached_footprint(op.content(), accelerator)
    except AccessError:
        return _footprint_of(op, accelerator)  # its error names the stream offset


@lru_cache(1 << 12)
def _cached_footprint(content: Content, accelerator: Architecture) -> Footprint:
    """`footprint`, cached: candidates have most of their operations in common."""
    return _footprint_of(Operation.from_content(content), accelerator)


def _footprint_of(op: Operation, accelerator: Architecture) -> Footprint:
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
        return 0  # a kernel's working memory has no address
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


def in_place_distances(op: Operation, holder: Mapping[str, Hashable]) -> dict[Hashable, int]:
    """Input holders over which `op` may write its output: holder -> address(input) - address(output).

    `holder` says which buffer "IFM", "IFM2" and "OFM" are in (views in no buffer are left out);
    addresses in `op` count from the start of their buffer, or are absolute throughout.
    """
    if not is_pointwise(op):
        return {}
    output = FeatureMap.ofm(op)
    views = [v for v in (FeatureMap.ifm(op), FeatureMap.ifm2(op)) if v is not None and v.name in holder]
    found: dict[Hashable, int] = {}
    for view in views:
        source = holder[view.name]
        distance = same_map(view, output)
        if distance is None or source == holder["OFM"]:
            continue
        # Whatever else is read from the same buffer must be the same map, or be elsewhere.
        moved = output.ranges() + distance
        others = [v for v in views if holder[v.name] == source and v is not view]
        if all(same_map(o, output) == distance or not share_byte(o.ranges(), moved) for o in others):
            found[source] = distance
    return found


_SINGLE = {Language.U55_U65: (PoolMode.AVERAGE,), Language.U85: (PoolMode.AVERAGE, PoolMode.SUM, PoolMode.MAX)}


def is_pointwise(op: Operation) -> bool:
    """Output element (y, x, c) depends on input elements (y, x, c) alone (broadcast inputs aside)."""
    if op.op is Op.ELEMENTWISE:
        return not is_turned(op)
    if op.op is not Op.POOL or op.parameter not in _SINGLE[op.language] or is_turned(op):
        return False
    kernel = Kernel.from_registers(op)
    padded = kernel.pad_top or kernel.pad_left or kernel.pad_bottom or kernel.pad_right
    window = (kernel.height, kernel.width, kernel.stride_y, kernel.stride_x)
    return window == (1, 1, 1, 1) and not padded and not op.get(Register.IFM_UPSCALE)


def is_turned(op: Operation) -> bool:
    """Whether results are stored in another order than they are made."""
    word = op.get(Register.OFM_PRECISION)
    return op.language is Language.U85 and bool(
        OutputWord.TRANSPOSE.value_in(word) or OutputWord.REVERSE.value_in(word)
    )


def same_map(view: FeatureMap, output: FeatureMap) -> int | None:
    """Constant address(view) - address(output) over all elements; None when it is not constant."""
    if (view.height, view.width, view.depth) != (output.height, output.width, output.depth):
        return None
    if view.element_bytes != output.element_bytes or view.brick != output.brick:
        return None
    tiles = view.tiles(view.height, view.width)
    if tiles != output.tiles(output.height, output.width):
        return None
    equal = view.height == 1 or view.stride_y == output.stride_y
    if view.brick:
        equal &= view.depth <= 16 or view.stride_c == output.stride_c
    else:
        equal &= view.width == 1 or view.stride_x == output.stride_x
    distances = {view.bases[t] - output.bases[t] for t, _, _ in tiles}
    return distances.pop() if equal and len(distances) == 1 else None


MAX_BLOCKDEP = 3

Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]  # half-open rows, columns, channels


def largest_blockdep(previous: Operation, op: Operation, accelerator: Architecture | None = None) -> int:
    """The largest BLOCKDEP with which kernel `op` reads nothing that `previous` has yet to write."""
    try:
        written = previous[Register.OFM_BASE0]
        apart = tuple(op.registers.get(base, written) - written for base in (Register.IFM_BASE0, Register.IFM2_BASE0))
        known = _at_distances(previous.content(_UNUSED), op.content(_UNUSED), apart, accelerator)
        return (
            _cached_blockdep(previous.content(_NOT_WRITTEN), op.content(_NOT_READ), accelerator)
            if known is None
            else known
        )
    except NpuMemplanError:
        return _blockdep_between(previous, op, accelerator)  # its error names the stream offset


_UNUSED = ADDRESS_REGISTERS | {stream.length for stream in (*WEIGHTS, *SCALES)}
_NOT_WRITTEN = _UNUSED - {*OFM.bases}  # registers of the kernel before that do not matter
_NOT_READ = _UNUSED - {*IFM.bases, *IFM2.bases}  # registers of the kernel that do not matter


_BASE = 1 << 40  # more bytes than any distance


@lru_cache(1 << 12)
def _at_distances(
    previous: Content, op: Content, apart: tuple[int, ...], accelerator: Architecture | None
) -> int | None:
    """The BLOCKDEP of kernels whose inputs are `apart` from the output before, cached; None: several tiles."""
    before = Operation.from_content(previous).with_registers({Register.OFM_BASE0: _BASE})
    bases = (Register.IFM_BASE0, Register.IFM2_BASE0)
    kernel = Operation.from_content(op).with_registers({b: _BASE + far for b, far in zip(bases, apart, strict=True)})
    maps = (FeatureMap.ofm(before), FeatureMap.ifm(kernel), FeatureMap.ifm2(kernel))
    if any(tile for v in maps if v is not None for tile, _, _ in v.tiles(v.height, v.width)):
        return None
    return _blockdep_between(before, kernel, accelerator)


@lru_cache(1 << 12)
def _cached_blockdep(previous: Content, op: Content, accelerator: Architecture | None) -> int:
    """`_blockdep_between`, cached: candidates have most of their pairs of kernels in common."""
    return _blockdep_between(Operation.from_content(previous), Operation.from_content(op), accelerator)


def _blockdep_between(previous: Operation, op: Operation, accelerator: Architecture | None) -> int:
    most = MAX_BLOCKDEP if accelerator is None else accelerator.max_blockdep
    if (
        op.language is Language.U85
        and AccumulatorWord.INPUT.value_in(op.get(Register.ACC_FORMAT)) == AccumulatorInput.KEEP
    ):
        return 0
    output = FeatureMap.ofm(previous)
    inputs = [v for v in (FeatureMap.ifm(op), FeatureMap.ifm2(op)) if v is not None and v.region == output.region]
    low, high = output.span()
    inputs = [v for v in inputs if v.span()[0] < high and low < v.span()[1]]
    if inputs:
        written = output.ranges()
        inputs = [v for v in inputs if share_byte(v.ranges(), written)]
    if not inputs:
        return most
    if is_turned(previous):
        return 0
    last: list[Ranges] = [output.box_ranges(*box) for box in last_blocks(previous, most)]
    safe = most
    for job, block in enumerate(kernel_jobs(op, accelerator)):
        if job >= safe:
            break
        read = [v.box_ranges(*input_box(op, v, block)) for v in inputs]
        for age, ranges in enumerate(last[: safe - job], start=1):
            if any(share_byte(r, ranges) for r in read):
                safe = job + age - 1
                break
    return safe


def _block_grid(op: Operation) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """(extent, block) of the OFM in y, x and channels."""
    r = Register
    return (
        (op[r.OFM_HEIGHT_M1] + 1, op[r.OFM_BLK_HEIGHT_M1] + 1),
        (op[r.OFM_WIDTH_M1] + 1, op[r.OFM_BLK_WIDTH_M1] + 1),
        (op[r.OFM_DEPTH_M1] + 1, op[r.OFM_BLK_DEPTH_M1] + 1),
    )


def _block(op: Operation, index: int) -> Box:
    (height, by), (width, bx), (depth, bz) = _block_grid(op)
    columns, slices = -(-width // bx), -(-depth // bz)
    rest, z = divmod(index, slices)
    y, x = divmod(rest, columns)
    return ((y * by, min((y + 1) * by, height)), (x * bx, min((x + 1) * bx, width)), (z * bz, min((z + 1) * bz, depth)))


def block_count(op: Operation) -> int:
    count = 1
    for extent, block in _block_grid(op):
        count *= -(-extent // block)
    return count


def last_blocks(op: Operation, number: int) -> Iterator[Box]:
    """The last `number` OFM blocks of a kernel (or all, when it has fewer), latest first."""
    total = block_count(op)
    for index in range(total - 1, max(total - 1 - number, -1), -1):
        yield _block(op, index)


def kernel_jobs(op: Operation, accelerator: Architecture | None = None) -> Iterator[Box]:
    """OFM rows and columns, and input channels, of a kernel's jobs in order."""
    if not sums_depth(op):
        for index in range(block_count(op)):
            yield _block(op, index)
        return
    view = FeatureMap.ifm(op)
    step = 16 if view.element_bytes == 2 else 32
    if accelerator is not None and op.language is Language.U85:
        part = not is_product(op) and Kernel.from_registers(op).part_kernel_first
        step = PART_KERNEL_SLICE if part else deep_slice(op, accelerator)
    for index in range(block_count(op)):
        rows, columns, _ = _block(op, index)
        for start in range(0, view.depth, step):
            yield rows, columns, (start, min(start + step, view.depth))


def input_box(op: Operation, view: FeatureMap, job: Box) -> Box:
    """Elements of an input that a job reads."""
    rows, columns, channels = job
    if op.op is Op.RESIZE or (view.name == "IFM2" and is_product(op)):
        return (0, view.height), (0, view.width), (0, view.depth)
    if op.op is Op.ELEMENTWISE or view.name == "IFM2":
        # A broadcast axis has extent 1: every job reads its only element.
        return _clip_range(rows, view.height), _clip_range(columns, view.width), _clip_range(channels, view.depth)
    kernel = Kernel.from_registers(op)
    upscaled = op.get(Register.IFM_UPSCALE) != Upscale.NONE
    y = _window(rows, kernel.stride_y, kernel.height, kernel.pad_top, view.height, upscaled)
    x = _window(columns, kernel.stride_x, kernel.width, kernel.pad_left, view.width, upscaled)
    return y, x, (channels[0], min(channels[1], view.depth))


def _clip_range(part: tuple[int, int], extent: int) -> tuple[int, int]:
    return (0, 1) if extent == 1 else (part[0], min(part[1], extent))


def _window(part: tuple[int, int], stride: int, kernel: int, pad: int, extent: int, upscaled: bool) -> tuple[int, int]:
    start, stop = part[0] * stride - pad, (part[1] - 1) * stride - pad + kernel
    if upscaled:
        start, stop = start // 2, -(-stop // 2)
    return max(start, 0), max(min(stop, extent), 0)


_STOP_ALL = 0xFFFF
_Chain = tuple[Operation, ...]  # a transfer, a kernel, or kernels that run as one


def stream_of(program: NpuProgram, place: Callable[[str], tuple[int, int]]) -> tuple[Command, ...]:
    """The stream of a program; `place` gives the region and address of each buffer."""
    return schedule([program.place(i, place) for i in range(len(program.operations))], program.accelerator)


def schedule(operations: Sequence[Operation], accelerator: Architecture) -> tuple[Command, ...]:
    """The operations with the waits they need and their BLOCKDEP, ended by STOP."""
    commands: list[Command] = []
    kernels: list[_Chain] = []  # unfinished for all we know, oldest first
    transfers: list[_Chain] = []
    previous: Operation | None = None
    bounds, distance = chain_bounds(operations), 0
    for place, op in enumerate(operations):
        first, last = bounds[place]
        if op.op is Op.DMA_START:
            commands += _wait(Op.KERNEL_WAIT, kernels, op, accelerator)
            if accelerator.max_outstanding_dma > 1:
                commands += _wait(Op.DMA_WAIT, transfers, op, accelerator)
            transfers.append((op,))
            del transfers[: -accelerator.max_outstanding_dma]
            commands.append(op)
            continue
        commands += _wait(Op.DMA_WAIT, transfers, op, accelerator)
        if place == first:
            spoils = bool(kernels) and _spoils_table(op, kernels[-1], accelerator)
            chained = operations[first : last + 1]
            kernels.append((op,))
            del kernels[: -accelerator.max_outstanding_kernels]
            distance = 0
            if previous is not None and not spoils:
                distance = min(largest_blockdep(previous, one, accelerator) for one in chained)
        else:
            kernels[-1] = (*kernels[-1], op)
        previous = op if place == last else previous
        commands.append(op.with_registers({Register.BLOCKDEP: distance}))
    commands.append(Marker(Op.STOP, _STOP_ALL))
    return tuple(commands)


def _wait(kind: Op, unfinished: list[_Chain], op: Operation, accelerator: Architecture) -> list[Command]:
    """The weakest wait after which nothing unfinished conflicts; removes what it makes finished."""
    for index in range(len(unfinished) - 1, -1, -1):
        mine = footprint(op, accelerator)  # inside the loop: few operations have anything unfinished before them
        if any(footprint(one, accelerator).conflicts(mine) for one in unfinished[index]):
            younger = len(unfinished) - 1 - index
            del unfinished[: index + 1]
            return [Wait(kind, younger)]
    return []


def _spoils_table(op: Operation, before: _Chain, accelerator: Architecture) -> bool:
    """Whether kernel `op` works in SHRAM from which those before it read a table."""
    readers = [one for one in before if lut_span(one) is not None]
    return any(footprint(op, accelerator).spoils_table(footprint(one, accelerator)) for one in readers)
