"""The order in which Ethos-U85 takes in weights: the streams of its cores from a kernel.

Invariant: a stream holds every weight of its core once, and zeros where an order is filled up; what the NPU model reads
back is the kernel. Source: the encoder of ethos-u-vela 5.2.0.

Outermost first: blocks of output channels; slices of input channels, backwards in every second block; pieces of at most
8 x 8 dilated elements, y fastest; part-kernel first with 16 bits: groups of 8 input channels; micro-blocks of output
channels; elements of the piece; groups of 8 input channels (16 where two of every four weights are zero at least); the
core's groups of 4 output channels; output channels; input channels. Depthwise kernels have one input channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arch import Architecture

_GROUP = 4  # output channels of a core in a row
_CHANNELS = 8  # input channels in a row
_TEN = 10  # elements of a depthwise kernel in a row


@dataclass(frozen=True, slots=True)
class WeightArrangement:
    """The features of an operation that decide the order of its weights."""

    block_depth: int
    micro_depth: int  # output channels of a micro-block
    slice_depth: int  # input channels of one pass
    ifm_bits: int = 8
    depthwise: bool = False
    part_kernel: bool = False  # kernel elements before input channels
    sparse: bool = False  # at most two of every four weights along the input channels are not zero
    stride: tuple[int, int] = (1, 1)  # y, x
    dilation: tuple[int, int] = (1, 1)

    @property
    def _by_kernel(self) -> bool:
        return self.part_kernel and not self.depthwise

    @property
    def _fill(self) -> int:
        """The elements of a piece are filled up to a multiple of this."""
        if self.depthwise:
            return _TEN
        return (10 if self.ifm_bits == 16 or self.sparse else 5) if self._by_kernel else 1

    @property
    def depth_in_a_row(self) -> int:
        """Input channels between two changes of the micro-block."""
        if self.depthwise:
            return 1
        return _CHANNELS if self._by_kernel and self.ifm_bits == 16 and not self.sparse else self.slice_depth

    @property
    def in_a_row(self) -> int:
        """Consecutive weights, of all cores together, of a stream that serves all cores."""
        return self.micro_depth * self.depth_in_a_row * self._fill

    @property
    def channels(self) -> int:
        """Input channels in a row."""
        return 1 if self.depthwise else 2 * _CHANNELS if self.sparse else _CHANNELS

    def elements(self, height: int, width: int, target: Architecture) -> list[tuple[int, int] | None]:
        """Rows and columns of a piece's elements, one phase of the stride after the other; None: zeros."""
        step_y, step_x = self.stride if self.depthwise or self._by_kernel else (1, 1)
        found: list[tuple[int, int] | None] = []
        for first_y, first_x in product(range(step_y), range(step_x)):
            columns = range(first_x, width, step_x)
            for number, y in enumerate(range(first_y, height, step_y)):
                found += [(y, x) for x in (columns if number % 2 == 0 else reversed(columns))]
        found += [None] * (-len(found) % self._fill)
        gap = target.rams.depthwise_gaps[self.ifm_bits > 8] if self.depthwise and target.rams else 0
        if gap:
            tens = [found[i : i + _TEN] for i in range(0, len(found), _TEN)]
            found = [element for ten in tens for element in (*ten, *[None] * gap)]
        return found


def is_sparse(weights: NDArray[np.int16]) -> bool:
    """Whether at most two of every four weights [O, H, W, I] along the input channels are not zero."""
    depth = weights.shape[3]
    filled = np.zeros((*weights.shape[:3], -(-depth // 4) * 4), bool)
    filled[..., :depth] = weights != 0
    return int(filled.reshape(-1, 4).sum(axis=1).max(initial=0)) <= 2


def weights_of(
    found: Sequence[NDArray[np.int16]], shape: tuple[int, ...], order: WeightArrangement, target: Architecture
) -> NDArray[np.int16] | None:
    """The weights [O, H, W, I] from which `streams` made `found`; None where their number does not fit `shape`."""
    count = int(np.prod(shape))
    places = streams(np.arange(1, count + 1, dtype=np.int32).reshape(shape), order, target)
    if [len(part) for part in places] != [len(part) for part in found]:
        return None
    weights = np.zeros(count + 1, np.int16)  # the first is for fillings
    for place, values in zip(places, found, strict=True):
        weights[place] = values
    return None if weights[0] else weights[1:].reshape(shape)


def streams(weights: NDArray[Any], order: WeightArrangement, target: Architecture) -> list[NDArray[Any]]:
    """The weights [O, H, W, I] (depthwise: I = 1) of each core."""
    parts = list(_runs(weights, order, target))
    return [np.concatenate([part[core].reshape(-1) for part in parts]) for core in range(target.cores)]


def _runs(weights: NDArray[Any], order: WeightArrangement, target: Architecture) -> Iterator[NDArray[Any]]:
    """Arrays [core, ...] that follow each other."""
    made, height, width, depth = weights.shape
    rows, columns = (target.sub_kernel // dilation for dilation in order.dilation)
    pieces = [(y, x) for x in range(0, width, columns) for y in range(0, height, rows)]
    elements = {(y, x): order.elements(min(rows, height - y), min(columns, width - x), target) for y, x in pieces}
    for number, first in enumerate(range(0, made, order.block_depth)):
        block = weights[first : min(first + order.block_depth, made)]
        slices = range(0, depth, order.slice_depth)
        for start in reversed(slices) if number % 2 else slices:
            stop = min(start + order.slice_depth, depth)
            for y, x in pieces:
                for group in range(start, stop, order.depth_in_a_row):
                    channels = block[..., group : min(group + order.depth_in_a_row, stop)]
                    yield _run(channels, (y, x), elements[y, x], order, target.cores)


def _run(
    block: NDArray[Any],
    first: tuple[int, int],
    elements: list[tuple[int, int] | None],
    order: WeightArrangement,
    cores: int,
) -> NDArray[Any]:
    """[core, micro-block, element, input group, output group, output, input] of a piece of the kernel."""
    made, deep = block.shape[0], block.shape[3]
    inner = order.channels
    micros = -(-made // order.micro_depth)
    filled = np.zeros((len(elements), order.depth_in_a_row, micros * order.micro_depth), block.dtype)
    for place, element in enumerate(elements):
        if element is not None:
            filled[place, :deep, :made] = block[:, first[0] + element[0], first[1] + element[1], :].T
    groups = order.micro_depth // (_GROUP * cores)
    shape = (len(elements), order.depth_in_a_row // inner, inner, micros, groups, cores, _GROUP)
    return np.ascontiguousarray(filled.reshape(shape).transpose(5, 3, 0, 1, 4, 6, 2))
