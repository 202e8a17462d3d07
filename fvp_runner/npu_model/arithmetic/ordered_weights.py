"""The order in which Ethos-U85 consumes weights, and its records of bias and scale.

Invariant: as on the other NPUs everything that decodes outside the kernel is zero and the count is exact, so that a
wrong block depth, traversal or micro-block is always noticed. Source: the encoder of ethos-u-vela 5.2.0.

Order, outermost first: blocks of output channels; slices of input channels, from the last to the first in every second
block; sub-kernels of at most 8 x 8 dilated elements, y fastest; part-kernel first with 16 bits: groups of 8 input
channels; micro-blocks of output channels; phases of the stride (part-kernel first and depthwise); kernel elements, x
fastest and backwards in every second row; groups of 8 input channels (16 where weights are 2:4); this core's groups of
4 output channels; output channels; input channels. Elements of a sub-kernel are filled up to a multiple of 5 or 10
with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .weights import KernelOrder, ScaleTable, check_padding

_GROUP = 4  # output channels that one core takes in a row
_SUBKERNEL = 8
_Element = tuple[int, int]  # row and column of a kernel element; (-1, -1): filling


@dataclass(frozen=True, slots=True)
class StreamOrder(KernelOrder):
    """What determines the order of the weight streams of one operation."""

    stride_y: int
    stride_x: int
    slice_depth: int  # input channels of one pass
    micro_depth: int  # output channels of a micro-block
    sparse: bool
    cores: int
    macs: int

    @property
    def _round(self) -> int:
        """Elements of a sub-kernel are filled up to a multiple of this."""
        if self.depthwise:
            return 10
        if not self.part_kernel_first:
            return 1
        return 10 if self.ifm_bits == 16 or self.sparse else 5

    @property
    def _group_depth(self) -> int:
        """Input channels between two changes of the micro-block of output channels."""
        if self.depthwise:
            return 1
        return 8 if self.part_kernel_first and self.ifm_bits == 16 and not self.sparse else self.slice_depth

    @property
    def _lead(self) -> int:
        """Zeros a core's channel gets after each ten elements of a depthwise kernel."""
        if not self.depthwise or (self.ifm_bits != 16 and self.macs <= 256):
            return 0
        return 2 if self.macs <= 512 else 6

    def _elements(self, height: int, width: int) -> list[_Element]:
        """Elements of a sub-kernel in order, filling included."""
        strides = (self.stride_y, self.stride_x) if self.part_kernel_first or self.depthwise else (1, 1)
        found: list[_Element] = []
        left = -(-height * width // self._round) * self._round
        for sy in range(strides[0]):
            rows = (height + strides[0] - 1 - sy) // strides[0]
            for sx in range(strides[1]):
                columns = (width + strides[1] - 1 - sx) // strides[1]
                for y in range(rows):
                    for x in range(columns) if y % 2 == 0 else reversed(range(columns)):
                        found.append((sy + y * strides[0], sx + x * strides[1]))
                        left -= 1
                        if self.depthwise and left % self._round == 0:
                            found += [(-1, -1)] * self._lead
        return found + [(-1, -1)] * (left + self._lead if left else 0)

    def _runs(self) -> Iterator[tuple[int, int, slice, slice, int, list[_Element]]]:
        """(row, column of the sub-kernel, input channels, output channels, micro-blocks, elements) of each run."""
        backwards = False
        for o in range(0, self.ofm_depth, self.block_depth):
            outputs = slice(o, min(o + self.block_depth, self.ofm_depth))
            blocks = -(-(outputs.stop - o) // self.micro_depth)
            starts = list(range(0, self.ifm_depth, self.slice_depth))
            for i in reversed(starts) if backwards else starts:
                step_y, step_x = _SUBKERNEL // self.dilation_y, _SUBKERNEL // self.dilation_x
                for x in range(0, self.kernel_width, step_x):
                    for y in range(0, self.kernel_height, step_y):
                        size = min(step_y, self.kernel_height - y), min(step_x, self.kernel_width - x)
                        elements = self._elements(*size)
                        stop = 1 if self.depthwise else min(i + self.slice_depth, self.ifm_depth)
                        for first in range(i, stop, self._group_depth):
                            inputs = slice(first, min(first + self._group_depth, self.ifm_depth))
                            yield y, x, inputs, outputs, blocks, elements
            backwards = not backwards

    def _shape(self, blocks: int, elements: int) -> tuple[int, int, int, int, int, int]:
        """Micro-blocks, elements, groups of input channels, groups of this core, output channels, input channels."""
        inner = 1 if self.depthwise else 16 if self.sparse else 8
        return blocks, elements, self._group_depth // inner, self.micro_depth // (_GROUP * self.cores), _GROUP, inner

    @property
    def count(self) -> int:
        return sum(int(np.prod(self._shape(run[4], len(run[5])))) for run in self._runs())

    @property
    def interleaved(self) -> int:
        """Weights of one core in a row where one stream serves all cores."""
        return self.micro_depth * self._group_depth * self._round // self.cores

    def arrange(self, streams: list[NDArray[np.int16]], where: str) -> NDArray[np.int16]:
        """The weights as [kernel height, kernel width, input channels, output channels]; a stream for each core.

        Raises `WeightStreamShortError`, `WeightStreamLongError`, or `WeightStreamError` when padding is not zero.
        """
        for stream in streams:
            self.check_count(len(stream), 4 * self.cores, where)
        out = np.zeros((self.kernel_height, self.kernel_width, self.ifm_depth, self.ofm_depth), np.int16)
        position = 0
        for y, x, inputs, outputs, blocks, elements in self._runs():
            shape = self._shape(blocks, len(elements))
            size = int(np.prod(shape))
            parts = np.stack([stream[position : position + size].reshape(shape) for stream in streams])
            position += size
            # [core, block, element, input group, output group, output, input] -> [element, input, output]
            run = parts.transpose(2, 3, 6, 1, 4, 0, 5).reshape(len(elements), shape[2] * shape[5], -1)
            ins, outs = inputs.stop - inputs.start, outputs.stop - outputs.start
            real = [n for n, element in enumerate(elements) if element[0] >= 0]
            rows, columns = (np.array([elements[n][axis] for n in real]) for axis in (0, 1))
            out[y + rows, x + columns, inputs, outputs] = run[real, :ins, :outs]
        check_padding(streams, out, where)
        return out


def scale_table(data: NDArray[np.uint8], channels: int, wide: bool, where: str) -> ScaleTable:
    """Records of ten bytes: bias of 32 bits and scale of 31, or (`wide`) bias of 48 and scale of 15; shift of 6."""
    split = 6 if wide else 4
    table = ScaleTable.parse(data, channels, where, split, 8 - split)
    return replace(table, scale=table.scale & (0x7FFF if wide else 0x7FFFFFFF))
