"""Rows that computed indices choose, to be taken or to be written: indexed transfers of Ethos-U85.

Invariant: a transfer moves whole rows, one for each index; an index of a row that does not exist is the caller's fault,
as in TFLite and TOSA.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..lower.emit import Builder, EmitContext, LoweringError
from ..lower.emit_u85 import Rows, move_rows
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import INT32, LayerTensor, Operand, Output, TensorView, Window
from ..lower.scaling import UNITY
from ..program.access import INDEX_BYTES
from ..reading.reader import Described, DescribedCall, LayerPart, Record
from ..stream.isa import ElementwiseMode, PoolMode

_MOST_TRANSFERS = 64  # more take longer than the host
_MOST_ROWS = 0xFFFF  # of a register


@dataclass(frozen=True, slots=True, eq=False)
class TakenRows(Layer):
    """Slices of the first input along `axis`, which the second chooses; the first `shared` dimensions are of both."""

    axis: int
    shared: int = 0

    limits: ClassVar[Limits] = Limits(chooser=(1, frozenset(("int32", "int64"))))
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True, keeps_scale=True)  # its tensors are seen as rows
    only_u85: ClassVar[str] = "its indices are computed, which only Ethos-U85 follows"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        taken = _Taken.for_layer(self, *(tensor.shape for tensor in inputs))
        transfers = len(taken.transfers(inputs[1].element_bytes))
        if transfers > _MOST_TRANSFERS:
            return f"it takes {transfers} transfers; at most {_MOST_TRANSFERS} pay on the NPU"
        if max(taken.images, taken.count) > _MOST_ROWS:
            return f"it takes {taken.count} rows for each of {taken.images}; a transfer takes at most {_MOST_ROWS}"
        return None

    def emit(self, context: EmitContext) -> None:
        data, indices = (context.tensors[name] for name in self.inputs)
        source, chosen, made = _dense_views(context, (*self.inputs, self.output))
        taken = _Taken.for_layer(self, data.shape, indices.shape)
        taken.emit(context.builder, data.element_bytes, source, (chosen, indices.element_bytes), made)


@dataclass(frozen=True, slots=True, eq=False)
class TakenSlices(Layer):
    """Slices of the first input: a row of `depth` numbers of the second is the place of one in its first axes."""

    depth: int

    limits: ClassVar[Limits] = TakenRows.limits
    traits: ClassVar[StorageTraits] = TakenRows.traits
    only_u85: ClassVar[str] = TakenRows.only_u85

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        count = math.prod(inputs[1].shape[:-1])
        return f"it takes {count} slices; a transfer takes at most {_MOST_ROWS}" if count > _MOST_ROWS else None

    def emit(self, context: EmitContext) -> None:
        """One transfer; places along several axes are made places along one before."""
        data, indices = (context.tensors[name] for name in self.inputs)
        source, made = _dense_views(context, (self.inputs[0], self.output))
        extents, size, builder = data.shape[: self.depth], INDEX_BYTES, context.builder
        count, inner = math.prod(indices.shape[:-1]), math.prod(data.shape[self.depth :])
        steps = [math.prod(extents[axis + 1 :]) for axis in range(self.depth)]
        if indices.data is not None:
            chosen = builder.constant_view((indices.data.reshape(count, self.depth) @ steps).astype(np.int32))
        else:
            (chosen,) = _dense_views(context, (self.inputs[1],))
            if self.depth == 1:
                size = indices.element_bytes
            else:
                chosen = self._flat_places(builder, chosen, indices.element_bytes, count, steps)
        taken = _Taken(1, 1, math.prod(extents), inner, count)
        taken.emit(builder, data.element_bytes, source, (chosen, size), made)

    def _flat_places(self, builder: Builder, places: TensorView, size: int, count: int, steps: list[int]) -> TensorView:
        """The places times what a step along each axis is worth, summed; numbers of 64 bits have nothing above 32."""
        words = size // INDEX_BYTES
        factors = np.zeros((1, 1, self.depth * words), np.int32)
        factors[..., ::words] = steps
        shape, output = (1, count, self.depth * words), Output(INT32, UNITY)
        seen = replace(TensorView.dense(places.buffer, shape, INDEX_BYTES), offset=places.offset)
        products = builder.temporary(f"{self.output}_products", shape, "int32")
        worth = Operand(builder.constant_view(factors), "int32")
        builder.elementwise(ElementwiseMode.MUL, Operand(seen, "int32"), worth, products, output)
        joined = builder.temporary(f"{self.output}_places", (1, count, 1), "int32")
        builder.pool(PoolMode.REDUCE_SUM, products, joined, Window(), output)
        return joined.view


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRows(Layer):
    """The first input, [images, rows, channels], with rows of the third in the places that the second says."""

    limits: ClassVar[Limits] = Limits(chooser=(1, frozenset(("int32",))))
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True, keeps_scale=True)  # its tensors are seen as rows
    only_u85: ClassVar[str] = "its places are computed, which only Ethos-U85 follows"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        images, count = inputs[1].shape
        if max(images, count) > _MOST_ROWS:
            return f"it places {count} rows of each of {images}; a transfer places at most {_MOST_ROWS}"
        return None

    def emit(self, context: EmitContext) -> None:
        """A copy of all rows, and a transfer over some of them."""
        data, indices, given = (context.tensors[name] for name in self.inputs)
        whole, chosen, source, made = (context.view(name) for name in (*self.inputs, self.output))
        (images, extent, channels), count = data.shape, indices.shape[1]
        context.copy(whole, made, data.dtype)
        row = channels * given.element_bytes
        move_rows(
            context.builder,
            Rows(source, row, count * row),
            (chosen, extent, indices.element_bytes),
            Rows(made, row, extent * row),
            (images, count),
            scatters=True,
        )


def _dense_views(context: EmitContext, names: tuple[str, ...]) -> list[TensorView]:
    views = [context.view(name) for name in names]
    if not all(view.is_dense for view in views):
        raise LoweringError(f"{names[-1]} is made of rows of tensors whose bytes are not dense")
    return views


def _advance_view(view: TensorView, count: int) -> TensorView:
    return replace(view, offset=view.offset + count)


@dataclass(frozen=True, slots=True)
class _Transfer:
    """`rows` of each of `planes`; first rows, and the distance between planes, in rows."""

    planes: int
    rows: int
    source: int
    source_plane: int
    index: int
    made: int
    made_plane: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """[images, outer, extent, inner] of which `count` indices of each image choose along the third dimension."""

    images: int
    outer: int
    extent: int
    inner: int
    count: int

    @staticmethod
    def for_layer(layer: TakenRows, data: tuple[int, ...], indices: tuple[int, ...]) -> _Taken:
        parts = data[: layer.shared], data[layer.shared : layer.axis], data[layer.axis + 1 :]
        images, outer, inner = (math.prod(part) for part in parts)
        return _Taken(images, outer, data[layer.axis], inner, math.prod(indices[layer.shared :]))

    def emit(
        self,
        builder: Builder,
        element_bytes: int,
        source: TensorView,
        indices: tuple[TensorView, int],  # and the bytes of one
        made: TensorView,
    ) -> None:
        """The transfers."""
        row, (chosen, index_bytes) = self.inner * element_bytes, indices
        for transfer in self.transfers(index_bytes):
            move_rows(
                builder,
                Rows(_advance_view(source, transfer.source * row), row, transfer.source_plane * row),
                (_advance_view(chosen, transfer.index * index_bytes), self.extent, index_bytes),
                Rows(_advance_view(made, transfer.made * row), row, transfer.made_plane * row),
                (transfer.planes, transfer.rows),
            )

    def transfers(self, index_bytes: int) -> list[_Transfer]:
        """One for each of `outer`; with indices of 64 bits, whose planes have one row each, also for each image."""
        whole, made = self.outer * self.extent, self.outer * self.count
        if index_bytes == np.dtype(np.int32).itemsize:
            return [
                _Transfer(self.images, self.count, place * self.extent, whole, 0, place * self.count, made)
                for place in range(self.outer)
            ]
        return [
            _Transfer(
                self.count, 1, image * whole + place * self.extent, 0,
                image * self.count, image * made + place * self.count, 1,
            )
            for image in range(self.images)
            for place in range(self.outer)
        ]  # fmt: skip


# ---------------------------------------------------------------------- from what host code says


def _parse_indexed(call: DescribedCall) -> LayerPart:
    axis, shared = int(call.layer["axis"]), int(call.layer["shared"])
    data = call.operand("input")
    indices = _clamp_indices(call.operand("indices"), data.shape[axis])
    return LayerPart.for_layer(TakenRows("gather", ("0", "1"), "out", axis, shared), call.output(), data, indices)


def _parse_slices(call: DescribedCall) -> LayerPart:
    data, indices = call.operand("input"), call.operand("indices")
    if indices.data is not None:
        most = np.array(data.shape[: indices.shape[-1]]) - 1
        indices = replace(indices, data=np.clip(indices.data, 0, most))
    layer = TakenSlices("gather_nd", ("0", "1"), "out", int(call.layer["depth"]))
    return LayerPart.for_layer(layer, call.output(), data, indices)


def _clamp_indices(indices: LayerTensor, extent: int) -> LayerTensor:
    """Constant indices as the host's code reads them: one outside of the axis is the nearest place's."""
    return indices if indices.data is None else replace(indices, data=np.clip(indices.data, 0, extent - 1))


RECORD = Record(
    (TakenRows, TakenSlices, PlacedRows),
    (Described("taken_rows", _parse_indexed), Described("taken_slices", _parse_slices)),
)
