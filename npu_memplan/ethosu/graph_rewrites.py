"""Rewrites of a layer graph that save memory or time before lowering.

Invariant: a folded graph computes the same outputs; nothing is folded when a tensor between has another reader or is an
output of the graph. A table that is folded is indexed by exactly the values that the layer before it would have stored.
Sums by rows give the same integer, scaled and rounded once: the sums of rows are exact 32-bit numbers, and so are their
sums. They take more operations, and serve programs in stripes: rows are summed as they are made, so the map in front of
an average pool or a fully connected layer never exists as a whole. Gathered windows give the same sums, element by
element: the first convolution copies stored values (its weights are 0 and 1, its scale is 1), the second has the
weights of the original in another order; the multipliers take eight channels at a time whether there are eight or one.
Windows are gathered where both convolutions together take fewer estimated cycles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, TypeVar

import numpy as np

from .arch import Architecture
from .layers.activation import Lookup, Requantize
from .layers.matrix import BatchMatMul, Conv, FullyConnected, Sums, too_wide
from .layers.movement import ChannelGather, Pad, Reshape, Transpose
from .layers.pool import PoolKind, PoolLayer
from .lower.emit import Builder, EmitContext, exact_window
from .lower.layer import Layer, LayerGraph, Limits, StorageTraits, assign
from .lower.operands import INT32, Arithmetic, LayerTensor, Operand, Output, Padding, TensorView, Window
from .lower.scaling import UNITY, Scale, conv_scale, mean_scale, real_mean_scale, reciprocal_scale
from .reading.reader import MAX_STRIDE
from .schedule.blocks import Blocks, place_of
from .schedule.prefetch.timed_program import port_cycles
from .schedule.rams import ceil_div
from .stream.isa import ElementwiseMode, PoolMode
from .time import MemoryMap
from .time.estimate import cycles_in_a_row


@dataclass(frozen=True, slots=True, eq=False)
class Looked(Layer):
    """A layer whose one operation ends with a table: `layer` made tensor `between`, `table` maps it to the output."""

    layer: Layer
    between: LayerTensor
    table: tuple[int, ...]

    limits: ClassVar[Limits] = Limits(tables=True)

    @staticmethod
    def with_lookup(layer: Layer, between: LayerTensor, lookup: Lookup) -> Looked:
        made = replace(layer, output=lookup.output)
        return Looked(layer.name, layer.inputs, lookup.output, made, between, lookup.table)

    @property
    def source(self) -> str:
        """The layer that computes."""
        return self.between.name

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return self.layer.storage(tensors)

    def emit(self, context: EmitContext) -> None:
        """The layer's operation, to the values that the table is indexed by."""
        between = replace(self.between, name=self.output)
        tensors = {**context.tensors, self.output: between}
        self.layer.emit(replace(context, tensors=tensors, table=np.array(self.table, np.int64)))


T = TypeVar("T", Pad, ChannelGather)


def fold_pads(graph: LayerGraph) -> LayerGraph:
    """Let convolutions and maxima do the padding of a Pad that only they read."""
    return _into_readers(graph, Pad, _padding)


def fold_gathers(graph: LayerGraph) -> LayerGraph:
    """Let convolutions read all channels, with zeros for those that are not gathered, if no product is added."""
    return _into_readers(graph, ChannelGather, _gathering)


def _into_readers(
    graph: LayerGraph, kind: type[T], reading: Callable[[T, Sequence[Layer], LayerGraph], Sequence[Layer] | None]
) -> LayerGraph:
    """`graph` without layers of a `kind` whose work all readers can do; `reading` gives new readers, or None."""
    layers: list[Layer] = list(graph.layers)
    for layer in [layer for layer in layers if isinstance(layer, kind)]:
        readers = [reader for reader in layers if layer.output in reader.inputs]
        instead = reading(layer, readers, graph) if readers and layer.output not in graph.outputs else None
        if instead is not None:
            for reader, made in zip(readers, instead, strict=True):
                layers[layers.index(reader)] = made
            layers.remove(layer)
    return replace(graph, layers=tuple(layers))


def fold_tables(graph: LayerGraph) -> LayerGraph:
    """Let an operation apply a table to its own results, where only the table reads them."""
    layers: list[Layer] = list(graph.layers)
    for lookup in [layer for layer in layers if isinstance(layer, Lookup)]:
        (between,) = lookup.inputs
        readers = [layer for layer in layers if between in layer.inputs]
        producer = next((layer for layer in layers if layer.output == between), None)
        if producer is None or not producer.takes_tables or len(readers) > 1 or between in graph.outputs:
            continue
        layers[layers.index(producer)] = Looked.with_lookup(producer, graph.tensors[between], lookup)
        layers.remove(lookup)
    return replace(graph, layers=tuple(layers))


