"""Cycles of the multipliers and of the output unit, from shapes alone.

Invariant: nothing here depends on a memory. Source of every rule and constant: Arm's published optimiser (ethos-u-vela
5.2.0, `npu_performance.py` and regor's `ethos_u55_performance.cpp`); the weights' order is that of its encoder.
"""

from __future__ import annotations

from math import ceil

from ..arch import Architecture
from .traits import Engine
from .work import Work, sub_blocks

_STEP = 4  # cycles of one micro-block in a kernel step
_STEP_WEIGHTS = 32  # input channels, or channels times taps, of a kernel step


def multiplier_cycles(work: Work, accelerator: Architecture) -> int:
    """Cycles in which the multipliers (or the pooling engine) are busy, weight decoding included."""
    return sum(cycles_by_depth(work, accelerator).values())


def cycles_by_depth(work: Work, accelerator: Architecture) -> dict[int, int]:
    """The same by the channels of the blocks."""
    found: dict[int, int] = {}
    if work.engine is not Engine.ELEMENTWISE:
        for height, width, depth, count in sub_blocks(work):
            found[depth] = found.get(depth, 0) + count * _block(work, accelerator, height, width, depth)
    return found


def output_cycles(work: Work, accelerator: Architecture) -> float:
    """Cycles in which the output unit is busy: scaling, activation, and all of an elementwise operation."""
    rates = accelerator.rates
    traits = work.traits
    rate = rates.output[traits.output]
    if traits.looks_up:
        rate = max(rate, rates.lookup)
    elif traits.clamps:
        rate = max(rate, rates.clamp)
    if traits.turned:
        rate = max(rate, rates.turn)
    if accelerator.micro_blocks:  # the cores work on one block together
        return ceil(rate * work.made.elements)
    return ceil(rate * accelerator.cores / traits.cores * _put_out(work))


def _put_out(work: Work) -> int:
    """Elements of all cores' blocks: a core puts out whole depths of micro-blocks, however few are its own."""
    deep = work.traits.micro.depth
    channels = sum(-(-depth // deep) * deep * count for depth, count in work.depths)
    return work.made.area * channels * work.traits.cores


def _block(work: Work, accelerator: Architecture, height: int, width: int, depth: int) -> int:
    """Cycles of one OFM block on one core."""
    micro = work.traits.micro
    plane = -(-height // micro.height) * -(-width // micro.width)
    deep = -(-depth // micro.depth)
    group = work.traits.taps
    decode = _weights(work, accelerator) * micro.depth // accelerator.decoded_weights
    wide = 2 if work.ifm_bits >= 16 else 1
    cycles = 0
    for taps in work.pieces:
        if work.engine is Engine.POOL:
            steps = 1
            doubled = wide if accelerator.rates.doubles_16_bit_pools else 1
            busy = max(_STEP, taps) * plane * deep * doubled
        elif work.engine is Engine.DEPTHWISE:
            steps = -(-taps // group)
            busy = max(decode, group * plane * wide) * steps * deep
        else:
            steps = -(-taps // group) if work.part_kernel else taps
            by_slice = accelerator.micro_blocks and not work.part_kernel
            step = work.slice_channels // work.traits.channels * wide if by_slice else group * wide
            busy = max(decode, step * plane) * steps * deep
        busy += _start(work, accelerator, plane, deep, steps)
        cycles += busy
    if work.part_kernel:
        return cycles * -(-work.ifm.depth // work.traits.channels)
    if work.sums_channels and accelerator.micro_blocks:  # the last slice has only the channels that are left
        channels = work.traits.channels
        return -(-cycles * -(-work.ifm.depth // channels) * channels // work.slice_channels)
    if work.sums_channels:
        return cycles * -(-work.ifm.depth // work.slice_channels)
    return cycles


def _weights(work: Work, accelerator: Architecture) -> int:
    """The weights that one output channel needs in a kernel step."""
    if not accelerator.micro_blocks:
        return _STEP_WEIGHTS
    if work.engine in (Engine.DEPTHWISE, Engine.POOL):
        return work.traits.taps  # of one channel
    if work.part_kernel:
        return work.traits.taps * accelerator.ifm_micro_depth
    return work.slice_channels * accelerator.ifm_micro_depth // work.traits.channels


def _start(work: Work, accelerator: Architecture, plane: int, deep: int, steps: int) -> int:
    """Cycles lost because a step cannot follow the one before it when a block is a single micro-block."""
    rates = accelerator.rates
    lost = rates.start_acc40 if work.traits.acc40 else rates.start
    if plane > 1:
        return 0
    return lost * steps if deep == 1 else lost * (steps - 1) * deep
