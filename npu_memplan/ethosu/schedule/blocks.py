"""Choice of an operation's OFM block and of the order of its weights: those with the fewest estimated cycles.

Invariant: the choice is a function of the operation's registers, the NPU and the memories its regions are in, and no
block that was compared takes fewer cycles by the estimate that reports use (`ethosu/time`), to which a share of the
cycles in which it keeps memories busy is added where transfers want those too. The blocks compared are, for each depth,
those that cut the plane least and the lowest; ties go to less traffic, then to the larger block. Before a plan says
otherwise, constants are in region 0, inputs and outputs in region 1, tables inside the NPU, everything else in the last
region, the NPU's own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter

from ...errors import RefusalError
from ..arch import Architecture, Language, Shape
from ..program.access import (
    FeatureMap,
    Kernel,
    is_fixed,
    is_product,
    is_sparse,
    is_wide,
    lut_index,
    micro_block,
    results,
)
from ..program.program import BufferRole, NpuProgram
from ..stream.decode import Operation
from ..stream.fields import KernelStride, OutputWord, kind_of
from ..stream.isa import BRICK_CHANNELS, SHRAM_REGION, InputBroadcast, Op, PoolMode, StoredOrder, Upscale
from ..stream.isa import Register as R
from ..time.cost import ResourceUse, add_waits, unordered_resource_use
from ..time.memory import MemoryMap
from ..time.timeline import in_a_row
from ..time.work import Work, work_of
from .rams import (
    DEPTH_UNIT,
    BlockKind,
    BlockWork,
    RamLayout,
    ShramLayout,
    ceil_div,
    layout,
    micro_blocks,
    ram_layout,
    round_up,
)


def place_of(role: BufferRole, memory_map: MemoryMap) -> tuple[int, int]:
    """Region and base address of a buffer."""
    if role is BufferRole.LUT:
        return SHRAM_REGION, 0
    if role in (BufferRole.INPUT, BufferRole.OUTPUT):
        return 1, 0
    return 0 if role is BufferRole.CONSTANTS else max(memory_map.regions), 0


def places(program: NpuProgram, memory_map: MemoryMap) -> Callable[[str], tuple[int, int]]:
    """Region and base address by buffer of `program`."""
    return lambda name: place_of(program.buffer(name).role, memory_map)


class BlockError(RefusalError):
    """No block configuration of an operation fits the memories inside the NPU."""


_KINDS = {
    Op.CONV: BlockKind.CONV,
    Op.DEPTHWISE: BlockKind.DEPTHWISE,
    Op.POOL: BlockKind.POOL,
    Op.ELEMENTWISE: BlockKind.ELEMENTWISE,
}
_NAMES = {
    BlockKind.CONV: "a convolution",
    BlockKind.PRODUCT: "a product of two feature maps",
    BlockKind.DEPTHWISE: "a depthwise convolution",
    BlockKind.POOL: "a pool",
    BlockKind.REDUCE_SUM: "a sum over channels",
    BlockKind.ELEMENTWISE: "an element-wise operation",
}
BESIDE = 1 / 8  # what a memory's cycle is worth where transfers run during kernels: the best of 1/16, 1/8 and 1/4
_PLANES = 5  # ways to cut a plane that are looked at for each depth
_SHARES = 8  # parts of an extent; also of a depth
_TIMED = 6  # most candidates whose cycles are worked out: those that could be best by what they need


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """A layout, the order of the weights, and what they are estimated to cost."""

    layout: ShramLayout | RamLayout
    part_kernel: bool  # kernel elements before input channels
    cycles: int  # by which the operation makes a stream longer

    def registers(self, operation: Operation) -> dict[R, int]:
        """The values of the registers of `operation` that select this block and order."""
        changes = self.layout.registers(operation)
        if operation.op is Op.CONV:
            bits, order = operation[R.KERNEL_STRIDE], KernelStride.PART_KERNEL_FIRST
            changes[R.KERNEL_STRIDE] = bits & ~order.word_with(1) | order.word_with(self.part_kernel)
        return changes


class Blocks:
    """Chooses blocks for operations of one NPU among one set of memories.

    `beside`: the cost of each cycle in which a kernel uses a memory that transfers want meanwhile, in cycles. `like`:
    an instance under another model of time whose resource uses are the same; its candidates are shared.
    """

    def __init__(
        self, accelerator: Architecture, memory_map: MemoryMap, beside: float = 0.0, like: Blocks | None = None
    ) -> None:
        self.accelerator, self.memory_map, self._beside = accelerator, memory_map, beside
        self._known: dict[object, BlockChoice] = {}
        self._found: dict[object, list[_Candidate]] = {} if like is None else like._found

    def choose(self, operation: Operation, encoded: bool = False) -> BlockChoice:
        """The cheapest block for `operation`, whatever block it has now; `BlockError` when none fits.

        Its regions say where its maps and weights are. `encoded`: its weights are encoded already, so their order and
        the depth of its blocks stay.
        """
        if operation.language is Language.U85 and is_fixed(operation):
            raise BlockError(f"the blocks of {operation.op.name} are its compiler's")
        key = (kind_of(operation), encoded)
        if key not in self._known:
            self._known[key] = self._cheapest(operation, self._could_be_best(operation, encoded))
        return self._known[key]

    def looked_at(self, operation: Operation, encoded: bool = False) -> Sequence[ShramLayout | RamLayout]:
        """The layouts that `choose` compares for `operation`; none where its blocks must stay (`is_fixed`)."""
        fixed = operation.language is Language.U85 and is_fixed(operation)
        return [] if fixed else [candidate.layout for candidate in self._could_be_best(operation, encoded)]

    def _could_be_best(self, operation: Operation, encoded: bool) -> list[_Candidate]:
        key = (kind_of(operation), encoded)
        if key not in self._found:
            made = [(_rank(candidate), candidate) for candidate in self._candidates(operation, encoded)]
            self._found[key] = [candidate for _, candidate in sorted(made, key=itemgetter(0))[:_TIMED]]
        return self._found[key]

    def fit_blocks(self, operation: Operation) -> Operation:
        """`operation`, whose weights are encoded, in the cheapest blocks; as it is where no others fit."""
        try:
            return operation.with_registers(self.choose(operation, encoded=True).registers(operation))
        except BlockError:
            return operation

    def weighted_cycles(self, cycles: float, needs: ResourceUse) -> float:
        """`cycles`, and the cost of the memory cycles that the kernel takes from transfers."""
        return cycles + self._beside * sum(load.cycles for load in needs.loads)

    def _cheapest(self, operation: Operation, found: Sequence[_Candidate]) -> BlockChoice:
        best: tuple[tuple[float, float, int], BlockChoice] | None = None
        for candidate in found:
            if best is not None and self.weighted_cycles(candidate.needs.floor, candidate.needs) >= best[0][0]:
                continue
            cycles = in_a_row(add_waits(candidate.needs, self.accelerator), self.accelerator, self.memory_map)
            key = (
                self.weighted_cycles(cycles, candidate.needs),
                candidate.moved_bytes,
                -candidate.layout.block.elements,
            )
            if best is None or key < best[0]:
                best = (key, BlockChoice(candidate.layout, candidate.part_kernel, cycles))
        if best is None:
            work = block_work(operation)
            raise BlockError(
                f"no block of {_NAMES[work.kind]} with kernel {work.kernel_height}x{work.kernel_width}, input depth "
                f"{work.ifm.depth} and {work.ifm_bits} bits fits the memories inside {self.accelerator.name}; leave "
                "the operator on the host or choose a larger NPU"
            )
        return best[1]

    def _candidates(self, operation: Operation, encoded: bool) -> Iterator[_Candidate]:
        """Blocks that could be the best, with what the operation needs in them."""
        shape, target = block_work(operation), self.accelerator
        ordered = encoded or shape.kind is not BlockKind.CONV
        found = False
        for room in _ROOMS if target.rams else (_Room(), _Room(smallest=True)):
            for part_kernel in (shape.part_kernel,) if ordered else (False, True):
                work = shape if part_kernel == shape.part_kernel else replace(shape, part_kernel=part_kernel)
                for micro in _micro_blocks(target, work, operation, encoded):
                    base: Work | None = None
                    fixed = operation[R.OFM_BLK_DEPTH_M1] + 1 if encoded else None
                    for fits in _layouts(target, work, micro, room, fixed):
                        if base is None:
                            base = work_of(operation.with_registers(fits.registers(operation)), target)
                        made = base.in_blocks(fits.block, part_kernel)
                        needs = unordered_resource_use(operation, made, target, self.memory_map)
                        found = True
                        yield _Candidate(fits, part_kernel, needs)
            if found:
                return


@dataclass(frozen=True, slots=True)
class _Room:
    """Which blocks are compared: whether the next input block has room, and whether the smallest are among them."""

    spare: bool = True
    smallest: bool = False


_ROOMS = (_Room(), _Room(spare=False), _Room(spare=False, smallest=True))  # the next where nothing fits


@dataclass(frozen=True, slots=True)
class _Candidate:
    layout: ShramLayout | RamLayout
    part_kernel: bool
    needs: ResourceUse

    @property
    def moved_bytes(self) -> int:
        return sum(load.traffic.bytes for load in self.needs.loads)


def _rank(candidate: _Candidate) -> tuple[float, int, int]:
    """A sort key: approximate cycles (the busiest part and one block of the others), bytes moved, larger blocks."""
    needs = candidate.needs
    every = needs.multipliers + needs.output + sum(load.cycles for load in needs.loads)
    about = needs.floor + (every - needs.floor) / needs.blocks
    return about, candidate.moved_bytes, -candidate.layout.block.elements


def _micro_blocks(accelerator: Architecture, work: BlockWork, operation: Operation, encoded: bool) -> Iterator[Shape]:
    """The micro-blocks that an operation may have: the one that the order of encoded weights follows from, or all."""
    if accelerator.rams is None:
        yield accelerator.ofm_micro
    elif encoded and work.kind in (BlockKind.CONV, BlockKind.DEPTHWISE):
        yield micro_block(operation, accelerator)
    else:
        yield from micro_blocks(accelerator, work)


def block_work(operation: Operation) -> BlockWork:
    """The part of an operation's registers that decides which blocks fit."""
    source = FeatureMap.ifm(operation)
    work = BlockWork(
        kind=_kind(operation),
        ifm=Shape(source.height, source.width, source.depth),
        ofm=Shape(*results(operation)),
        ifm_bits=8 * source.element_bytes,
        upscale=Upscale(operation.get(R.IFM_UPSCALE)),
        uses_lut=lut_index(operation) is not None,
        second_operand=FeatureMap.ifm2(operation) is not None,
    )
    if operation.language is Language.U85:
        order = StoredOrder(OutputWord.TRANSPOSE.value_in(operation[R.OFM_PRECISION])).axes
        work = replace(work, wide=is_wide(operation), sparse=is_sparse(operation), order=order)
        work = replace(work, broadcast=_broadcast(operation))
    if operation.op is Op.ELEMENTWISE:
        return work
    kernel = Kernel.from_registers(operation)
    return replace(
        work,
        kernel_height=kernel.height,
        kernel_width=kernel.width,
        stride_y=kernel.stride_y,
        stride_x=kernel.stride_x,
        part_kernel=kernel.part_kernel_first and operation.op is Op.CONV,
    )