def fold_transposes(graph: LayerGraph) -> LayerGraph:
    """Let products of matrices read the input of a Transpose that only they read, where they transpose it back."""
    layers: list[Layer] = list(graph.layers)
    for matmul in [layer for layer in layers if isinstance(layer, BatchMatMul)]:
        made = matmul
        for place, unfit in enumerate((matmul.turned[0], not matmul.turned[1])):
            moved = graph.producer(matmul.inputs[place])
            if not unfit or not isinstance(moved, Transpose) or moved.output in graph.outputs:
                continue
            rank = len(moved.axes)
            swapped = moved.axes == (*range(rank - 2), rank - 1, rank - 2)
            if swapped and sum(layer.inputs.count(moved.output) for layer in layers) == 1:
                made = made.reading_transposed(place, moved.inputs[0])
                layers.remove(moved)
        layers[layers.index(matmul)] = made
    return replace(graph, layers=tuple(layers))


def fold_types(graph: LayerGraph) -> LayerGraph:
    """Let layers of sums read int8 as uint8, and the other way, where the numbers are equal."""
    layers, tensors = list(graph.layers), dict(graph.tensors)
    for i, layer in enumerate(layers):
        if not isinstance(layer, Requantize) or layer.output in graph.outputs:
            continue
        source, result = tensors[layer.inputs[0]], tensors[layer.output]
        if not all(isinstance(x, (Conv, FullyConnected)) for x in graph.readers(layer.output)):
            continue
        types = {source.dtype, result.dtype}
        same = source.scale == result.scale and source.zero_point - result.zero_point == (
            source.limits[0] - result.limits[0]
        )
        if types == {"int8", "uint8"} and same and layer.clamp == result.limits:
            layers[i] = replace(layer, other_type=True)
            tensors[layer.output] = replace(result, stored=(source.dtype, source.zero_point))
    return replace(graph, layers=tuple(layers), tensors=tensors)


def _gathering(gather: ChannelGather, readers: Sequence[Layer], graph: LayerGraph) -> list[Conv] | None:
    """The readers of `gather` as convolutions over all channels; None where one cannot, or adds more products."""
    if len(set(gather.places)) < len(gather.places):
        return None
    shape = graph.tensors[gather.inputs[0]].shape
    found: list[Conv] = []
    added = 0
    for reader in readers:
        if not isinstance(reader, Conv) or reader.depthwise:
            return None
        weights = np.zeros((*reader.weights.shape[:3], shape[-1]), reader.weights.dtype)
        weights[..., list(gather.places)] = reader.weights
        height, width = graph.tensors[reader.output].shape[1:3]
        added += height * width * (weights.size - reader.weights.size)
        found.append(replace(reader, inputs=(gather.inputs[0], *reader.inputs[1:]), weights=weights))
    return found if added <= math.prod(shape) * len(gather.places) else None


def _padding(pad: Pad, readers: Sequence[Layer], graph: LayerGraph) -> list[Layer] | None:
    if any(pad.channels):
        return None
    found = [_pad_window(pad, reader, graph.tensors[pad.output]) for reader in readers]
    return [layer for layer in found if layer is not None] if all(found) else None


def _pad_window(pad: Pad, reader: Layer, padded: LayerTensor) -> Layer | None:
    """`reader` with the padding in its own window; the zero point for sums, the type's lowest value for maxima. None
    where `pad` has another value, or more rows or columns than a window takes.
    """
    if isinstance(reader, Conv) and not reader.upscale and pad.value == padded.zero_point:
        kernel = tuple(
            (extent - 1) * step + 1 for extent, step in zip(reader.weights.shape[1:3], reader.dilation, strict=True)
        )
    elif isinstance(reader, PoolLayer) and reader.kind is PoolKind.MAX and not reader.across:
        if pad.value != np.iinfo(padded.dtype).min:
            return None
        kernel = reader.kernel
    else:
        return None
    own, extra = reader.padding, pad.padding
    padding = Padding(own.top + extra.top, own.left + extra.left, own.bottom + extra.bottom, own.right + extra.right)
    if too_wide(padding):
        return None
    # a window that is wholly in the padding is not what the hardware's padding is made for
    if max(padding.top, padding.bottom) >= kernel[0] or max(padding.left, padding.right) >= kernel[1]:
        return None
    return replace(reader, inputs=(pad.inputs[0], *reader.inputs[1:]), padding=padding)


