"""The same elements under another shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader


@dataclass(frozen=True, slots=True, eq=False)
class Reshape(Layer):
    limits: ClassVar[Limits] = Limits()

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        shape = tensors[self.output].shape
        return StorageTraits(moves=True, flat=True, keeps_scale=True, view=lambda source: source.reshaped(shape))

    def emit(self, context: EmitContext) -> None:
        if self.output in context.storage.copies:
            seen = context.view(self.output).reshaped(context.tensors[self.inputs[0]].shape)
            assert seen is not None  # an own buffer is dense
            context.copy(context.view(self.inputs[0]), seen, context.tensors[self.output].dtype)


def _patterns() -> Iterator[p.Pattern]:
    yield from p.alone("reshape", 2)
    yield from p.alone("expand_dims")
    yield from p.alone("squeeze")


def _parse(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.moved(root, "reshape", "expand_dims", "squeeze")
    return Match(Reshape("reshape", ("0",), "out"), {"0": tensor, "out": out}, (call.args[0],))


RECORD = Record((Reshape,), (Composite("reshape", _patterns, _parse),))
