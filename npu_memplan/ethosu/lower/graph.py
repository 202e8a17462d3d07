"""The network between partitioning and NPU operations: quantised tensors and typed layers.

Invariant: a `LayerGraph` is in static single assignment - each tensor is an input, a constant, or made by
exactly one layer that stands before its readers - and every layer is something `lower` can put on the
NPU: a layer is built only where `layer.problem` is empty. Tensors are NHWC with N folded into the height.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .layer import Layer
from .tensors import Arithmetic, LayerTensor


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
