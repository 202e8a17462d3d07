"""Which input elements and weights an output element is made of: convolutions, their transposes, matrices.

Invariant: it is the same whatever the elements' type is; what does not fit together is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...models.tensor import Tensor
from .common import inside, padding_before, require_same_batches, shape4
from .operator import require
from .tir import Expr, Function, both, floor_div


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """Extents in elements; `depth` is that of the kernel: input channels of one group, or all output channels."""

    batches: int
    in_h: int
    in_w: int
    in_c: int
    out_h: int
    out_w: int
    out_c: int
    k_h: int
    k_w: int
    depth: int
    stride_h: int
    stride_w: int
    top: int  # padding
    left: int
    dilation_h: int = 1
    dilation_w: int = 1
    depthwise: bool = False

    @classmethod
    def of(cls, data: Tensor, weights: Tensor, output: Tensor, options: Any, *, depthwise: bool) -> ConvolutionGeometry:
        """Of CONV_2D and DEPTHWISE_CONV_2D."""
        batches, in_h, in_w, in_c = shape4(data)
        _, out_h, out_w, out_c = shape4(output)
        require_same_batches(data, output)
        first, k_h, k_w, depth = shape4(weights)
        if depthwise:
            fits = first == 1 and depth == out_c and out_c % in_c == 0
        else:
            fits = first == out_c and in_c % depth == 0 and out_c % (in_c // depth) == 0
        require(fits, f"weights {list(weights.shape)} do not fit {in_c} -> {out_c} channels")
        same = options.Padding() == 0
        strides, dilations = _strides(options), (options.DilationHFactor(), options.DilationWFactor())
        top = padding_before(same, in_h, k_h, strides[0], dilations[0], out_h)
        left = padding_before(same, in_w, k_w, strides[1], dilations[1], out_w)
        image = (batches, in_h, in_w, in_c, out_h, out_w, out_c)
        return cls(*image, k_h, k_w, depth, *strides, top, left, *dilations, depthwise)

    @classmethod
    def transposed(cls, data: Tensor, weights: Tensor, output: Tensor, options: Any) -> ConvolutionGeometry:
        """Of TRANSPOSE_CONV; SAME is about the forward convolution from output to input."""
        batches, in_h, in_w, in_c = shape4(data)
        _, out_h, out_w, out_c = shape4(output)
        require_same_batches(data, output)
        filters, k_h, k_w, depth = shape4(weights)
        fits = filters == out_c and depth == in_c
        require(fits, f"weights {list(weights.shape)} do not fit {in_c} -> {out_c} channels")
        same, (stride_h, stride_w) = options.Padding() == 0, _strides(options)
        top = max((in_h - 1) * stride_h + k_h - out_h, 0) // 2 if same else 0
        left = max((in_w - 1) * stride_w + k_w - out_w, 0) // 2 if same else 0
        return cls(batches, in_h, in_w, in_c, out_h, out_w, out_c, k_h, k_w, depth, stride_h, stride_w, top, left)

    @property
    def outputs(self) -> tuple[int, int, int, int]:
        """NHWC extents of the output."""
        return self.batches, self.out_h, self.out_w, self.out_c

    def source(self, function: Function, y: Expr, x: Expr, ky: Expr, kx: Expr) -> tuple[Expr, Expr, Expr | None]:
        """Input row and column under a place of the window, and when that is inside the image (None: always)."""
        row = function.bind(y * self.stride_h + ky * self.dilation_h - self.top, "row")
        column = function.bind(x * self.stride_w + kx * self.dilation_w - self.left, "column")
        last_row = (self.out_h - 1) * self.stride_h + (self.k_h - 1) * self.dilation_h - self.top
        last_column = (self.out_w - 1) * self.stride_w + (self.k_w - 1) * self.dilation_w - self.left
        rows = inside(row, -self.top, last_row, self.in_h)
        return row, column, both(rows, inside(column, -self.left, last_column, self.in_w))

    def channel(self, c: Expr, k: Expr) -> Expr:
        """The input channel that output channel `c` meets at `k` of the kernel's depth; of its own, if depthwise."""
        if self.depthwise:
            return floor_div(c, self.out_c // self.in_c)
        return k if self.depth == self.in_c else floor_div(c, self.out_c // (self.in_c // self.depth)) * self.depth + k


def _strides(options: Any) -> tuple[int, int]:
    return options.StrideH(), options.StrideW()


def transposed_activation(options: Any) -> int:
    """The fused activation of TRANSPOSE_CONV; older files do not have the field."""
    return options.FusedActivationFunction() if hasattr(options, "FusedActivationFunction") else 0


def matrix_of(data: Tensor, weights: Tensor, output: Tensor, options: Any) -> tuple[int, int, int]:
    """(rows, units, depth) of FULLY_CONNECTED: rows of `depth` inputs become rows of `units` outputs."""
    require(options.WeightsFormat() == 0, "its weights are shuffled")
    shapes = [list(tensor.shape) for tensor in (weights, data, output)]
    units, depth = weights.shape[-2:]
    rows = math.prod(output.shape) // units
    fits = rows * units == math.prod(output.shape) and rows * depth == math.prod(data.shape)
    require(fits, f"weights {shapes[0]} do not fit input {shapes[1]} and output {shapes[2]}")
    return rows, units, depth
