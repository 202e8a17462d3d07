"""A layer and the table that its results are looked up in, as one operation.

Invariant: the table is indexed by exactly the values that the layer alone would have stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..layers.activation import Lookup
from .emit_context import EmitContext
from .layer import Layer, Limits, StorageTraits
from .tensors import LayerTensor


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
