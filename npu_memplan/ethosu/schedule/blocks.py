"""Choice of the OFM block: the one with the fewest estimated cycles that fits SHRAM.

Invariant: `choose` looks at every legal block and returns the cheapest; ties go to the block with
the smaller traffic, then the larger, so the choice is a function of the operation alone. The cycle
numbers are estimates for ranking and reports, never a promise about hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...errors import NpuMemplanError
from ..arch import Architecture, Shape
from ..stream.isa import Upscale
from .shram import BlockKind, BlockWork, ShramLayout, ceil_div, layout, round_up


class BlockError(NpuMemplanError):
    """No block configuration of an operation fits the NPU's SHRAM."""


_MEMORY_LATENCY = 32  # cycles before the first byte of a block arrives


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """A layout and what it is estimated to cost."""

    layout: ShramLayout
    cycles: int


def part_kernel_first(ifm_depth: int, ifm_bits: int, kernel_elements: int) -> bool:
    """Which weight order keeps the MACs busier: kernel elements first (True) or input channels first."""
    if ifm_depth <= 8:
        return True
    depth = ifm_depth / round_up(ifm_depth, 32 if ifm_bits == 8 else 16)
    part = (ifm_depth * kernel_elements) / (
        round_up(ifm_depth, 8) * round_up(kernel_elements, 4 if ifm_bits == 8 else 2)
    )
    return part > depth


def _block_cycles(accelerator: Architecture, work: BlockWork, chosen: ShramLayout) -> tuple[int, int]:
    """(MAC cycles, cycles to write the results) of one OFM block."""
    block, micro = chosen.block, accelerator.ofm_micro
    micros_xy = ceil_div(block.height, micro.height) * ceil_div(block.width, micro.width)
    micros_z = ceil_div(block.depth, micro.depth * accelerator.cores)
    kernel = work.kernel_height * work.kernel_width
    per_cycle = max(1, accelerator.macs // 32)  # results the output unit finishes in eight cycles
    output = ceil_div(block.elements * 8, per_cycle * 8)
    slow = 2 if work.ifm_bits == 16 else 1
    if work.kind is BlockKind.ELEMENTWISE:
        return 0, output * (2 if work.second_operand else 1) * max(1, work.ifm_bits // 8)
    if work.kind is BlockKind.POOL:
        return max(4, kernel) * micros_xy * micros_z * slow, output
    if work.kind is BlockKind.DEPTHWISE:
        return max(4 * micros_xy, 16) * ceil_div(kernel, 4) * micros_z * slow, output
    if work.part_kernel:
        steps = ceil_div(kernel, 4 if work.ifm_bits == 8 else 2)
        macs = max(4 * micros_xy, 32) * steps * micros_z * ceil_div(work.ifm.depth, 8)
    else:
        depth = 32 if work.ifm_bits == 8 else 16
        macs = max(4 * micros_xy, 32) * kernel * micros_z * ceil_div(work.ifm.depth, depth)
    return macs * slow, output


def estimate(accelerator: Architecture, work: BlockWork, chosen: ShramLayout) -> tuple[int, int]:
    """(cycles, bytes of IFM and weights moved) of the whole operation in these blocks."""
    block, ofm = chosen.block, work.ofm
    across = ceil_div(ofm.height, block.height) * ceil_div(ofm.width, block.width)
    deep = ceil_div(ofm.depth, block.depth)
    bus = accelerator.port_bytes
    source = chosen.ifm_block
    whole_depth = work.kind in (BlockKind.CONV, BlockKind.REDUCE_SUM)
    ifm_bytes = source.area * (work.ifm.depth if whole_depth else source.depth) * work.ifm_bits // 8
    if work.kind is BlockKind.ELEMENTWISE and work.second_operand:
        ifm_bytes *= 2
    kernel = work.kernel_height * work.kernel_width
    weight_bytes = 0
    if work.kind is BlockKind.CONV:
        weight_bytes = kernel * work.ifm.depth * block.depth
    elif work.kind is BlockKind.DEPTHWISE:
        weight_bytes = kernel * block.depth
    macs, output = _block_cycles(accelerator, work, chosen)
    fetch = _MEMORY_LATENCY + (ifm_bytes + weight_bytes) // bus
    per_block = max(macs, output, fetch)
    traffic = (ifm_bytes + weight_bytes) * across * deep
    return per_block * across * deep + fetch + output, traffic


def _sizes(unit: int, most: int, whole: int) -> tuple[int, ...]:
    """Candidate extents of one dimension: doublings of the unit, equal shares of the whole, the maximum."""
    doublings = (unit << k for k in range(8))
    shares = (round_up(ceil_div(whole, parts), unit) for parts in range(1, 9))
    return tuple(sorted({size for size in (*doublings, *shares, most) if size <= max(most, unit)}))


@lru_cache(maxsize=4096)
def choose(accelerator: Architecture, work: BlockWork, block_depth: int | None = None) -> BlockChoice:
    """The cheapest block for `work`, of a depth that weights were encoded for if given; `BlockError` when none fits."""
    micro, limit = accelerator.ofm_micro, accelerator.max_block
    best: tuple[tuple[int, int, int], ShramLayout] | None = None
    most = (
        min(limit.height, round_up(work.ofm.height, micro.height)),
        min(limit.width, round_up(work.ofm.width, micro.width)),
        min(limit.depth, round_up(work.ofm.depth, micro.depth)),
    )
    least = 2 if work.upscale is not Upscale.NONE else 1
    for depth in _sizes(micro.depth, most[2], work.ofm.depth) if block_depth is None else (block_depth,):
        # a block that does not hold the whole depth is a multiple of the 16-channel brick
        if depth < work.ofm.depth and depth % 16:
            continue
        for height in _sizes(max(micro.height, least), most[0], work.ofm.height):
            for width in _sizes(max(micro.width, least), most[1], work.ofm.width):
                found = layout(accelerator, work, Shape(height, width, depth))
                if found is None:
                    break  # a wider block needs more room still
                cycles, traffic = estimate(accelerator, work, found)
                key = (cycles, traffic, -found.block.elements)
                if best is None or key < best[0]:
                    best = (key, found)
    if best is None:
        raise BlockError(
            f"no block of a {work.kind.value} with kernel {work.kernel_height}x{work.kernel_width}, input depth "
            f"{work.ifm.depth} and {work.ifm_bits} bits fits the {accelerator.shram_kib} KiB SHRAM of "
            f"{accelerator.name}; leave the operator on the host or choose a larger NPU"
        )
    return BlockChoice(best[1], best[0][0])
