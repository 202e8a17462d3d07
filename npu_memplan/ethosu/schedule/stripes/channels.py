"""One operation as a function of output channels: what they need of its inputs, and the operation that makes them.

Invariant: slices that cover all channels of an operation compute, together, exactly its result, of which each channel
is made as before; only places, depths and weights follow the channels. Slices begin at whole bricks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...program.access import FeatureMap, sums_depth
from ...program.program import NpuOperation, NpuProgram
from ...stream.fields import FEATURE_MAPS, IFM, SCALES, WEIGHTS
from ...stream.isa import BRICK_CHANNELS, Op
from ...stream.isa import Register as R
from ..shram import round_up

Channels = tuple[int, int]  # half-open


@dataclass(frozen=True, slots=True)
class DeepMap:
    """A feature map in a buffer, channel by channel."""

    buffer: str
    offset: int  # bytes from the start of the buffer to channel 0
    layout: FeatureMap

    @property
    def is_whole(self) -> bool:
        """Whether the buffer begins with it, and its elements are one after the other."""
        view = self.layout
        return self.offset == 0 and (view.stride_y, view.stride_x, view.stride_c) == self.strides(view.depth)

    def like(self, other: DeepMap) -> bool:
        """Whether element (y, x, c) of one is that of the other in their buffer, for what both of them reach."""
        ours, theirs = (
            (m.offset, v.stride_y, v.stride_x, v.stride_c, v.depth, v.element_bytes, v.brick)
            for m, v in ((self, self.layout), (other, other.layout))
        )
        return ours == theirs

    def slice_bytes(self, depth: int) -> int:
        """Bytes of a buffer for so many of its channels."""
        return self.layout.height * self.strides(depth)[0]

    def place(self, channel: int) -> tuple[str, int]:
        """Where `channel`, the first of a brick, begins."""
        view = self.layout
        step = view.stride_c // BRICK_CHANNELS if view.brick else view.element_bytes
        return self.buffer, self.offset + channel * step

    def strides(self, depth: int) -> tuple[int, int, int]:
        """From row to row, column to column, brick to brick in a buffer of `depth` channels alone."""
        view = self.layout
        brick = BRICK_CHANNELS * view.element_bytes
        if view.brick:
            plane = view.width * brick
            return plane * (round_up(depth, BRICK_CHANNELS) // BRICK_CHANNELS), brick, plane
        return view.width * depth * view.element_bytes, depth * view.element_bytes, brick


Inner = Mapping[str, DeepMap]  # buffers of a group alone: what is made there


@dataclass(frozen=True, slots=True)
class Deep:
    """An operation whose channels can be made apart from each other."""

    index: int  # in the program
    operation: NpuOperation
    output: DeepMap
    inputs: tuple[DeepMap, ...]  # of which channel c is what channel c is made of
    summed: frozenset[str]  # buffers of which every channel needs more

    @property
    def depth(self) -> int:
        return self.output.layout.depth

    def part(self, channels: Channels, inner: Inner, step: int) -> NpuOperation:
        """The operation that makes `channels` alone, with weights of all; buffers in `inner` hold `step` channels."""
        registers, addresses = dict(self.operation.registers), dict(self.operation.addresses)
        count = channels[1] - channels[0]
        registers[R.OFM_DEPTH_M1] = count - 1
        registers[R.OFM_BLK_DEPTH_M1] = min(registers[R.OFM_BLK_DEPTH_M1], step - 1)
        if any(view.layout.name == IFM.name for view in self.inputs):
            registers[R.IFM_DEPTH_M1] = count - 1
        for view in (self.output, *self.inputs):
            group, first = FEATURE_MAPS[view.layout.name], channels[0]
            if view.buffer in inner:
                strides = inner[view.buffer].strides(step)
                registers |= zip((group.stride_y, group.stride_x, group.stride_c), strides, strict=True)
                first = 0
            addresses[group.bases[0]] = view.place(first)
        return replace(self.operation, registers=registers, addresses=addresses)

    def about(self, channels: Channels, inner: Inner, step: int) -> NpuOperation:
        """The same with about as much weight as these channels have, for an estimate."""
        made = self.part(channels, inner, step)
        lengths = {s.length: made.registers[s.length] for s in (*WEIGHTS, *SCALES) if s.length in made.registers}
        share = channels[1] - channels[0]
        less = {register: round_up(length * share // self.depth, 16) for register, length in lengths.items()}
        return replace(made, registers={**made.registers, **less})


def deep(program: NpuProgram, index: int) -> Deep | None:
    """Operation `index` channel by channel; None when its channels cannot be made apart."""
    operation = program.operations[index]
    if operation.op is Op.DMA_START:
        return None
    placed = program.at_zero(index)
    sums = sums_depth(placed)
    if sums and operation.op is Op.POOL:
        return None
    output, source, second = FeatureMap.ofm(placed), FeatureMap.ifm(placed), FeatureMap.ifm2(placed)
    views = [v for v in (source, second) if v is not None and v.base_register(0) in operation.addresses]  # no scalars
    if any(len(view.tiles(view.height, view.width)) != 1 for view in (output, *views)):
        return None
    apart: list[DeepMap] = []
    summed: list[str] = []
    for view in views:
        made = _map(operation, view)
        if sums or (view.depth == 1 and output.depth > 1):
            summed.append(made.buffer)
        elif view.depth == output.depth:
            apart.append(made)
        else:
            return None
    target = _map(operation, output)
    if not sums and operation.registers.get(R.IFM_DEPTH_M1) != operation.registers[R.OFM_DEPTH_M1]:
        return None  # one channel makes several
    if any(name == target.buffer for name in (*summed, *(view.buffer for view in apart))):
        return None
    return Deep(index, operation, target, tuple(apart), frozenset(summed))


def _map(operation: NpuOperation, view: FeatureMap) -> DeepMap:
    return DeepMap(*operation.addresses[view.base_register(0)], view)
