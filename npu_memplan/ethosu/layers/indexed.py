"""Rows that computed indices choose, to be taken or to be written: indexed transfers of Ethos-U85.

Invariant: a transfer moves whole rows, one for each index; an index of a row that does not exist is the caller's fault,
as in TFLite and TOSA.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..lower.emit import LoweringError
from ..lower.emit_context import EmitContext
from ..lower.emit_u85 import Rows, move_rows
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..lower.views import TensorView
from ..reading.described import DescribedCall
from ..reading.patterns import host_call
from ..reading.reader import Input, Match, Reader

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
        taken = _Taken.of(self, *(tensor.shape for tensor in inputs))
        transfers = len(taken.transfers(inputs[1].element_bytes))
        if transfers > _MOST_TRANSFERS:
            return f"it takes {transfers} transfers; at most {_MOST_TRANSFERS} pay on the NPU"
        if max(taken.images, taken.count) > _MOST_ROWS:
            return f"it takes {taken.count} rows for each of {taken.images}; a transfer takes at most {_MOST_ROWS}"
        return None

    def emit(self, context: EmitContext) -> None:
        data, indices = (context.tensors[name] for name in self.inputs)
        source, chosen, made = (context.view(name) for name in (*self.inputs, self.output))
        if not (source.is_dense and chosen.is_dense and made.is_dense):
            raise LoweringError(f"{self.name} takes rows of tensors whose bytes are not dense")
        taken = _Taken.of(self, data.shape, indices.shape)
        row, index_bytes = taken.inner * data.element_bytes, indices.element_bytes
        for transfer in taken.transfers(index_bytes):
            move_rows(
                context.builder,
                Rows(_moved(source, transfer.source * row), row, transfer.source_plane * row),
                (_moved(chosen, transfer.index * index_bytes), taken.extent, index_bytes),
                Rows(_moved(made, transfer.made * row), row, transfer.made_plane * row),
                (transfer.planes, transfer.rows),
            )


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


def _moved(view: TensorView, count: int) -> TensorView:
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
    def of(layer: TakenRows, data: tuple[int, ...], indices: tuple[int, ...]) -> _Taken:
        parts = data[: layer.shared], data[layer.shared : layer.axis], data[layer.axis + 1 :]
        images, outer, inner = (math.prod(part) for part in parts)
        return _Taken(images, outer, data[layer.axis], inner, math.prod(indices[layer.shared :]))

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


# ---------------------------------------------------------------------- in Relax


def _parse(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    axis, shared = int(call.layer["axis"]), int(call.layer["shared"])
    data, indices = call.operand("input", "0"), _within(call.operand("indices", "1"), call, axis)
    return Match.of(TakenRows("gather", ("0", "1"), "out", axis, shared), call.output(), data, indices)


def _within(indices: Input, call: DescribedCall, axis: int) -> Input:
    """Constant indices as the host's code reads them: one outside of the axis is the nearest place's."""
    tensor, variable = indices
    if tensor.data is None:
        return indices
    extent = call.operand("input", "0")[0].shape[axis]
    return replace(tensor, data=np.clip(tensor.data, 0, extent - 1)), variable


RECORD = Record((TakenRows, PlacedRows), (Composite("taken_rows", host_call, _parse),))
