"""Layers: what the NPU can do of each, how it touches memory, its operations; and graphs of them.

Invariant: a layer for which `problem` returns None is one that `emit` can put on the NPU, on every accelerator but
those for which `unsupported_by` has a reason. Limits are the hardware's register widths and the rules of its block
engine. A `LayerGraph` is in static single assignment - each tensor is an input, a constant, or made by exactly one
layer that stands before its readers - and every layer is one that `lower` can put on the NPU: a layer is built only
where `problem` returns None. Tensors are NHWC with N folded into the height. Every tensor of a graph has exactly one
`TensorView`, and tensors that share bytes do so because one is defined as a part or another shape of the other. Where
strides cannot express that, the layer that makes the tensor is listed in `copies` and moves the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ..arch import Architecture, Language
from ..program.program import BufferRole
from ..stream.isa import BRICK_CHANNELS
from .emit import Builder, EmitContext
from .operands import Arithmetic, LayerTensor, Storage, TensorView

_MAX_EXTENT = 1 << 16
_TYPES = ("int8", "uint8", "int16")
ANY_TYPES = frozenset(_TYPES)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the NPU that concern a layer."""

    mixed: frozenset[str] = frozenset()  # types that may be mixed with one another
    results: frozenset[str] = frozenset()  # types that only its output may have
    chooser: tuple[int, frozenset[str]] = (-1, frozenset())  # the input that chooses elements, and what types it has
    tables: bool = False  # it looks values up: 8 bits only
    one_image: bool = False  # windows do not cross from one image of a batch to the next


@dataclass(frozen=True, slots=True)
class StorageTraits:
    """How a layer's tensors may be stored in memory; by default, each densely in a buffer of its own."""

    bricks: tuple[str, ...] = ()  # tensors that it reads or writes in NHCWB16 as well
    dense: bool = False  # it sees its tensors in another shape: their bytes may have no gaps
    flat: bool = False  # it sees its input in another shape, so that one is not made inside a larger tensor
    moves: bool = False  # it only moves stored values: its output is made nowhere but in a place of its own or `view`
    keeps_scale: bool = False  # its stored values mean the same before and after
    view: Callable[[TensorView], TensorView | None] | None = None  # its output as a part or another shape of its input
    begin: Callable[[int], tuple[int, ...]] | None = None  # where in its output input i begins, and may be made
    gathers: bool = False  # such an input may have other readers
    updates: tuple[str, ...] = ()  # inputs it changes in place; they keep their content between runs


@dataclass(frozen=True, slots=True, eq=False)
class Layer(ABC):
    """Base of all layers: what it reads, what it makes, and how it is called in reports."""

    name: str
    inputs: tuple[str, ...]
    output: str

    limits: ClassVar[Limits]
    traits: ClassVar[StorageTraits]  # of layers whose tensors are stored alike whatever they are
    only_u85: ClassVar[str] = ""  # why other NPUs cannot compute it; "": they can
    takes_tables: ClassVar[bool] = False  # it is one operation of `EmitContext.output`, which may look its results up

    @property
    def source(self) -> str:
        """The tensor whose producer in the source model its cycles are reported under."""
        return self.output

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        """Why the NPU cannot compute this layer, beyond `limits`; None when it can."""
        return None

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        """Why one NPU cannot compute what others can; None when it can."""
        return None if target.language is Language.U85 else self.only_u85 or None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """How its tensors, which are among `tensors`, may be stored in memory: as its `traits` say, if it has them."""
        return self.traits

    @abstractmethod
    def emit(self, context: EmitContext) -> None:
        """Append its operations; moves that are views append nothing."""


def problem(layer: Layer, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
    """Why `layer` cannot run on the NPU; None when it can."""
    tensors, limits = (*inputs, output), layer.limits
    chooser, choosing = limits.chooser
    if choosing and inputs[chooser].dtype not in choosing:
        return f"its input {chooser} is {inputs[chooser].dtype}; the NPU chooses by {' and '.join(sorted(choosing))}"
    for place, tensor in enumerate(tensors):
        others = limits.results if tensor is output else choosing if place == chooser else frozenset[str]()
        if tensor.dtype not in _TYPES and tensor.dtype not in others:
            return f"its tensor of type {tensor.dtype} is neither 8 nor 16 bits"
        if len(tensor.shape) > 4:
            return f"its tensor has {len(tensor.shape)} dimensions; the NPU walks at most 4"
        if any(extent < 1 or extent > _MAX_EXTENT for extent in tensor.shape):
            return f"an extent of its shape {list(tensor.shape)} is outside 1..65536"
    types = {t.dtype for t in tensors} - limits.results - choosing
    if len(types) > 1 and not types <= limits.mixed:
        return f"its tensors are of different types: {', '.join(sorted(types))}"
    if "int16" in types and limits.tables:
        return "its tensors are int16; the NPU's tables are for 8 bits"
    odd = next((t.zero_point for t in tensors if t.dtype == "int16" and t.zero_point), 0)
    if odd:
        return f"its int16 tensor has zero point {odd}; only 0 fits"
    batch = next((t.shape[0] for t in tensors if len(t.shape) == 4 and t.shape[0] != 1), 1)
    if batch != 1 and limits.one_image:
        return f"its batch is {batch}; windows need batch 1"
    return layer.unsupported_reason(inputs, output)


@dataclass(frozen=True, slots=True, eq=False)
class LayerGraph:
    """Tensors by name and layers in program order."""

    name: str
    tensors: dict[str, LayerTensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: tuple[Layer, ...]
    arithmetic: Arithmetic = Arithmetic.TFLITE

    @property
    def states(self) -> frozenset[str]:
        """Inputs that a layer updates in place; they keep their content between runs."""
        return frozenset(n for layer in self.layers for n in layer.storage(self.tensors).updates)

    def readers(self, name: str) -> Iterator[Layer]:
        """Layers that read tensor `name`."""
        return (layer for layer in self.layers if name in layer.inputs)

    def producer(self, name: str) -> Layer | None:
        """The layer that makes tensor `name`; None for inputs and constants."""
        return next((layer for layer in self.layers if layer.output == name), None)


_LITTLE = 8  # parts of a map, one of which may be added to fill up its bricks where time is worth more than bytes


def assign(builder: Builder, graph: LayerGraph, for_cycles: bool = False) -> Storage:
    """Views for every tensor but constants; allocates the buffers in `builder`. `for_cycles`: in a few more bytes."""
    return _Assignment(builder, graph, for_cycles).assign_views()


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

    def assign_views(self) -> Storage:
        for name in self.graph.inputs:
            role = BufferRole.STATE if name in self.graph.states else BufferRole.INPUT
            self.storage.views[name] = self._parameter(self.graph.tensors[name], role)
        self._embed_inputs()
        for layer in self.graph.layers:
            self._place(layer.output)
        return self.storage

    def _parameter(self, tensor: LayerTensor, role: BufferRole) -> TensorView:
        buffer = self.builder.buffer(tensor.name, tensor.size_bytes, role, tensor.shape, tensor.dtype)
        return TensorView.dense(buffer, tensor.shape, tensor.element_bytes)

    def _embed_inputs(self) -> None:
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
            views[name] = self._view_inside(name) or self._view_of_input(name) or self._own(name)
        return views[name]

    def _view_inside(self, name: str) -> TensorView | None:
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

    def _view_of_input(self, name: str) -> TensorView | None:
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
