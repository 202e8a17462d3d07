"""Weights and scale tables: the order in which the NPU consumes them.

Invariant: everything that decodes outside the kernel is zero and the number of weights is exact;
so a wrong block depth, traversal or micro-block is always noticed.

Order, outermost first: blocks of output channels; slices of input channels (32 depth-first with 8
bits, else 16); sub-kernels of at most 8 x 8 dilated elements; part-kernel-first only: micro-blocks of 8
input channels; micro-blocks of output channels; kernel elements, x fastest; depth-first only: micro-blocks
of 8 input channels over the whole slice; output channels of the micro-block; input channels of it.
Depthwise kernels have one input channel and no slices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ..errors import WeightStreamError, WeightStreamLongError, WeightStreamShortError

_IFM_UBLOCK = 8
_GROUP = 4  # output channels that one core takes in a row
SUBKERNEL = 8  # rows or columns, dilation included
SCALE_BYTES = 10
Element = tuple[int, int]  # row and column of a kernel element
FILLING: Element = (-1, -1)  # in place of one


@dataclass(frozen=True, slots=True)
class WeightOrder:
    """What determines the order of the weight streams of one operation; as it says itself on Ethos-U55 and U65."""

    kernel_height: int  # without dilation
    kernel_width: int
    dilation_y: int
    dilation_x: int
    ifm_depth: int  # 1 for depthwise
    ofm_depth: int  # channels of these streams (of one core, where each has its own order)
    block_depth: int  # of the same
    ifm_bits: int
    part_kernel_first: bool
    depthwise: bool
    micro_depth: int  # output channels of a micro-block
    slice_depth: int  # input channels of one pass
    _: KW_ONLY
    cores: int = 1  # that share these weights, each with a stream of its own

    @property
    def _group_depth(self) -> int:
        """Input channels between two changes of the micro-block of output channels."""
        return 1 if self.depthwise else _IFM_UBLOCK if self.part_kernel_first else self.slice_depth

    @property
    def _inner(self) -> int:
        """Input channels in a row."""
        return 1 if self.depthwise else _IFM_UBLOCK

    @property
    def _round(self) -> int:
        """Elements of a sub-kernel are filled up to a multiple of this."""
        if self.depthwise:
            return 4
        return (4 if self.ifm_bits == 8 else 2) if self.part_kernel_first else 1

    def _elements(self, height: int, width: int) -> list[Element]:
        """Rows and columns of a sub-kernel's elements in order, `FILLING` included."""
        return [*product(range(height), range(width)), *[FILLING] * (-height * width % self._round)]

    def _slices(self, block: int) -> Sequence[int]:
        """First input channels of the slices of output block number `block`, in order."""
        return range(0, self.ifm_depth, self.slice_depth)

    def _subkernels(self) -> list[Element]:
        """Row and column of the first elements of all sub-kernels, in order."""
        rows = range(0, self.kernel_height, SUBKERNEL // self.dilation_y)
        return list(product(rows, range(0, self.kernel_width, SUBKERNEL // self.dilation_x)))

    def _runs(self) -> Iterator[tuple[Element, slice, slice, tuple[int, ...], list[Element]]]:
        """(first element of the sub-kernel, input channels, output channels, padded shape, elements) of each run.

        Shape: micro-blocks, elements, groups of input channels, groups of this core, output channels, input channels.
        """
        step_y, step_x = SUBKERNEL // self.dilation_y, SUBKERNEL // self.dilation_x
        elements = {
            (y, x): self._elements(min(step_y, self.kernel_height - y), min(step_x, self.kernel_width - x))
            for y, x in self._subkernels()
        }
        groups = self._group_depth // self._inner, self.micro_depth // (_GROUP * self.cores)
        for block, o in enumerate(range(0, self.ofm_depth, self.block_depth)):
            outputs = slice(o, min(o + self.block_depth, self.ofm_depth))
            blocks = -(-(outputs.stop - o) // self.micro_depth)
            for i in self._slices(block):
                stop = 1 if self.depthwise else min(i + self.slice_depth, self.ifm_depth)
                for first, inner in elements.items():
                    shape = (blocks, len(inner), *groups, _GROUP, self._inner)
                    for start in range(i, stop, self._group_depth):
                        inputs = slice(start, min(start + self._group_depth, self.ifm_depth))
                        yield first, inputs, outputs, shape, inner

    @property
    def count(self) -> int:
        """Weights in each stream, padding included."""
        return sum(math.prod(shape) for *_, shape, _ in self._runs())

    @property
    def interleaved(self) -> int:
        """Weights of one core in a row where one stream serves all cores."""
        return self.micro_depth * self._group_depth * self._round // self.cores

    def arrange(self, streams: Sequence[NDArray[np.int16]], where: str) -> NDArray[np.int16]:
        """The weights as [kernel height, kernel width, input channels, output channels]; a stream for each core.

        Raises `WeightStreamShortError`, `WeightStreamLongError`, or `WeightStreamError` when padding is not zero.
        """
        for stream in streams:
            self._check_count(len(stream), where)
        out = np.zeros((self.kernel_height, self.kernel_width, self.ifm_depth, self.ofm_depth), np.int16)
        position = 0
        for (y, x), inputs, outputs, shape, elements in self._runs():
            size = math.prod(shape)
            parts = np.stack([stream[position : position + size].reshape(shape) for stream in streams])
            position += size
            # [core, block, element, input group, output group, output, input] -> [element, input, output]
            run = parts.transpose(2, 3, 6, 1, 4, 0, 5).reshape(len(elements), shape[2] * shape[5], -1)
            ins, outs = inputs.stop - inputs.start, outputs.stop - outputs.start
            real = [n for n, element in enumerate(elements) if element != FILLING]
            rows, columns = (np.array([elements[n][axis] for n in real]) for axis in (0, 1))
            out[y + rows, x + columns, inputs, outputs] = run[real, :ins, :outs]
        stray = sum(int(np.count_nonzero(stream)) for stream in streams) - int(np.count_nonzero(out))
        if stray:
            raise WeightStreamError(
                f"{where}: {stray} weights that stand outside the kernel are not zero: the stream was made "
                "for another shape, block depth or traversal"
            )
        return out

    def _check_count(self, found: int, where: str) -> None:
        """`WeightStreamShortError` or `WeightStreamLongError` when a stream has not as many weights as it must.

        The exact count takes a loop over blocks; a damaged shape must not start it.
        """
        least = self.kernel_height * self.kernel_width * self.ifm_depth * self.ofm_depth // (4 * self.cores)
        bounded = least > found
        expected = least if bounded else self.count
        if found == expected:
            return
        kind, error = ("short", WeightStreamShortError) if found < expected else ("long", WeightStreamLongError)
        raise error(
            f"{where}: the weight stream is too {kind}: it holds {found} weights, the operation consumes "
            f"{'at least ' if bounded else ''}{expected}; the block depth ({self.block_depth}), the kernel or the "
            "weights are wrong"
        )


@dataclass(frozen=True, slots=True)
class ScaleTable:
    """Per output channel: bias, multiplier (unsigned), right shift (6 bits); int64 arrays."""

    bias: NDArray[np.int64]
    scale: NDArray[np.int64]
    shift: NDArray[np.int64]

    @staticmethod
    def parse(
        data: NDArray[np.uint8], channels: int, where: str, bias_bytes: int = 5, scale_bits: int = 32
    ) -> ScaleTable:
        """The table in `data`, records of bias, scale and shift; `WeightStreamShortError` when it ends too early."""
        if data.size < channels * SCALE_BYTES:
            raise WeightStreamShortError(
                f"{where}: the scale table of {data.size} bytes is too short for {channels} channels, "
                f"which need {channels * SCALE_BYTES}"
            )
        table = data[: channels * SCALE_BYTES].reshape(channels, SCALE_BYTES).astype(np.int64)
        powers = np.int64(1) << (8 * np.arange(6, dtype=np.int64))
        end = bias_bytes + -(-scale_bits // 8)
        bias = table[:, :bias_bytes] @ powers[:bias_bytes]
        bias -= (bias >> (8 * bias_bytes - 1)) << (8 * bias_bytes)
        scale = table[:, bias_bytes:end] @ powers[: end - bias_bytes] & (1 << scale_bits) - 1
        return ScaleTable(bias, scale, table[:, end] & 0x3F)

    @staticmethod
    def interleave(parts: list[ScaleTable]) -> ScaleTable:
        """Tables of cores 0 and 1, which hold even and odd channels, as one."""
        if len(parts) == 1:
            return parts[0]
        total = sum(len(p.bias) for p in parts)
        merged = [np.zeros(total, np.int64) for _ in range(3)]
        for core, part in enumerate(parts):
            for target, source in zip(merged, (part.bias, part.scale, part.shift), strict=True):
                target[core :: len(parts)] = source
        return ScaleTable(*merged)
