"""Which tensors share bytes: reshapes, slices, concatenations and pads become views, not copies.

Invariant: every tensor of a graph has exactly one `View`, and tensors that share bytes do so because one
is defined as a part or another shape of the other. Where strides cannot express that, the layer that
makes the tensor is listed in `copies` and moves the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..program.program import BufferRole
from ..stream.isa import BRICK_CHANNELS
from .emit import Builder
from .graph import (
    Binary,
    Concat,
    Conv,
    Graph,
    Layer,
    Lookup,
    Pad,
    Pool,
    Requantize,
    Reshape,
    Slice,
    Softmax,
    Squash,
    Tensor,
    Transpose,
)
from .views import View

_MOVES = (Reshape, Slice, Concat, Pad, Transpose)
_BRICK_LAYERS = (Conv, Pool, Binary, Lookup, Squash, Requantize)  # read and write either layout


@dataclass(slots=True)
class Storage:
    """Views of all tensors that live in memory, and the data movements that stay."""

    views: dict[str, View] = field(default_factory=dict)
    copies: set[str] = field(default_factory=set)  # outputs of Reshape/Slice layers that must move data
    embedded: dict[str, str] = field(default_factory=dict)  # tensor -> the concatenation or pad it is made inside


def assign(builder: Builder, graph: Graph) -> Storage:
    """Views for every tensor but constants; allocates the buffers in `builder`."""
    storage = Storage()
    for name in graph.inputs:
        tensor = graph.tensors[name]
        role = BufferRole.STATE if name in graph.states else BufferRole.INPUT
        buffer = builder.buffer(name, tensor.size_bytes, role, tensor.shape, tensor.dtype)
        storage.views[name] = View.dense(buffer, tensor.shape, tensor.element_bytes)
    _embed(graph, storage)
    for layer in graph.layers:
        _place(builder, graph, storage, layer.output)
    return storage


def _embed(graph: Graph, storage: Storage) -> None:
    """Let the inputs of concatenations and pads be made in place, where one layer makes them for this alone."""
    for layer in graph.layers:
        if not isinstance(layer, Concat | Pad):
            continue
        out = graph.tensors[layer.output]
        for name in layer.inputs:
            maker, tensor = graph.maker(name), graph.tensors[name]
            if maker is None or isinstance(maker, _MOVES) or name in graph.outputs or name in storage.embedded:
                continue
            if layer.inputs.count(name) > 1 or (tensor.scale, tensor.zero_point) != (out.scale, out.zero_point):
                continue
            if isinstance(layer, Pad) and len(list(graph.readers(name))) > 1:
                continue
            if any(isinstance(reader, Reshape) for reader in graph.readers(name)):
                continue
            storage.embedded[name] = layer.output


def _place(builder: Builder, graph: Graph, storage: Storage, name: str) -> View:
    if name in storage.views:
        return storage.views[name]
    view = _inside(builder, graph, storage, name) or _alias(graph, storage, name) or _own(builder, graph, storage, name)
    storage.views[name] = view
    return view


def offset_in(graph: Graph, layer: Layer, index: int) -> tuple[int, ...]:
    """Where input `index` of a concatenation or pad begins in its output, element by dimension."""
    shape = graph.tensors[layer.output].shape
    begin = [0] * len(shape)
    if isinstance(layer, Concat):
        axis = layer.axis % len(shape)
        begin[axis] = sum(graph.tensors[n].shape[axis] for n in layer.inputs[:index])
    elif isinstance(layer, Pad):
        begin[-3], begin[-2] = layer.padding.top, layer.padding.left
    return tuple(begin)


def _inside(builder: Builder, graph: Graph, storage: Storage, name: str) -> View | None:
    target = storage.embedded.get(name)
    if target is None:
        return None
    layer = graph.maker(target)
    assert layer is not None
    whole = _place(builder, graph, storage, target)
    view = whole.box(offset_in(graph, layer, layer.inputs.index(name)), graph.tensors[name].shape)
    if not _usable(graph, name, view):
        del storage.embedded[name]
        return None
    return view


def _alias(graph: Graph, storage: Storage, name: str) -> View | None:
    layer = graph.maker(name)
    if not isinstance(layer, Reshape | Slice):
        return None
    source = storage.views.get(layer.inputs[0])
    view = None
    if source is not None and name not in graph.outputs:
        shape = graph.tensors[name].shape
        view = source.reshaped(shape) if isinstance(layer, Reshape) else source.box(layer.begin, shape, layer.step)
    if not _usable(graph, name, view):
        storage.copies.add(name)
        return None
    return view


def _usable(graph: Graph, name: str, view: View | None) -> bool:
    """Whether the layers around tensor `name` can work on `view`: some see it in another shape: dense bytes."""
    if view is None or view.hwc() is None:
        return False
    return view.is_dense or not any(map(_reshapes, (graph.maker(name), *graph.readers(name))))


def _reshapes(layer: Layer | None) -> bool:
    """Layers that see their tensors in another shape."""
    if isinstance(layer, Conv):
        return layer.fully_connected
    return isinstance(layer, Softmax) or (isinstance(layer, Pool) and layer.across)


def _own(builder: Builder, graph: Graph, storage: Storage, name: str) -> View:
    tensor = graph.tensors[name]
    if name in graph.outputs:
        buffer = builder.buffer(name, tensor.size_bytes, BufferRole.OUTPUT, tensor.shape, tensor.dtype)
        return View.dense(buffer, tensor.shape, tensor.element_bytes)
    if _may_be_bricks(graph, tensor):
        buffer = builder.buffer(name, tensor.size_bytes, BufferRole.FEATURE_MAP)
        return View.bricks(buffer, tensor.shape, tensor.element_bytes)
    buffer = builder.buffer(name, tensor.size_bytes, BufferRole.FEATURE_MAP)
    return View.dense(buffer, tensor.shape, tensor.element_bytes)


def _may_be_bricks(graph: Graph, tensor: Tensor) -> bool:
    """NHCWB16 costs no bytes only for whole bricks, and only NPU operations of equal shape may touch it."""
    if len(tensor.shape) != 4 or tensor.shape[0] != 1 or tensor.shape[3] % BRICK_CHANNELS:
        return False
    maker = graph.maker(tensor.name)
    touching = [maker, *graph.readers(tensor.name)]
    return all(isinstance(layer, _BRICK_LAYERS) and _keeps_shape(graph, layer, tensor) for layer in touching)


def _keeps_shape(graph: Graph, layer: Layer, tensor: Tensor) -> bool:
    """Fully connected layers and broadcasts see a tensor under another shape."""
    if _reshapes(layer):
        return False
    if isinstance(layer, Pool) and layer.reduces:
        return tensor.name != layer.output
    if isinstance(layer, Binary):
        return all(graph.tensors[n].shape == tensor.shape for n in (*layer.inputs, layer.output))
    return True