_ROWS = MAX_STRIDE  # that are summed at a time


@dataclass(frozen=True, slots=True, eq=False)
class RowSums(Conv):
    """Sums of `_ROWS` rows at a time with weights; `raw`: of stored values; `reported`: the tensor it counts for."""

    reported: str = ""
    raw: bool = False

    @property
    def source(self) -> str:
        """The sum that it is a part of."""
        return self.reported

    def emit(self, context: EmitContext) -> None:
        ifm, ofm = context.operand(self.inputs[0], raw=self.raw), context.operand(self.output)
        kernel = (self.weights.shape[1], self.weights.shape[2])
        sums = Sums(ifm, exact_window(Window(kernel, self.stride), ifm, ofm), self.weights)
        self._emit_sums(context.builder, sums, ofm, self.stated, Output(INT32), self.depthwise)


@dataclass(frozen=True, slots=True, eq=False)
class Total(Layer):
    """The rows of `RowSums` added and scaled; `apart`: each row counts in channels of its own. `raw`: as stored."""

    scale: Scale
    clamp: tuple[int, int]
    apart: bool = False
    raw: bool = False

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its result is seen as pixels

    def emit(self, context: EmitContext) -> None:
        sums, made = context.operand(self.inputs[0]), context.operand(self.output, raw=self.raw)
        channels = context.tensors[self.output].hwc[2]
        count = sums.view.shape[0]
        total, *others = (_row(sums.view, row, row * channels * self.apart, channels) for row in range(count))
        for row in others:
            both = context.builder.temporary(f"{self.output}_sum", (1, 1, channels), "int32")
            first, second = Operand(total, "int32"), Operand(row, "int32")
            exact = Output(INT32, UNITY)
            context.builder.elementwise(ElementwiseMode.ADD, first, second, both, exact, operand_scales=(1, 1))
            total = both.view
        pixels = replace(total, shape=(1, channels, 1), strides=(total.strides[0], *total.strides[2:] * 2))
        view = made.view.reshape((1, channels, 1))
        assert view is not None  # it is dense
        output = context.output(self.clamp, self.scale)
        context.builder.pool(PoolMode.REDUCE_SUM, Operand(pixels, "int32"), replace(made, view=view), Window(), output)


def _row(view: TensorView, row: int, channel: int, channels: int) -> TensorView:
    offset = view.offset + row * view.strides[0] + channel * view.strides[2]
    return replace(view, offset=offset, shape=(1, 1, channels))


def sum_by_rows(graph: LayerGraph) -> LayerGraph:
    """`graph` with averages of whole maps, and products of matrices with whole maps, by rows."""
    layers: list[Layer] = []
    tensors = dict(graph.tensors)
    for layer in graph.layers:
        found = _average_by_rows(layer, graph) if isinstance(layer, PoolLayer) else None
        found = _product(layer, graph) if isinstance(layer, FullyConnected) else found
        if found is None:
            layers.append(layer)
            continue
        sums, _ = found
        shape = (1, ceil_div(tensors[sums.inputs[0]].hwc[0], _ROWS), 1, len(sums.weights))
        made = LayerTensor(sums.output, shape, "int32")
        if sums.unsupported_reason((tensors[sums.inputs[0]],), made) is None:
            tensors[made.name] = made
            layers += found
        else:
            layers.append(layer)
    read = {name for layer in layers for name in layer.inputs} | set(graph.outputs)
    kept = tuple(x for x in layers if x.output in read or not isinstance(x, Reshape))
    return replace(graph, layers=kept, tensors=tensors)


