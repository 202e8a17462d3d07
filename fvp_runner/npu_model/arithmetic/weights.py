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

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import WeightStreamError, WeightStreamLongError, WeightStreamShortError

IFM_UBLOCK = 8
_SUBKERNEL = 8  # rows or columns, dilation included
SCALE_BYTES = 10


@dataclass(frozen=True, slots=True)
class KernelOrder(ABC):
    """What determines the order of weights on every NPU."""

    kernel_height: int  # without dilation
    kernel_width: int
    dilation_y: int
    dilation_x: int
    ifm_depth: int  # 1 for depthwise
    ofm_depth: int  # channels of this stream (of one core, where each has its own order)
    block_depth: int  # of the same
    ifm_bits: int
    part_kernel_first: bool
    depthwise: bool

    @property
    @abstractmethod
    def count(self) -> int:
        """Weights in each stream, padding included."""

    def check_count(self, found: int, streams: int, where: str) -> None:
        """`WeightStreamShortError` or `WeightStreamLongError` when one of `streams` has not as many weights as it must.

        The exact count takes a loop over blocks; a damaged shape must not start it.
        """
        least = self.kernel_height * self.kernel_width * self.ifm_depth * self.ofm_depth // streams
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
class WeightOrder(KernelOrder):
    """What determines the order of one weight stream."""

    ofm_ublock: int

    def segments(self) -> Iterator[tuple[slice, slice, slice, slice, tuple[int, ...]]]:
        """Rows, columns, input channels, output channels and padded shape of each run of the stream.

        Shape: [input ublocks (part-kernel)][output ublocks][elements][input ublocks (depth-first)]
        [output channels of a ublock][input channels of a ublock].
        """
        part = self.part_kernel_first and not self.depthwise
        ifm_block = 32 if self.ifm_bits == 8 and not self.part_kernel_first else 16
        step_y, step_x = _SUBKERNEL // self.dilation_y, _SUBKERNEL // self.dilation_x
        inner = 1 if self.depthwise else IFM_UBLOCK
        for o in range(0, self.ofm_depth, self.block_depth):
            outputs = slice(o, min(o + self.block_depth, self.ofm_depth))
            o_ublocks = -(-(outputs.stop - o) // self.ofm_ublock)
            for i in range(0, self.ifm_depth, ifm_block):
                inputs = slice(i, min(i + ifm_block, self.ifm_depth))
                for y in range(0, self.kernel_height, step_y):
                    rows = slice(y, min(y + step_y, self.kernel_height))
                    for x in range(0, self.kernel_width, step_x):
                        columns = slice(x, min(x + step_x, self.kernel_width))
                        elements = (rows.stop - y) * (columns.stop - x)
                        if self.depthwise:
                            elements += -elements % 4
                            lead, i_ublocks = 1, 1
                        elif part:
                            elements += -elements % (4 if self.ifm_bits == 8 else 2)
                            lead, i_ublocks = -(-(inputs.stop - i) // IFM_UBLOCK), 1
                        else:
                            lead, i_ublocks = 1, ifm_block // IFM_UBLOCK
                        shape = (lead, o_ublocks, elements, i_ublocks, self.ofm_ublock, inner)
                        yield rows, columns, inputs, outputs, shape

    @property
    def count(self) -> int:
        return sum(int(np.prod(shape)) for *_, shape in self.segments())

    def arrange(self, stream: NDArray[np.int16], where: str) -> NDArray[np.int16]:
        """The weights as [kernel height, kernel width, input channels, output channels].

        Raises `WeightStreamShortError`, `WeightStreamLongError`, or `WeightStreamError` when padding is not zero.
        """
        self.check_count(len(stream), 1, where)
        out = np.zeros((self.kernel_height, self.kernel_width, self.ifm_depth, self.ofm_depth), np.int16)
        position = 0
        for rows, columns, inputs, outputs, shape in self.segments():
            size = int(np.prod(shape))
            run = stream[position : position + size].reshape(shape)
            position += size
            lead, o_ublocks, elements, i_ublocks, o_inner, i_inner = shape
            # -> [elements][input channels][output channels]
            run = run.transpose(2, 0, 3, 5, 1, 4).reshape(elements, lead * i_ublocks * i_inner, o_ublocks * o_inner)
            height, width = rows.stop - rows.start, columns.stop - columns.start
            ins, outs = inputs.stop - inputs.start, outputs.stop - outputs.start
            run = run[: height * width, :ins, :outs]
            out[rows, columns, inputs, outputs] = run.reshape(height, width, ins, outs)
        check_padding([stream], out, where)
        return out


def check_padding(streams: Sequence[NDArray[np.int16]], out: NDArray[np.int16], where: str) -> None:
    """`WeightStreamError` when something of the streams that is no weight of `out` is not zero."""
    stray = sum(int(np.count_nonzero(stream)) for stream in streams) - int(np.count_nonzero(out))
    if stray:
        raise WeightStreamError(
            f"{where}: {stray} weights that stand outside the kernel are not zero: the stream was made "
            "for another shape, block depth or traversal"
        )


@dataclass(frozen=True, slots=True)
class ScaleTable:
    """Per output channel: bias (40 bits), multiplier (unsigned 32 bits), right shift (6 bits); int64 arrays."""

    bias: NDArray[np.int64]
    scale: NDArray[np.int64]
    shift: NDArray[np.int64]

    @staticmethod
    def parse(
        data: NDArray[np.uint8], channels: int, where: str, bias_bytes: int = 5, scale_bytes: int = 4
    ) -> ScaleTable:
        """The table in `data`, records of bias, scale and shift; `WeightStreamShortError` when it ends too early."""
        if data.size < channels * SCALE_BYTES:
            raise WeightStreamShortError(
                f"{where}: the scale table of {data.size} bytes is too short for {channels} channels, "
                f"which need {channels * SCALE_BYTES}"
            )
        table = data[: channels * SCALE_BYTES].reshape(channels, SCALE_BYTES).astype(np.int64)
        powers = np.int64(1) << (8 * np.arange(6, dtype=np.int64))
        end = bias_bytes + scale_bytes
        bias = table[:, :bias_bytes] @ powers[:bias_bytes]
        bias -= (bias >> (8 * bias_bytes - 1)) << (8 * bias_bytes)
        return ScaleTable(bias, table[:, bias_bytes:end] @ powers[:scale_bytes], table[:, end] & 0x3F)

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
