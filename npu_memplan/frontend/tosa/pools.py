"""The layers of windows, and strides that the NPU does not have.

Strides that the NPU does not have: of convolutions, transposed ones and pools.

Invariant: sums have the same products, and zeros; what is made beyond the result is cut off.

The layers of TOSA's operators of windows and of whole axes, which make stored values of stored values.

Invariant: as that of `emitters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ethosu.arch import Language
from ...ethosu.layers.activation import Lookup
from ...ethosu.layers.matrix import Conv
from ...ethosu.layers.movement import Pad, Slice, Transpose
from ...ethosu.layers.pool import ArgMax, PoolKind, PoolLayer
from ...ethosu.lower.operands import NO_PADDING, Padding
from ...ethosu.lower.scaling import Scale
from ...ethosu.reading.reader import MAX_STRIDE, RejectedError
from ...models.tosa import TosaOperator
from .builder import MOST, Clamp, Emitter, GraphBuilder, around
from .operands import stride_of, window_padding

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


def reduced(
    builder: GraphBuilder, name: str, shape: tuple[int, ...], axes: set[int]
) -> tuple[str, tuple[int, ...], tuple[int, int], bool]:
    """A tensor of `shape` as a window reduces it along `axes`: its name, the result's shape, the window, and whether
    that is the channels. Other axes than height, width and channels of one image are seen as a width.
    """
    rank = len(shape)
    known = axes == {rank - 1} or (rank in (3, 4) and axes <= {rank - 3, rank - 2})
    if not known or rank > MOST or (rank == MOST and shape[0] != 1):
        if max(axes) - min(axes) >= len(axes):
            raise RejectedError(f"it reduces axes {sorted(axes)} of {list(shape)}, which are no neighbours")
        shape = around(shape, sorted(axes))
        shape, axes = (shape, {1}) if shape[2] > 1 else (shape[:2], {1})
        name, rank = builder.reshaped(name, shape), len(shape)
    across = axes == {rank - 1}
    height, width = (shape[axis] if axis in axes else 1 for axis in (rank - 3, rank - 2))
    made = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return name, made, (1, shape[-1]) if across else (height, width), across


def _max_pool(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
    layer = PoolLayer(
        "max", (builder.moved(operator.inputs[0]),), "", PoolKind.MAX, (kernel[0], kernel[1]), clamp,
        stride_of(builder, operator, stride), window_padding(padding),
    )  # fmt: skip
    add_pool(builder, operator, layer)


def _maximum(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """REDUCE_MAX."""
    index = operator.inputs[0]
    name, made, kernel, across = reduced(builder, builder.moved(index), builder.shape(index), {operator.number(0)})
    layer = PoolLayer("max", (name,), "", PoolKind.MAX, kernel, clamp, reduces=True, across=across)
    builder.add_reshaped(operator, layer, made)


def _minimum(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """REDUCE_MIN: one pool on Ethos-U85; else the largest of the values with all bits turned, turned back."""
    index, turned = operator.inputs[0], tuple(range(127, -129, -1))
    if builder.target.language is Language.U85:
        name, made, kernel, across = reduced(builder, builder.moved(index), builder.shape(index), {operator.number(0)})
        layer = PoolLayer("min", (name,), "", PoolKind.MIN, kernel, clamp, reduces=True, across=across)
        builder.add_reshaped(operator, layer, made)
        return
    if builder.dtype(index) != "int8":
        raise RejectedError(f"it looks for the least of {builder.dtype(index)}, not int8")
    zero = builder.zero_points.get(operator.outputs[0], 0)
    other = builder.between(operator, Lookup("turn", (builder.moved(index),), "", turned), zero, builder.shape(index))
    name, made, kernel, across = reduced(builder, other, builder.shape(index), {operator.number(0)})
    layer = PoolLayer("max", (name,), "", PoolKind.MAX, kernel, clamp, reduces=True, across=across)
    most = builder.between(operator, layer, zero, made)
    builder.add_reshaped(operator, Lookup("turn", (most,), "", turned), made)


def _places(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """ARGMAX; of two equal maxima the first."""
    name, shape = builder.moved(operator.inputs[0]), builder.shape(operator.inputs[0])
    axis = operator.number(0)
    if len(shape) > MOST:
        name, axis = builder.reshaped(name, around(shape, (axis,))), 1
    builder.add(operator, ArgMax("arg_max", (name,), "", axis))


def _average_pool(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Stored values are averaged; with zero points, which halves are rounded away from, it is a sum with a scale."""
    kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
    before, after = (builder.scalar(operator.inputs[i]) for i in (1, 2))
    window, step, pads = (kernel[0], kernel[1]), stride_of(builder, operator, stride), window_padding(padding)
    if not before and not after:
        names = (builder.moved(operator.inputs[0]),)
        add_pool(builder, operator, PoolLayer("average", names, "", PoolKind.AVERAGE, window, clamp, step, pads))
        return
    if pads.any:
        names = (builder.read(operator.inputs[0], before),)
        layer = PoolLayer("average", names, "", PoolKind.VALID, window, clamp, step, pads)
        add_pool(builder, operator, layer, after)
        return
    count = kernel[0] * kernel[1]
    bits = (count - 1).bit_length()
    scale = Scale((((1 << 30) + 1) << bits) // count, 30 + bits)  # as the specification has it
    names = (builder.read(operator.inputs[0], before),)
    layer = PoolLayer("average", names, "", PoolKind.SUM, window, clamp, step, NO_PADDING, stated=scale)
    add_pool(builder, operator, layer, after)


POOLS: dict[str, Emitter] = {
    "AVG_POOL2D": _average_pool,
    "MAX_POOL2D": _max_pool,
    "REDUCE_MAX": _maximum,
    "REDUCE_MIN": _minimum,
    "ARGMAX": _places,
}
