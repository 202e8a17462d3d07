"""Sums over a whole map as sums over a few of its rows each, which are added then.

Invariant: every result is the same integer, scaled and rounded once: the sums of rows are exact 32-bit numbers, and so
are their sums. It takes more operations, for programs in stripes: rows are summed as they are made, so the map in front
of an average pool or a fully connected layer is never there as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..layers.convolution import Conv
from ..layers.fully_connected import FullyConnected
from ..layers.pool import PoolKind, PoolLayer
from ..layers.reshape import Reshape
from ..layers.weighted import Sums
from ..reading.reader import MAX_STRIDE
from ..schedule.shram import ceil_div
from ..stream.isa import ElementwiseMode, PoolMode
from .emit_context import EmitContext, exact_window
from .graph import LayerGraph
from .layer import Layer, Limits, StorageTraits
from .operands import Operand, Output, Window
from .scaling import UNITY, Scale, conv_scale, mean_scale, real_mean_scale, reciprocal_scale
from .tensors import INT32, Arithmetic, LayerTensor
from .views import TensorView

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
        view = made.view.reshaped((1, channels, 1))
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
        found = _average(layer, graph) if isinstance(layer, PoolLayer) else None
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


def _average(layer: PoolLayer, graph: LayerGraph) -> tuple[RowSums, Total] | None:
    """Of all rows and columns of 8 bits."""
    source, result = graph.tensors[layer.inputs[0]], graph.tensors[layer.output]
    height, width, depth = source.hwc
    whole = layer.kernel == (height, width) and not layer.padding.any and not layer.across
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
    """Of a flattened map: all groups of rows are multiplied by the weights of every group, of which each needs one."""
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
