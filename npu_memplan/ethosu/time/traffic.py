"""What an operation moves over the ports: bytes, beats and requests by role.

Invariant: inputs are counted as often as blocks read them (windows overlap; a convolution reads its input again for
every depth of output blocks), weights once for every block of a plane; requests are contiguous runs cut at the burst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..arch import Architecture, Channel
from ..program.access import INDEX_BYTES, FeatureMap, Role, constant_streams
from ..stream.decode import Operation
from ..stream.fields import DmaRegion, WeightWord
from ..stream.isa import BRICK_CHANNELS, Register
from .memory import Traffic
from .traits import Engine
from .work import Work

_SLICES = 4  # of an input's channels that stay inside the NPU at most


@dataclass(frozen=True, slots=True)
class Flow:
    """All traffic of one role."""

    role: Role
    region: int  # -1: inside the NPU
    writes: bool
    traffic: Traffic
    channel: Channel | None = None  # that asks for it


def run(length: int, count: int, accelerator: Architecture) -> Traffic:
    """`count` contiguous runs of `length` bytes."""
    if length <= 0:
        return Traffic()
    return Traffic(
        length * count, -(-length // accelerator.port_bytes) * count, -(-length // accelerator.burst_bytes) * count
    )


def flows(operation: Operation, work: Work, accelerator: Architecture) -> Iterator[Flow]:
    """The flows of a kernel."""
    streamed = work.engine is Engine.ELEMENTWISE
    inputs = Channel.INPUT_STREAM if streamed else Channel.INPUT
    yield Flow(Role.IFM, work.ifm.region, False, _input(work, work.ifm, accelerator), inputs)
    if work.ifm2 is not None and work.engine is Engine.CONV:  # a matrix: weights of each block
        matrix = _map(work.ifm2, 1, ((work.ifm2.width, 1),), work.ifm2.depth, accelerator)
        yield Flow(Role.IFM2, work.ifm2.region, False, matrix * work.plane_blocks, Channel.INPUT_STREAM)
    elif work.ifm2 is not None:
        yield Flow(Role.IFM2, work.ifm2.region, False, _input(work, work.ifm2, accelerator), inputs)
    times = work.plane_blocks
    for role, streams in constant_streams(operation, accelerator):
        total = run(operation.get(streams[0].length), times, accelerator)
        for core in streams[1:]:
            total += run(operation.get(core.length), times, accelerator)
        yield Flow(role, operation.get(streams[0].region), False, total, _reader(role, operation))
    made = _map(work.ofm, work.ofm.height, work.x.blocks, work.block.depth, accelerator)
    yield Flow(Role.OFM, work.ofm.region, True, made)


def _reader(role: Role, operation: Operation) -> Channel:
    if role is Role.SCALES:
        return Channel.SCALES
    fast = WeightWord.FAST.value_in(operation.get(Register.WEIGHT_FORMAT))
    return Channel.FAST_WEIGHTS if fast else Channel.WEIGHTS


def dma_flows(operation: Operation, accelerator: Architecture) -> Iterator[Flow]:
    """The flows of a transfer; the side that is inside the NPU crosses no port."""
    r = Register
    source, target = operation[r.DMA0_SRC_REGION], operation[r.DMA0_DST_REGION]
    dimensions = max(DmaRegion.DIMENSIONS.value_in(source), DmaRegion.DIMENSIONS.value_in(target))
    rows = operation[r.DMA0_SIZE0] if dimensions > 0 else 1
    planes = operation[r.DMA0_SIZE1] if dimensions > 1 else 1
    moved = run(operation[r.DMA0_LEN], rows * planes, accelerator)
    yield Flow(Role.DMA_SRC, DmaRegion.REGION.value_in(source), False, moved, Channel.TRANSFER)
    if DmaRegion.INDEXED.value_in(source) or DmaRegion.INDEXED.value_in(target):
        indices = run(INDEX_BYTES * rows, planes, accelerator)
        yield Flow(Role.DMA_INDEX, operation[r.DMA0_IDX_REGION], False, indices)
    inside = bool(DmaRegion.INTERNAL.value_in(target))
    yield Flow(Role.DMA_DST, -1 if inside else DmaRegion.REGION.value_in(target), True, moved)


def _input(work: Work, view: FeatureMap, accelerator: Architecture) -> Traffic:
    if work.engine is Engine.ELEMENTWISE:
        columns = ((1, 1),) if view.width == 1 else work.x.blocks
        return _map(view, view.height, columns, view.depth, accelerator)
    if not work.sums_channels:
        depth = work.micro_depth if work.engine is Engine.DEPTHWISE else work.block.depth
        return _map(view, work.y.read, work.x.reads, depth, accelerator)
    once = _map(view, work.y.read, work.x.reads, work.slice_channels, accelerator)
    return _again(once, work, accelerator)


def _again(once: Traffic, work: Work, accelerator: Architecture) -> Traffic:
    """An input that every depth of blocks reads, but for the slices of channels that stay from one to the next."""
    slices, again = work.slices, work.depth_blocks - 1
    if not accelerator.input_bytes or len(work.pieces) > 1:
        return once * work.depth_blocks
    stay = min(slices, _SLICES, _room(work, accelerator))
    moved = (n + n * again * (slices - stay) // slices for n in (once.bytes, once.beats, once.requests))
    return Traffic(*moved)


def _room(work: Work, accelerator: Architecture) -> int:
    """Slices of the input's channels that there is room for inside the NPU."""
    rows, columns = (max((size for size, _ in axis.reads), default=1) for axis in (work.y, work.x))
    slice_bytes = rows * columns * min(work.slice_channels, work.ifm.depth) * work.ifm.element_bytes
    return accelerator.input_bytes // max(slice_bytes, 1)


def read_shares(work: Work, accelerator: Architecture) -> tuple[float, float]:
    """The share of its input that a convolution reads while it makes the last depth of output blocks of a plane, and
    while each other one: the next plane's input comes with the last, but for slices that there is room for before.
    """
    slices, later = work.slices, work.depth_blocks - 1
    if not later or len(work.pieces) > 1:
        return 1 / work.depth_blocks, 1 / work.depth_blocks
    room = _room(work, accelerator)
    again = (slices - min(slices, _SLICES, room)) / slices
    early = min(max(room - slices, 0), slices) / slices
    total = 1 + again * later
    return (1 - early) / total, (again + early / later) / total


def _map(
    view: FeatureMap, rows: int, columns: tuple[tuple[int, int], ...], channels: int, accelerator: Architecture
) -> Traffic:
    """`rows` rows of a feature map in pieces of (elements, how many) and of at most `channels` channels."""
    if not view.depth:
        return Traffic()  # not in memory
    whole, rest = divmod(view.depth, channels)
    size, port, burst = view.element_bytes, accelerator.port_bytes, accelerator.burst_bytes
    moved = beats = requests = 0
    for depth, count in ((channels, whole), (rest, 1)):
        if not depth or not count:
            continue
        dense = depth == view.depth and view.stride_x == depth * size
        for width, times in columns:
            if view.brick:
                length, runs = width * BRICK_CHANNELS * size, -(-depth // BRICK_CHANNELS)
            elif dense:
                length, runs = width * depth * size, 1
            else:
                length, runs = depth * size, width
            runs *= rows * times * count
            moved += length * runs
            beats += -(-length // port) * runs
            requests += -(-length // burst) * runs
    return Traffic(moved, beats, requests)
