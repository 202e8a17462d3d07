"""The layers of each operator of TOSA; RESCALE is where the layers end that compute 32-bit values.

Invariant: a layer computes what its operators do in TOSA's reference model, to the last bit; tests/tosa runs every
emitter against that. Sums have the same products, and zeros; what is made beyond the result is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ethosu.arch import Language
from ...ethosu.layers.activation import Lookup, Requantize
from ...ethosu.layers.elementwise import Binary
from ...ethosu.layers.matrix import BatchMatMul, Conv, FullyConnected, ProductSums, transposed_padding
from ...ethosu.layers.movement import Pad, Reshape, Slice, Transpose
from ...ethosu.layers.pool import ArgMax, PoolKind, PoolLayer
from ...ethosu.lower.layer import Layer
from ...ethosu.lower.operands import NO_PADDING, Padding
from ...ethosu.lower.scaling import UNITY, AddScales, Scale
from ...ethosu.reading.reader import MAX_STRIDE, RejectedError
from ...ethosu.stream.isa import ElementwiseMode, Upscale
from ...models.tosa import TosaOperator
from .builder import (
    INPUT_ZERO,
    MOST,
    STORED,
    Clamp,
    Emitter,
    GraphBuilder,
    Rescaling,
    TosaSum,
    group_axes,
    later,
    rescale_numbers,
    shifted_source,
    stride_of,
    times,
    widened_source,
    window_padding,
)
from .moves import CHOOSING, MOVES, byte_function, byte_table, constant_values, emit_negate, mixed_layer, word_table

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
    if border.is_padded:
        value, whole = builder.tensors[name].zero_point, (1, rows * stride_y, columns * stride_x, depth)
        name = builder.beside(operator, Pad("pad", (name,), "", border, value, (0, 0)), name, whole)
    seen = builder.reshape(name, (rows, stride_y, columns, stride_x * depth))
    turned = (rows, columns, stride_y, stride_x * depth)
    name = builder.beside(operator, Transpose("transpose", (seen,), "", _SIDE_BY_SIDE), seen, turned)
    channels = len(layer.weights)
    weights = np.zeros((channels, tall * stride_y, wide * stride_x, depth), layer.weights.dtype)
    weights[:, : kernel[0], : kernel[1]] = layer.weights
    weights = weights.reshape(channels, tall, stride_y, wide, stride_x, depth).transpose(0, 1, 3, 2, 4, 5)
    weights = np.ascontiguousarray(weights).reshape(channels, tall, wide, -1)
    name = builder.reshape(name, (1, rows, columns, stride_y * stride_x * depth))
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
    name = builder.append_between(operator, layer, zero, (1, rows.count, columns.count, phases * channels))
    name = builder.reshape(name, (rows.count, columns.count, stride_y, stride_x * channels))
    layer_of = Transpose("transpose", (name,), "", _SIDE_BY_SIDE)
    name = builder.append_between(operator, layer_of, zero, (rows.count, stride_y, columns.count, stride_x * channels))
    name = builder.reshape(name, (1, rows.count * stride_y, columns.count * stride_x, channels))
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
    """Append a pool, which makes the output of `operator`; of longer strides one of every position, cut down."""
    made, steps = builder.shape(operator.outputs[0]), [step if step > MAX_STRIDE else 1 for step in layer.stride]
    if steps == [1, 1]:
        builder.add(operator, layer, zero)
        return
    every = (made[0], (made[1] - 1) * steps[0] + 1, (made[2] - 1) * steps[1] + 1, made[3])
    own = builder.zero_points.get(operator.outputs[0], 0) if zero is None else zero
    single = [1 if step > MAX_STRIDE else step for step in layer.stride]
    name = builder.append_between(operator, replace(layer, stride=(single[0], single[1])), own, every)
    builder.add(operator, Slice("slice", (name,), "", (0, 0, 0, 0), (1, *steps, 1)), zero)


def reduction_window(
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
        shape = group_axes(shape, sorted(axes))
        shape, axes = (shape, {1}) if shape[2] > 1 else (shape[:2], {1})
        name, rank = builder.reshape(name, shape), len(shape)
    across = axes == {rank - 1}
    height, width = (shape[axis] if axis in axes else 1 for axis in (rank - 3, rank - 2))
    made = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return name, made, (1, shape[-1]) if across else (height, width), across


def _max_pool(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
    layer = PoolLayer(
        "max", (builder.move_source(operator.inputs[0]),), "", PoolKind.MAX, (kernel[0], kernel[1]), clamp,
        stride_of(builder, operator, stride), window_padding(padding),
    )  # fmt: skip
    add_pool(builder, operator, layer)


def _emit_maximum(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """REDUCE_MAX."""
    index = operator.inputs[0]
    name, made, kernel, across = reduction_window(
        builder, builder.move_source(index), builder.shape(index), {operator.number(0)}
    )
    layer = PoolLayer("max", (name,), "", PoolKind.MAX, kernel, clamp, reduces=True, across=across)
    builder.add_reshaped(operator, layer, made)


def _emit_minimum(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """REDUCE_MIN: one pool on Ethos-U85; else the largest of the values with all bits turned, turned back."""
    index, turned = operator.inputs[0], tuple(range(127, -129, -1))
    if builder.target.language is Language.U85:
        name, made, kernel, across = reduction_window(
            builder, builder.move_source(index), builder.shape(index), {operator.number(0)}
        )
        layer = PoolLayer("min", (name,), "", PoolKind.MIN, kernel, clamp, reduces=True, across=across)
        builder.add_reshaped(operator, layer, made)
        return
    if builder.dtype(index) != "int8":
        raise RejectedError(f"it looks for the least of {builder.dtype(index)}, not int8")
    zero = builder.zero_points.get(operator.outputs[0], 0)
    other = builder.append_between(
        operator, Lookup("turn", (builder.move_source(index),), "", turned), zero, builder.shape(index)
    )
    name, made, kernel, across = reduction_window(builder, other, builder.shape(index), {operator.number(0)})
    layer = PoolLayer("max", (name,), "", PoolKind.MAX, kernel, clamp, reduces=True, across=across)
    most = builder.append_between(operator, layer, zero, made)
    builder.add_reshaped(operator, Lookup("turn", (most,), "", turned), made)


def _emit_places(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """ARGMAX; of two equal maxima the first."""
    name, shape = builder.move_source(operator.inputs[0]), builder.shape(operator.inputs[0])
    axis = operator.number(0)
    if len(shape) > MOST:
        name, axis = builder.reshape(name, group_axes(shape, (axis,))), 1
    builder.add(operator, ArgMax("arg_max", (name,), "", axis))


def _average_pool(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Stored values are averaged; with zero points, which halves are rounded away from, it is a sum with a scale."""
    kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
    before, after = (builder.scalar_value(operator.inputs[i]) for i in (1, 2))
    window, step, pads = (kernel[0], kernel[1]), stride_of(builder, operator, stride), window_padding(padding)
    if not before and not after:
        names = (builder.move_source(operator.inputs[0]),)
        add_pool(builder, operator, PoolLayer("average", names, "", PoolKind.AVERAGE, window, clamp, step, pads))
        return
    if pads.is_padded:
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
    "REDUCE_MAX": _emit_maximum,
    "REDUCE_MIN": _emit_minimum,
    "ARGMAX": _emit_places,
}


