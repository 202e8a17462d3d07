"""Simplifications of a layer graph that save memory and time before lowering.

Invariant: a folded graph computes the same outputs; nothing is folded when a tensor between has
another reader or is an output of the graph. A table that is folded is indexed by exactly the values that the layer
before it would have stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np

from ..layers.activation import Lookup
from ..layers.batch_matmul import BatchMatMul
from ..layers.convolution import Conv, too_wide
from ..layers.fully_connected import FullyConnected
from ..layers.gather import ChannelGather
from ..layers.pad import Pad
from ..layers.requantize import Requantize
from ..layers.transpose import Transpose
from .emit_context import EmitContext
from .graph import LayerGraph
from .layer import Layer, Limits, StorageTraits
from .tensors import LayerTensor, Padding


@dataclass(frozen=True, slots=True, eq=False)
class Looked(Layer):
    """A layer whose one operation looks its results up: `layer` made `between`, of which `table` makes the output."""

    layer: Layer
    between: LayerTensor
    table: tuple[int, ...]

    limits: ClassVar[Limits] = Limits(tables=True)

    @staticmethod
    def of(layer: Layer, between: LayerTensor, lookup: Lookup) -> Looked:
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
    """Let convolutions do the padding of a Pad that feeds them alone."""
    return _into_readers(graph, Pad, _padding)


def fold_gathers(graph: LayerGraph) -> LayerGraph:
    """Let convolutions read all channels, with zeros for those that are not gathered, if no product is added."""
    return _into_readers(graph, ChannelGather, _gathering)


def _into_readers(
    graph: LayerGraph, kind: type[T], reading: Callable[[T, Sequence[Layer], LayerGraph], Sequence[Conv] | None]
) -> LayerGraph:
    """Without the layers of a kind whose readers can all do their work: what `reading` makes of those."""
    layers: list[Layer] = list(graph.layers)
    for layer in [layer for layer in layers if isinstance(layer, kind)]:
        readers = [reader for reader in layers if layer.output in reader.inputs]
        instead = reading(layer, readers, graph) if readers and layer.output not in graph.outputs else None
        if instead is not None:
            for reader, conv in zip(readers, instead, strict=True):
                layers[layers.index(reader)] = conv
            layers.remove(layer)
    return replace(graph, layers=tuple(layers))


def fold_tables(graph: LayerGraph) -> LayerGraph:
    """Let the operations that make a tensor look it up, where a table is all that reads it."""
    layers: list[Layer] = list(graph.layers)
    for lookup in [layer for layer in layers if isinstance(layer, Lookup)]:
        (between,) = lookup.inputs
        readers = [layer for layer in layers if between in layer.inputs]
        producer = next((layer for layer in layers if layer.output == between), None)
        if producer is None or not producer.takes_tables or len(readers) > 1 or between in graph.outputs:
            continue
        layers[layers.index(producer)] = Looked.of(producer, graph.tensors[between], lookup)
        layers.remove(lookup)
    return replace(graph, layers=tuple(layers))


def fold_transposes(graph: LayerGraph) -> LayerGraph:
    """Let products of matrices read what is transposed for them alone, where they would transpose it back."""
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
    """None also where they would add more products than the gather takes."""
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


def _padding(pad: Pad, readers: Sequence[Layer], graph: LayerGraph) -> list[Conv] | None:
    if pad.value != graph.tensors[pad.output].zero_point or any(pad.channels):
        return None
    found = [_padded(pad, reader) for reader in readers]
    return [conv for conv in found if conv is not None] if all(found) else None


def _padded(pad: Pad, reader: Layer) -> Conv | None:
    if not isinstance(reader, Conv) or reader.upscale:
        return None
    own, extra = reader.padding, pad.padding
    padding = Padding(own.top + extra.top, own.left + extra.left, own.bottom + extra.bottom, own.right + extra.right)
    kernel_height = (reader.weights.shape[1] - 1) * reader.dilation[0] + 1
    kernel_width = (reader.weights.shape[2] - 1) * reader.dilation[1] + 1
    if too_wide(padding):
        return None
    # a window that is wholly in the padding is not what the hardware's padding is made for
    if max(padding.top, padding.bottom) >= kernel_height or max(padding.left, padding.right) >= kernel_width:
        return None
    return replace(reader, inputs=(pad.inputs[0], *reader.inputs[1:]), padding=padding)