def _average_by_rows(layer: PoolLayer, graph: LayerGraph) -> tuple[RowSums, Total] | None:
    """The sums that make the average of all rows and columns of 8 bits."""
    source, result = graph.tensors[layer.inputs[0]], graph.tensors[layer.output]
    height, width, depth = source.hwc
    whole = layer.kernel == (height, width) and not layer.padding.is_padded and not layer.across
    if not whole or height <= _ROWS or source.element_bytes != 1:
        return None
    if layer.kind is PoolKind.AVERAGE:
        scale = reciprocal_scale(height * width)
    elif layer.kind is PoolKind.MEAN:
        of = real_mean_scale if graph.arithmetic is Arithmetic.REAL else mean_scale
        scale = of(source.scale, result.scale, height * width)
    else:
        return None
    raw = layer.kind is PoolKind.AVERAGE
    ones = np.ones((depth, _ROWS, width, 1), np.int16)
    sums = replace(_row_sums(layer, source.name, ones, np.zeros(depth, np.int64)), depthwise=True, raw=raw)
    return sums, Total(layer.name, (sums.output,), layer.output, scale, layer.clamp, raw=raw)


def _product(layer: FullyConnected, graph: LayerGraph) -> tuple[RowSums, Total] | None:
    """The sums that make the product of a flattened map: every group of rows times the weights of every group."""
    flat, result = graph.tensors[layer.inputs[0]], graph.tensors[layer.output]
    shaped = graph.producer(flat.name)
    if not isinstance(shaped, Reshape) or flat.dtype != "int8" or max(len(layer.weight_scales), len(layer.stated)) > 1:
        return None
    source, made = graph.tensors[shaped.inputs[0]], len(layer.bias)
    height, width, depth = source.hwc
    if height <= _ROWS or layer.weights.shape[3] != height * width * depth:
        return None
    count = ceil_div(height, _ROWS)
    weights = np.zeros((made, count * _ROWS, width, depth), layer.weights.dtype)
    weights[:, :height] = layer.weights.reshape(made, height, width, depth)
    weights = weights.reshape(made, count, _ROWS, width, depth).swapaxes(0, 1)
    bias = np.zeros((count, made), np.int64)
    bias[0] = layer.bias
    sums = _row_sums(layer, source.name, weights.reshape(-1, _ROWS, width, depth), bias.reshape(-1))
    scale = layer.stated[0] if layer.stated else conv_scale(flat.scale, layer.weight_scales[0], result.scale)
    return sums, Total(layer.name, (sums.output,), layer.output, scale, layer.clamp, apart=True)


def _row_sums(layer: Layer, source: str, weights: np.ndarray, bias: np.ndarray) -> RowSums:
    return RowSums(
        layer.name,
        (source,),
        f"{layer.output}_rows",
        weights=weights,
        bias=bias,
        weight_scales=(1.0,),
        clamp=INT32,
        stride=(_ROWS, 1),
        stated=(UNITY,),
        reported=layer.output,
    )


_FEW = 4  # channels: half of what the multipliers take at a time
_MOST = 32  # channels that are gathered


@dataclass(frozen=True, slots=True, eq=False)
class Gather(Conv):
    """Elements of each window as channels of one position; `reported` is the tensor it is counted for."""

    reported: str = ""

    @property
    def source(self) -> str:
        """The convolution that it is a part of."""
        return self.reported


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial axis of both convolutions: tap i of the original is tap i // group (of `taps`), channel i % group."""

    group: int  # elements gathered
    step: int  # of the gathering window
    before: int  # padding before the gathered
    size: int  # positions that are gathered
    taps: int  # of the second convolution
    stride: int
    dilation: int
    front: int  # padding before the second

    def fits(self, made: int) -> bool:
        """No window of the second is wholly in its padding: that is not what the hardware's padding is made for."""
        extent = (self.taps - 1) * self.dilation + 1
        after = (made - 1) * self.stride + extent - self.front - self.size
        return self.front < extent and after < extent


def gather_windows(graph: LayerGraph, accelerator: Architecture, memory_map: MemoryMap) -> LayerGraph:
    layers: list[Layer] = []
    tensors = dict(graph.tensors)
    for layer in graph.layers:
        if isinstance(layer, Conv) and _fits(layer, tensors):
            found = [((layer,), tensors), *split_forms(layer, tensors)]
            costs = [_cycles(form, known, graph.arithmetic, accelerator, memory_map) for form, known in found]
            form, tensors = found[costs.index(min(costs))]
            layers += form
        else:
            layers.append(layer)
    return replace(graph, layers=tuple(layers), tensors=tensors)


Form = tuple[tuple[Layer, ...], dict[str, LayerTensor]]


def _fits(conv: Conv, tensors: dict[str, LayerTensor]) -> bool:
    source = tensors[conv.inputs[0]]
    plain = conv.dilation == (1, 1) and not conv.depthwise and not conv.upscale and not conv.wide
    return plain and source.element_bytes == 1 and source.hwc[2] <= _FEW