_WIDE = "int64"  # sums of 48 bits
_MOST_DILATION = 2  # of the NPU
_SUMS = frozenset(("int32", _WIDE))

# ---------------------------------------------------------------------- RESCALE


def _emit_rescale(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    numbers, source = rescale_numbers(builder, operator), operator.inputs[0]
    if builder.dtype(source) in STORED and builder.dtype(operator.outputs[0]) in STORED:
        layer = Requantize("requantize", (builder.read(source, numbers.input_zero),), "", clamp, numbers.scale)
        builder.add(operator, layer, numbers.output_zero)
        return
    if builder.dtype(source) not in _SUMS or numbers.input_zero:
        raise RejectedError(f"it rescales {builder.dtype(source)} to {builder.dtype(operator.outputs[0])}")
    function = byte_function(builder, source, operator.index)
    small = builder.dtype(operator.outputs[0]) == "int8"
    if function is not None and small and builder.shape(function.source) == builder.shape(operator.outputs[0]):
        table = tuple(int(v) for v in np.clip(numbers(function.values), *clamp))
        builder.add(operator, Lookup("table", (builder.move_source(function.source),), "", table), numbers.output_zero)
        return
    computed = builder.producer(source, *_COMPUTED)
    _COMPUTED[computed.kind](builder, operator, computed, numbers, clamp)


def _weighted_fields(
    builder: GraphBuilder, computed: TosaOperator, numbers: Rescaling, clamp: Clamp, channels: int
) -> dict[str, Any]:
    """The fields that all sums with weights have in common."""
    bias = np.zeros(1, np.int64)
    if computed.kind != "MATMUL":
        bias = builder.constant(computed.inputs[2]).reshape(-1).astype(np.int64)
    zero = builder.scalar_value(computed.inputs[INPUT_ZERO[computed.kind]])
    return {
        "inputs": (builder.read(computed.inputs[0], zero),),
        "output": "",
        "bias": np.broadcast_to(bias, (channels,)).copy(),
        "weight_scales": (1.0,),
        "stated": numbers.scales,
        "clamp": clamp,
        "wide": builder.dtype(computed.outputs[0]) == _WIDE,
    }


def _weights(builder: GraphBuilder, computed: TosaOperator) -> Any:
    """Constant weights without their zero point."""
    zero = builder.scalar_value(computed.inputs[INPUT_ZERO[computed.kind] + 1])
    values = builder.constant(computed.inputs[1])
    if values.dtype != np.int8:
        raise RejectedError(f"its weights are {values.dtype}, not int8")
    return values.astype(np.int16) - np.int16(zero)


def _emit_convolution(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    weights = _weights(builder, computed)
    depthwise = computed.kind == "DEPTHWISE_CONV2D"
    if depthwise:
        weights, depthwise = _depthwise_weights(weights)
    padding, stride, dilation = (computed.numbers(slot) for slot in range(3))
    if max(dilation) > _MOST_DILATION:
        weights, dilation = _dilate_weights(weights, (dilation[0], dilation[1])), (1, 1)
    fields = _weighted_fields(builder, computed, numbers, clamp, len(weights))
    images = builder.shape(computed.inputs[0])[0]
    if images > 1 and builder.shape(computed.outputs[0])[1:3] == (1, 1) == builder.shape(computed.inputs[0])[1:3]:
        _rows(builder, operator, weights, fields, numbers)
        return
    layer = Conv(
        "conv2d",
        weights=np.ascontiguousarray(weights),
        stride=stride_of(builder, computed, stride),
        dilation=(dilation[0], dilation[1]),
        padding=window_padding(padding),
        depthwise=depthwise,
        **fields,
    )
    add_convolution(builder, operator, layer, numbers.output_zero)


def _depthwise_weights(weights: Any) -> tuple[Any, bool]:
    """OHWI of weights in HWCM, and whether each output channel has its input channel; else one with zeros for others,
    since the NPU makes one channel of each.
    """
    height, width, channels, multiplier = weights.shape
    made = weights.transpose(2, 3, 0, 1).reshape(channels * multiplier, height, width, 1)
    if multiplier == 1 or channels == 1:
        return made, channels > 1
    whole = np.zeros((channels * multiplier, height, width, channels), weights.dtype)
    outputs = np.arange(channels * multiplier)
    whole[outputs, :, :, outputs // multiplier] = made[..., 0]
    return whole, False


def _dilate_weights(weights: Any, dilation: tuple[int, int]) -> Any:
    """OHWI with zeros between the weights, for dilations that the NPU does not have."""
    count, height, width, depth = weights.shape
    extents = [(extent - 1) * step + 1 for extent, step in zip((height, width), dilation, strict=True)]
    whole = np.zeros((count, *extents, depth), weights.dtype)
    whole[:, :: dilation[0], :: dilation[1]] = weights
    return whole


def _rows(
    builder: GraphBuilder, operator: TosaOperator, weights: Any, fields: dict[str, Any], numbers: Rescaling
) -> None:
    """A convolution of images of one pixel: a product of rows, as exports have those of several tokens."""
    if weights.shape[1:3] != (1, 1) or weights.shape[0] != len(fields["bias"]):
        raise RejectedError("its images are one pixel, its kernel is more")
    (source,) = fields["inputs"]
    images, *_, depth = builder.tensors[source].shape
    fields["inputs"] = (builder.reshape(source, (images, depth)),)
    layer = FullyConnected("fully_connected", weights=np.ascontiguousarray(weights), **fields)
    made = builder.append_between(operator, layer, numbers.output_zero, (images, len(weights)))
    builder.add(operator, Reshape("reshape", (made,), ""), numbers.output_zero)


def _emit_transposed(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    """The NPU interleaves zeros, for stride 2, and convolves with the mirrored kernel."""
    weights, padding, stride = _weights(builder, computed), computed.numbers(0), computed.numbers(1)
    fields = _weighted_fields(builder, computed, numbers, clamp, len(weights))
    if stride not in ((1, 1), (2, 2)) or max(padding) > 0:
        add_transposed(builder, operator, weights, fields, (padding, stride), numbers.output_zero)
        return
    top, bottom, left, right = padding
    weights = np.ascontiguousarray(weights[:, ::-1, ::-1, :])
    source, result = (builder.shape(i)[1:3] for i in (computed.inputs[0], computed.outputs[0]))
    seen = tuple(step * extent for step, extent in zip(stride, source, strict=True))
    own = Padding(-top, -left, -bottom, -right)
    layer = Conv(
        "transpose_conv",
        weights=weights,
        padding=transposed_padding(own, weights.shape[1:3], seen, result),
        upscale=Upscale.TRANSPOSE if stride == (2, 2) else Upscale.NONE,
        **fields,
    )
    builder.add(operator, layer, numbers.output_zero)


def _emit_matmul(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    if computed.inputs[1] not in builder.graph.constants or builder.shape(computed.inputs[1])[0] > 1:
        _product_of_maps(builder, operator, computed, numbers, clamp)
        return
    weights = _weights(builder, computed)
    _, depth, channels = weights.shape
    rows = np.ascontiguousarray(weights[0].T).reshape(channels, 1, 1, depth)
    fields = _weighted_fields(builder, computed, numbers, clamp, channels)
    builder.add(operator, FullyConnected("fully_connected", weights=rows, **fields), numbers.output_zero)


def _product_of_maps(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    """Products of two stacks of matrices, one of which may be constant."""
    names = [builder.read(computed.inputs[i], builder.scalar_value(computed.inputs[2 + i])) for i in (0, 1)]
    both, scale = (names[0], names[1]), numbers.scale
    layer: Layer = ProductSums("product", both, "", False, clamp, scale)
    if builder.target.language is Language.U85:
        layer = BatchMatMul("batch_matmul", both, "", (False, False), clamp, scale)
    builder.add(operator, layer, numbers.output_zero)


def _emit_addition(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    """ADD or SUB."""
    (a, first), (b, second) = (widened_source(builder, i) for i in computed.inputs)
    limits, subtract = builder.limits(operator.outputs[0]), computed.kind == "SUB"
    types = {builder.dtype(i) for i in (a, b, operator.outputs[0])}
    if len(types) > 1:
        raise RejectedError(f"it adds {' and '.join(sorted(types))}")
    scales = TosaSum(first, second, numbers, subtract, limits).npu_scales()
    if scales is None:
        raise RejectedError(f"no scales of the NPU were found that make its {computed.kind} exactly")
    names = builder.read(a, first.input_zero), builder.read(b, second.input_zero)
    mode = ElementwiseMode.SUB if subtract else ElementwiseMode.ADD
    builder.add(operator, Binary(computed.kind.lower(), names, "", clamp, mode, scales), numbers.output_zero)


def _emit_product(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    if builder.scalar_value(computed.inputs[2]):
        raise RejectedError("its products are shifted")
    for place in (0, 1):
        factor, made = constant_values(builder, computed.inputs[1 - place]), builder.made_by.get(computed.inputs[place])
        if factor is not None and factor.size == 1 and made is not None and made.kind == "REDUCE_SUM":
            scaled = times(numbers.scale, int(factor.reshape(-1)[0]))
            _emit_sum(builder, operator, made, replace(numbers, scales=(scaled,)), clamp)
            return
    (a, zero_a, bits_a), (b, zero_b, bits_b) = (shifted_source(builder, i) for i in computed.inputs[:2])
    scale = later(numbers.scale, bits_a + bits_b)
    names = builder.read(a, zero_a), builder.read(b, zero_b)
    layer = Binary("multiply", names, "", clamp, ElementwiseMode.MUL, AddScales(UNITY, scale, 0))
    builder.add(operator, layer, numbers.output_zero)


def _emit_extreme(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    """MAXIMUM or MINIMUM: what rescales does not change an order, so operands are rescaled first, by tables."""
    limits, names = builder.limits(operator.outputs[0]), []
    for index in computed.inputs:
        constant = constant_values(builder, index)
        if constant is not None and builder.dtype(operator.outputs[0]) == "int8":
            stored = np.clip(numbers(constant), *limits)
            names.append(builder.tensor_like(index, numbers.output_zero, stored))
            continue
        if builder.dtype(operator.outputs[0]) == "int16":
            names.append(_same_words(builder, index, numbers))
            continue
        known = byte_function(builder, index, computed.index)
        if known is None or builder.shape(known.source) != builder.shape(index):
            raise RejectedError(f"its operand {builder.graph.tensor(index).name!r} is no function of one int8 tensor")
        table = np.clip(numbers(known.values), *limits)
        names.append(builder.looked_up(computed, known.source, numbers.output_zero, table))
    mode = ElementwiseMode.MAX if computed.kind == "MAXIMUM" else ElementwiseMode.MIN
    layer = Binary(computed.kind.lower(), (names[0], names[1]), "", clamp, mode)
    builder.add(operator, layer, numbers.output_zero)


def _same_words(builder: GraphBuilder, index: int, numbers: Rescaling) -> str:
    """The int16 tensor of which two RESCALEs, one after the other, make the same values; there are no tables of it."""
    source, rescaling = widened_source(builder, index)
    low, high = builder.limits(source)
    words = np.arange(low, high + 1, dtype=np.int64)
    if builder.dtype(source) != "int16" or not np.array_equal(numbers(rescaling(words)), words):
        raise RejectedError(f"its operand {builder.graph.tensor(source).name!r} has another scale than its result")
    return builder.read(source, 0)


def _emit_sum(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    """REDUCE_SUM, also of several axes one after the other."""
    axes: set[int] = set()
    made, index = computed, computed.outputs[0]
    while made.kind == "REDUCE_SUM":
        axes.add(made.number(0))
        index = made.inputs[0]
        made = builder.producer(index, "REDUCE_SUM", "RESCALE")
    source, zero, bits = shifted_source(builder, index)
    name, shape = builder.read(source, zero), builder.shape(source)
    if len(axes) > 1 and axes == set(range(min(axes), len(shape))):  # they are one after the other in memory
        shape = (*shape[: min(axes)], math.prod(shape[min(axes) :]))
        name, axes = builder.reshape(name, shape), {len(shape) - 1}
    name, made_shape, kernel, across = reduction_window(builder, name, shape, axes)
    scale = later(numbers.scale, bits)
    layer = PoolLayer("sum", (name,), "", PoolKind.SUM, kernel, clamp, reduces=True, across=across, stated=scale)
    builder.add_reshaped(operator, layer, made_shape, numbers.output_zero)


def _emit_mixing(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    """RESIZE of neighbours mixed, whose RESCALE divides by the sum of their weights."""
    if clamp != builder.limits(operator.outputs[0]) or numbers.output_zero or numbers.twice:
        raise RejectedError("the numbers that it mixes are limited, moved or rounded twice")
    builder.add(operator, mixed_layer(builder, computed, numbers.scale), 0)


_COMPUTED: dict[str, Callable[[GraphBuilder, TosaOperator, TosaOperator, Rescaling, Clamp], None]] = {
    "CONV2D": _emit_convolution,
    "DEPTHWISE_CONV2D": _emit_convolution,
    "TRANSPOSE_CONV2D": _emit_transposed,
    "MATMUL": _emit_matmul,
    "ADD": _emit_addition,
    "SUB": _emit_addition,
    "MUL": _emit_product,
    "MAXIMUM": _emit_extreme,
    "MINIMUM": _emit_extreme,
    "REDUCE_SUM": _emit_sum,
    "RESIZE": _emit_mixing,
    "TABLE": word_table,
}

EMITTERS: dict[str, Emitter] = {
    "RESCALE": _emit_rescale,
    "TABLE": byte_table,
    "NEGATE": emit_negate,
    **POOLS,
    **MOVES,
    **CHOOSING,
}
PLACES = frozenset(("ARGMAX", "EQUAL", "GREATER", "GREATER_EQUAL"))  # whose results are int32 or bool
LIMITED = frozenset(("RESCALE", "AVG_POOL2D", "MAX_POOL2D", "TABLE"))  # layers that do a CLAMP of their results
