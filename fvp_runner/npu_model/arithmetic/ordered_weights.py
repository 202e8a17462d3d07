"""The order in which Ethos-U85 consumes weights.

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

from collections.abc import Sequence
from dataclasses import dataclass

from .weights import FILLING, SUBKERNEL, Element, WeightOrder


@dataclass(frozen=True, slots=True)
class StreamOrder(WeightOrder):
    """The same on Ethos-U85."""

    stride_y: int
    stride_x: int
    sparse: bool
    macs: int

    @property
    def _round(self) -> int:
        if self.depthwise:
            return 10
        if not self.part_kernel_first:
            return 1
        return 10 if self.ifm_bits == 16 or self.sparse else 5

    @property
    def _group_depth(self) -> int:
        if self.depthwise:
            return 1
        return 8 if self.part_kernel_first and self.ifm_bits == 16 and not self.sparse else self.slice_depth

    @property
    def _inner(self) -> int:
        return 1 if self.depthwise else 16 if self.sparse else 8

    @property
    def _lead(self) -> int:
        """Zeros a core's channel gets after each ten elements of a depthwise kernel."""
        if not self.depthwise or (self.ifm_bits != 16 and self.macs <= 256):
            return 0
        return 2 if self.macs <= 512 else 6

    def _elements(self, height: int, width: int) -> list[Element]:
        strides = (self.stride_y, self.stride_x) if self.part_kernel_first or self.depthwise else (1, 1)
        found: list[Element] = []
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
                            found += [FILLING] * self._lead
        return found + [FILLING] * (left + self._lead if left else 0)

    def _slices(self, block: int) -> Sequence[int]:
        return range(0, self.ifm_depth, self.slice_depth)[:: -1 if block % 2 else 1]

    def _subkernels(self) -> list[Element]:
        columns = range(0, self.kernel_width, SUBKERNEL // self.dilation_x)
        return [(y, x) for x in columns for y in range(0, self.kernel_height, SUBKERNEL // self.dilation_y)]
