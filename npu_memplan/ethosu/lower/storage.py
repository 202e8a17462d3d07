"""Which tensors share bytes: reshapes, slices, concatenations and pads become views, not copies.

Invariant: every tensor of a graph has exactly one `TensorView`, and tensors that share bytes do so because one
is defined as a part or another shape of the other. Where strides cannot express that, the layer that
makes the tensor is listed in `copies` and moves the data.
"""

from __future__ import annotations

from dataclasses import replace

from ..program.program import BufferRole
from ..stream.isa import BRICK_CHANNELS
from .emit import Builder
from .graph import LayerGraph
from .layer import StorageTraits
from .tensors import LayerTensor
from .views import Storage, TensorView

_LITTLE = 8  # parts of a map, one of which may be added to fill up its bricks where time is worth more than bytes


def assign(builder: Builder, graph: LayerGraph, for_cycles: bool = False) -> Storage:
    """Views for every tensor but constants; allocates the buffers in `builder`. `for_cycles`: in a few more bytes."""
    return _Assignment(builder, graph, for_cycles).made()


class _Assignment:
    def __init__(self, builder: Builder, graph: LayerGraph, for_cycles: bool) -> None:
        self.builder, self.graph, self.for_cycles = builder, graph, for_cycles
        self.storage = Storage()
        traits = {layer.output: layer.storage(graph.tensors) for layer in graph.layers}
        self.producer: dict[str, StorageTraits] = traits  # of a tensor that is made by a layer
        self.readers: dict[str, list[StorageTraits]] = {name: [] for name in graph.tensors}
        for layer in graph.layers:
            for name in dict.fromkeys(layer.inputs):
                self.readers[name].append(traits[layer.output])

    def made(self) -> Storage:
        for name in self.graph.inputs:
            role = BufferRole.STATE if name in self.graph.states else BufferRole.INPUT
            self.storage.views[name] = self._parameter(self.graph.tensors[name], role)
        self._embed()
        for layer in self.graph.layers:
            self._place(layer.output)
        return self.storage

    def _parameter(self, tensor: LayerTensor, role: BufferRole) -> TensorView:
        buffer = self.builder.buffer(tensor.name, tensor.size_bytes, role, tensor.shape, tensor.dtype)
        return TensorView.dense(buffer, tensor.shape, tensor.element_bytes)

    def _embed(self) -> None:
        """Let inputs be made in their place inside an output, where one layer makes them for this alone."""
        tensors, embedded = self.graph.tensors, self.storage.embedded
        for layer in self.graph.layers:
            traits, out = self.producer[layer.output], tensors[layer.output]
            if traits.begin is None:
                continue
            for name in layer.inputs:
                producer, tensor = self.producer.get(name), tensors[name]
                if producer is None or producer.moves or name in self.graph.outputs or name in embedded:
                    continue
                if layer.inputs.count(name) > 1 or (tensor.scale, tensor.zero_point) != (out.scale, out.zero_point):
                    continue
                if len(self.readers[name]) > 1 and not traits.gathers:
                    continue
                if any(reader.flat for reader in self.readers[name]):
                    continue
                embedded[name] = layer.output

    def _place(self, name: str) -> TensorView:
        views = self.storage.views
        if name not in views:
            views[name] = self._inside(name) or self._alias(name) or self._own(name)
        return views[name]

    def _inside(self, name: str) -> TensorView | None:
        target = self.storage.embedded.get(name)
        if target is None:
            return None
        layer, begin = self.graph.producer(target), self.producer[target].begin
        assert layer is not None
        assert begin is not None
        whole = self._place(target)
        view = whole.box(begin(layer.inputs.index(name)), self.graph.tensors[name].shape)
        if not self._usable(name, view):
            del self.storage.embedded[name]
            return None
        return view

    def _alias(self, name: str) -> TensorView | None:
        layer, traits = self.graph.producer(name), self.producer[name]
        if layer is None or traits.view is None:
            return None
        source = self.storage.views.get(layer.inputs[0])
        view = None if source is None or name in self.graph.outputs else traits.view(source)
        if not self._usable(name, view):
            self.storage.copies.add(name)
            return None
        return view

    def _usable(self, name: str, view: TensorView | None) -> bool:
        """Whether the layers around tensor `name` can work on `view`: some see it in another shape: dense bytes."""
        if view is None or view.hwc() is None:
            return False
        return view.is_dense or not any(traits.dense for traits in (self.producer[name], *self.readers[name]))

    def _own(self, name: str) -> TensorView:
        tensor = self.graph.tensors[name]
        if name in self.graph.outputs:
            return self._parameter(tensor, BufferRole.OUTPUT)
        layout = TensorView.bricks if self._may_be_bricks(tensor) else TensorView.dense
        view = layout("", tensor.shape, tensor.element_bytes)
        size = view.strides[0] if view.brick else tensor.size_bytes
        return replace(view, buffer=self.builder.buffer(name, size, BufferRole.FEATURE_MAP))

    def _may_be_bricks(self, tensor: LayerTensor) -> bool:
        """NHCWB16 costs no bytes only for whole bricks, and only layers that know it may touch it."""
        if len(tensor.shape) != 4 or tensor.shape[0] != 1:
            return False
        if -tensor.shape[3] % BRICK_CHANNELS * _LITTLE > (tensor.shape[3] if self.for_cycles else 0):
            return False
        return all(tensor.name in t.bricks for t in (self.producer[tensor.name], *self.readers[tensor.name]))