def _kind(operation: Operation) -> BlockKind:
    if operation.op is Op.POOL and operation.parameter == PoolMode.REDUCE_SUM:
        return BlockKind.REDUCE_SUM
    return BlockKind.PRODUCT if is_product(operation) else _KINDS[operation.op]


def _broadcast(operation: Operation) -> tuple[bool, bool, bool]:
    """Axes along which an input of an Ethos-U85 element-wise operation is broadcast; scalars need no room."""
    if operation.op is not Op.ELEMENTWISE:
        return (False, False, False)
    words = [InputBroadcast(operation.get(r)) for r in (R.IFM_BROADCAST, R.IFM2_BROADCAST)]
    maps = [word for word in words if InputBroadcast.SCALAR not in word]

    def along(axis: InputBroadcast) -> bool:
        return any(axis in word for word in maps)

    return along(InputBroadcast.HEIGHT), along(InputBroadcast.WIDTH), along(InputBroadcast.DEPTH)


def _sizes(unit: int, most: int, whole: int, smallest: bool) -> tuple[int, ...]:
    """Candidate extents of one dimension, the largest first: equal shares of the whole, halves, and the `smallest`."""
    most = max(unit, min(most, round_up(whole, unit)))
    fewest = ceil_div(whole, most)
    shares = (round_up(ceil_div(whole, parts), unit) for parts in range(fewest, fewest + _SHARES))
    halves = (most >> k for k in range(1, 8))
    least = (unit,) if smallest else ()
    return tuple(sorted({s for s in (*shares, *halves, *least) if unit <= s <= most and not s % unit}, reverse=True))