def split_forms(conv: Conv, tensors: dict[str, LayerTensor]) -> Iterator[Form]:
    """The convolution in two, with the tensor between."""
    source, result = tensors[conv.inputs[0]], tensors[conv.output]
    padding, kernel = conv.padding, conv.weights.shape[1:3]
    sides = (padding.top, padding.left)
    axes = [tuple(_axis_forms(source.hwc[i], result.hwc[i], kernel[i], conv.stride[i], sides[i])) for i in range(2)]
    for y, x in product(*axes):
        fits = y.fits(result.hwc[0]) and x.fits(result.hwc[1])
        if fits and 1 < y.group * x.group <= _MOST // source.hwc[2]:
            yield _gather_form(conv, tensors, y, x)


def _axis_forms(size: int, made: int, kernel: int, stride: int, before: int) -> Iterator[_Axis]:
    """Ways to gather one axis: not, two or as many as the stride, the whole kernel."""
    yield _Axis(1, 1, 0, size, kernel, stride, 1, before)
    if stride > 1:
        front, rest = divmod(before, stride)
        yield _cut(
            _Axis(stride, stride, rest, (size - 1 + rest) // stride + 1, -(-kernel // stride), 1, 1, front), made
        )
    elif kernel > 2:
        rest = min(before, 1)
        yield _cut(_Axis(2, 1, rest, size + rest, -(-kernel // 2), 1, 2, before - rest), made)
    yield _Axis(kernel, stride, before, made, 1, 1, 1, 0)


def _cut(axis: _Axis, made: int) -> _Axis:
    """Without positions that no window reads."""
    return replace(axis, size=min(axis.size, made + (axis.taps - 1) * axis.dilation - axis.front))


def _gather_form(conv: Conv, tensors: dict[str, LayerTensor], y: _Axis, x: _Axis) -> Form:
    source = tensors[conv.inputs[0]]
    depth = source.hwc[2]
    channels = y.group * x.group * depth
    between = replace(
        source, name=f"{conv.output}_windows", shape=(1, y.size, x.size, channels), data=None, stored=None
    )
    gather = Gather(
        conv.name,
        conv.inputs,
        between.name,
        weights=np.eye(channels, dtype=np.int16).reshape(channels, y.group, x.group, depth),
        bias=np.zeros(channels, np.int64),
        weight_scales=(1.0,),
        clamp=source.limits,
        stride=(y.step, x.step),
        padding=Padding(y.before, x.before),
        reported=conv.output,
    )
    made, height, width, _ = conv.weights.shape
    weights = np.zeros((made, y.taps * y.group, x.taps * x.group, depth), conv.weights.dtype)
    weights[:, :height, :width] = conv.weights
    parts = weights.reshape(made, y.taps, y.group, x.taps, x.group, depth).transpose(0, 1, 3, 2, 4, 5)
    second = replace(
        conv,
        inputs=(between.name,),
        weights=parts.reshape(made, y.taps, x.taps, channels),
        stride=(y.stride, x.stride),
        dilation=(y.dilation, x.dilation),
        padding=Padding(y.front, x.front),
    )
    return (gather, second), {**tensors, between.name: between}


def _cycles(
    layers: tuple[Layer, ...],
    tensors: dict[str, LayerTensor],
    arithmetic: Arithmetic,
    accelerator: Architecture,
    memory_map: MemoryMap,
) -> float:
    """The cycles of the kernels with maps and copied constants in the NPU's own memory, and of their way there."""
    graph = LayerGraph("im2col", tensors, layers[0].inputs, (layers[-1].output,), layers, arithmetic)
    own = memory_map.regions[max(memory_map.regions)]
    near = replace(memory_map, regions=dict.fromkeys(memory_map.regions, own))
    blocks = Blocks(accelerator, near)
    builder = Builder(accelerator, blocks, blocks)
    storage = assign(builder, graph)
    context = EmitContext(builder, tensors, storage, arithmetic is Arithmetic.REAL)
    for layer in layers:
        layer.emit(context)
    program, constants = builder.finish(graph.name, [storage.views[name].buffer for name in graph.outputs])
    roles = {buffer.name: buffer.role for buffer in program.buffers}
    kernels = (o.place(lambda name: place_of(roles[name], near)) for o in program.operations)
    return sum(cycles_in_a_row(k, accelerator, near) for k in kernels) + port_cycles(
        len(constants), accelerator, memory_map
    )
