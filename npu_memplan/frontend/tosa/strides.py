"""Strides that the NPU does not have: of convolutions, transposed ones and pools.

Invariant: sums have the same products, and zeros; what is made beyond the result is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ethosu.layers.convolution import Conv
from ...ethosu.layers.pad import Pad
from ...ethosu.layers.pool import PoolLayer
from ...ethosu.layers.slice import Slice
from ...ethosu.layers.transpose import Transpose
from ...ethosu.lower.tensors import NO_PADDING, Padding
from ...ethosu.reading.reader import RejectedError
from ...ethosu.reading.windows import MAX_STRIDE
from ...models.tosa_graph import TosaOperator
from .builder import GraphBuilder

_SIDE_BY_SIDE = (0, 2, 1, 3)  # blocks of rows and columns to channels, and back


def add_convolution(builder: GraphBuilder, operator: TosaOperator, layer: Conv, zero: int) -> None:
    """Append a convolution, which makes the output of `operator`. Of longer strides: blocks of as many rows and columns
    become channels, over which it has a stride of 1.
    """
    (stride_y, stride_x), made = layer.stride, builder.shape(operator.outputs[0])
    if max(layer.stride) <= MAX_STRIDE:
        builder.add(operator, layer, zero)
        return
    if layer.depthwise or layer.dilation != (1, 1) or made[0] > 1:
        raise RejectedError(f"its stride is {stride_y}x{stride_x}, with one channel of each, dilated, or of several "
                            f"images; else strides above {MAX_STRIDE} fit the NPU")  # fmt: skip
    name = layer.inputs[0]
    _, height, width, depth = builder.tensors[name].shape
    kernel = layer.weights.shape[1:3]
    tall, wide = -(-kernel[0] // stride_y), -(-kernel[1] // stride_x)  # of the kernel, in blocks
    rows, columns = made[1] - 1 + tall, made[2] - 1 + wide
    top, left = layer.padding.top, layer.padding.left
    border = Padding(top, left, rows * stride_y - height - top, columns * stride_x - width - left)
    if border.any:
        value, whole = builder.tensors[name].zero_point, (1, rows * stride_y, columns * stride_x, depth)
        name = builder.beside(operator, Pad("pad", (name,), "", border, value, (0, 0)), name, whole)
    seen = builder.reshaped(name, (rows, stride_y, columns, stride_x * depth))
    turned = (rows, columns, stride_y, stride_x * depth)
    name = builder.beside(operator, Transpose("transpose", (seen,), "", _SIDE_BY_SIDE), seen, turned)
    channels = len(layer.weights)
    weights = np.zeros((channels, tall * stride_y, wide * stride_x, depth), layer.weights.dtype)
    weights[:, : kernel[0], : kernel[1]] = layer.weights
    weights = weights.reshape(channels, tall, stride_y, wide, stride_x, depth).transpose(0, 1, 3, 2, 4, 5)
    weights = np.ascontiguousarray(weights).reshape(channels, tall, wide, -1)
    name = builder.reshaped(name, (1, rows, columns, stride_y * stride_x * depth))
    layer = replace(layer, inputs=(name,), weights=weights, stride=(1, 1), padding=NO_PADDING)
    builder.add(operator, layer, zero)


def add_transposed(
    builder: GraphBuilder,
    operator: TosaOperator,
    weights: Any,
    fields: dict[str, Any],
    geometry: tuple[Sequence[int], Sequence[int]],
    zero: int,
) -> None:
    """Append a transposed convolution with weights [O, H, W, I], and rows and columns added and steps as `geometry`:
    one convolution makes all positions between two of the input as channels, which then become rows and columns.
    """
    (top, _, left, _), steps = geometry
    name, made = fields["inputs"][0], builder.shape(operator.outputs[0])
    shape = builder.tensors[name].shape
    if shape[0] > 1:
        raise RejectedError(f"its stride is {steps[0]}x{steps[1]}, of several images")
    parts = [
        _Phases(extent, kernel, step, before, wanted)
        for extent, kernel, step, before, wanted in zip(
            shape[1:3], weights.shape[1:3], steps, (top, left), made[1:3], strict=True
        )
    ]
    (rows, columns), (stride_y, stride_x) = parts, steps
    channels, depth = len(weights), weights.shape[3]
    whole = np.zeros((channels, rows.taps * stride_y, columns.taps * stride_x, depth), weights.dtype)
    whole[:, : weights.shape[1], : weights.shape[2]] = weights
    whole = whole.reshape(channels, rows.taps, stride_y, columns.taps, stride_x, depth)[:, ::-1, :, ::-1]
    phases = stride_y * stride_x
    kernel = np.ascontiguousarray(whole.transpose(2, 4, 0, 1, 3, 5)).reshape(-1, rows.taps, columns.taps, depth)
    scales = fields["stated"]
    fields = fields | {
        "bias": np.tile(fields["bias"], phases),
        "stated": scales * phases if len(scales) > 1 else scales,
    }
    padding = Padding(rows.before, columns.before, rows.after, columns.after)
    layer = Conv("transpose_conv", weights=kernel, padding=padding, **fields)
    name = builder.between(operator, layer, zero, (1, rows.count, columns.count, phases * channels))
    name = builder.reshaped(name, (rows.count, columns.count, stride_y, stride_x * channels))
    layer_of = Transpose("transpose", (name,), "", _SIDE_BY_SIDE)
    name = builder.between(operator, layer_of, zero, (rows.count, stride_y, columns.count, stride_x * channels))
    name = builder.reshaped(name, (1, rows.count * stride_y, columns.count * stride_x, channels))
    builder.add(operator, Slice("slice", (name,), "", (0, rows.begin, columns.begin, 0), (1, 1, 1, 1)), zero)


class _Phases:
    """Along one axis: input positions that a result is made of, from the first block of `step` results on."""

    def __init__(self, extent: int, kernel: int, step: int, added: int, wanted: int) -> None:
        self.taps = -(-kernel // step)
        first = min(-added // step, self.taps - 1)
        last = max((wanted - added - 1) // step, extent - 1)
        self.count = last - first + 1
        self.before, self.after = self.taps - 1 - first, last - extent + 1
        self.begin = -added - first * step


def add_pool(builder: GraphBuilder, operator: TosaOperator, layer: PoolLayer, zero: int | None = None) -> None:
    """Append a pool, which makes the output of `operator`. Of longer strides: of every position, of which some are
    taken.
    """
    made, steps = builder.shape(operator.outputs[0]), [step if step > MAX_STRIDE else 1 for step in layer.stride]
    if steps == [1, 1]:
        builder.add(operator, layer, zero)
        return
    every = (made[0], (made[1] - 1) * steps[0] + 1, (made[2] - 1) * steps[1] + 1, made[3])
    own = builder.zero_points.get(operator.outputs[0], 0) if zero is None else zero
    single = [1 if step > MAX_STRIDE else step for step in layer.stride]
    name = builder.between(operator, replace(layer, stride=(single[0], single[1])), own, every)
    builder.add(operator, Slice("slice", (name,), "", (0, 0, 0, 0), (1, *steps, 1)), zero)