def _layouts(
    accelerator: Architecture, work: BlockWork, micro: Shape, room: _Room, depth: int | None = None
) -> Iterator[ShramLayout | RamLayout]:
    """Layouts that are looked at, of blocks of `depth` where that is given."""
    depths = _depths(accelerator, work, micro, room.smallest) if depth is None else (depth,)
    for each in depths:
        yield from _planes(accelerator, work, each, micro, room)


def _depths(accelerator: Architecture, work: BlockWork, micro: Shape, smallest: bool) -> tuple[int, ...]:
    """A block that does not hold the whole depth is a multiple of the 16-channel brick."""
    unit, limit = micro.depth if accelerator.rams is None else max(micro.depth, DEPTH_UNIT), accelerator.max_block.depth
    brick = max(unit, BRICK_CHANNELS)
    whole = round_up(work.ofm.depth, unit)
    parts = _sizes(brick, min(limit, whole), work.ofm.depth, smallest) if whole > brick else ()
    return tuple(sorted({whole, *parts} if whole <= limit else {*parts}))


@lru_cache(4096)
def _planes(
    accelerator: Architecture, work: BlockWork, depth: int, micro: Shape, room: _Room
) -> tuple[ShramLayout | RamLayout, ...]:
    """The layouts of blocks of `depth` that cut the plane least: of each height the widest that fits."""
    limit = accelerator.max_block
    least = 2 if work.upscale is not Upscale.NONE else 1
    widths = _sizes(max(micro.width, least), limit.width, work.ofm.width, room.smallest)
    found: list[tuple[int, int, ShramLayout | RamLayout]] = []
    for height in _sizes(max(micro.height, least), limit.height, work.ofm.height, room.smallest):
        low, high = 0, len(widths)  # the first that fits
        fits: ShramLayout | RamLayout | None = None
        while low < high:
            middle = (low + high) // 2
            block = Shape(height, widths[middle], depth)
            made = (
                layout(accelerator, work, block)
                if accelerator.rams is None
                else ram_layout(accelerator, work, block, micro, room.spare)
            )
            if made is None:
                low = middle + 1
            else:
                fits, high = made, middle
        if fits is not None:
            pieces = ceil_div(work.ofm.height, height) * ceil_div(work.ofm.width, fits.block.width)
            found.append((pieces, pieces * fits.ifm_block.area, fits))
    ranked = [fits for _, _, fits in sorted(found, key=lambda f: f[:2])]
    return tuple(ranked[:_PLANES] + ranked[_PLANES:][-1:])
