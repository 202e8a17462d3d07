"""Cycles of a C kernel (`vocabulary.KERNEL`), from the numbers that it is called with.

Invariant: loops are counted as the kernel's C has them, in its form with Helium, one cycle an instruction; padding is
not counted. Costs are figures of `targets/hosts.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

Cycles = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """Cycles of one round of each loop."""

    window: Cycles  # of an image, or a row of a dense layer
    block: Cycles  # of four outputs: bias, requantisation, store
    row: Cycles  # of a window, for four outputs
    vector: Cycles  # eight elements times four kernels
    depthwise_window: Cycles
    depthwise_block: Cycles
    depthwise_row: Cycles
    tap: Cycles  # of a depthwise window, for four outputs
    output: Cycles  # that is in no block of four
    product: Cycles  # of such an output
    quantised: Cycles  # element
    dequantised: Cycles  # element
    place: Cycles  # of a resized image
    mixed: Cycles  # four elements of it, or the rest


def kernel_cycles(symbol: str, arguments: Sequence[object], costs: KernelCosts) -> float:
    """Of one call; `arguments` are buffers, by name, and numbers."""
    numbers = [int(a) for a in arguments if isinstance(a, int)]
    return _COUNTS[symbol.removeprefix("npu_memplan_kernel_")](numbers, costs)


@dataclass(frozen=True, slots=True)
class _Axis:
    size: int
    windows: int
    kernel: int
    stride: int
    dilation: int
    before: int

    def inside(self) -> list[int]:
        """How many places of each window's kernel are inside of the image."""
        starts = (window * self.stride - self.before for window in range(self.windows))
        places = [[start + k * self.dilation for k in range(self.kernel)] for start in starts]
        return [sum(0 <= place < self.size for place in row) for row in places]


def _vectors(length: int) -> int:
    """Of eight elements; a rest takes the time of two."""
    return length // 8 + (2 if length % 8 else 0)


def _convolution(numbers: Sequence[int], costs: KernelCosts) -> float:
    images, groups, depth, out_c = numbers[:4]
    down, across = _Axis(*numbers[4:10]), _Axis(*numbers[10:16])
    rows, columns, of_group = sum(down.inside()), across.inside(), out_c // groups
    if groups == 1 and across.dilation == 1:
        pieces, vectors = len(columns), sum(_vectors(n * depth) for n in columns)
    else:
        pieces, vectors = sum(columns), sum(columns) * _vectors(depth)
    blocks, rest = groups * (of_group // 4), groups * (of_group % 4)
    windows = images * down.windows * across.windows
    in_blocks = blocks * images * rows * (pieces * costs.row + vectors * costs.vector)
    products = rest * images * rows * sum(columns) * depth
    return windows * (costs.window + blocks * costs.block + rest * costs.output) + in_blocks + products * costs.product


def _depthwise(numbers: Sequence[int], costs: KernelCosts) -> float:
    images, times, _, out_c = numbers[:4]
    down, across = _Axis(*numbers[4:10]), _Axis(*numbers[10:16])
    blocks = out_c // 4 if times == 1 or times % 4 == 0 else 0
    rest = out_c - 4 * blocks
    windows, rows, columns = images * down.windows * across.windows, sum(down.inside()), sum(across.inside())
    taps = images * rows * columns
    each = costs.depthwise_window + blocks * costs.depthwise_block + rest * costs.output
    return (
        windows * each
        + blocks * (images * rows * across.windows * costs.depthwise_row + taps * costs.tap)
        + (taps * rest * costs.product)
    )


def _dense(numbers: Sequence[int], costs: KernelCosts) -> float:
    rows, columns, depth = numbers[:3]
    block = costs.block + costs.row + _vectors(depth) * costs.vector
    return rows * (costs.window + (columns // 4) * block + (columns % 4) * (costs.output + depth * costs.product))


def _bilinear(numbers: Sequence[int], costs: KernelCosts) -> float:
    images, _, _, out_h, out_w, depth = numbers
    return images * out_h * out_w * (costs.place + -(-depth // 4) * costs.mixed)


_COUNTS: dict[str, Callable[[Sequence[int], KernelCosts], float]] = {
    "convolution": _convolution,
    "depthwise": _depthwise,
    "dense": _dense,
    "quantise": lambda numbers, costs: numbers[0] * costs.quantised,
    "dequantise": lambda numbers, costs: numbers[0] * costs.dequantised,
    "bilinear": _bilinear,
}
