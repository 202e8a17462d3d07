"""Elements in the other order along an axis: a pool of Ethos-U85 that stores its results backwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..lower.emit_context import EmitContext, reshaped
from ..lower.emit_u85 import store_in_order
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..reading.patterns import host_call
from ..reading.reader import DescribedCall, Match, Reader
from ..stream.isa import StoredBackwards

_MAX_EXTENT = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Reverse(Layer):
    """Backwards along the dimensions `first` to `last`, which are next to each other and so one axis."""

    first: int
    last: int

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True, keeps_scale=True)
    only_u85: ClassVar[str] = "it stores values backwards, which only Ethos-U85 does"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        shape = self._seen(inputs[0].shape)
        if max(shape) > _MAX_EXTENT:
            return f"it is seen as {list(shape)}, of which an extent is above {_MAX_EXTENT}"
        return None

    def emit(self, context: EmitContext) -> None:
        whole = context.tensors[self.inputs[0]].shape
        shape = self._seen(whole)
        ifm, ofm = (reshaped(context.operand(name, raw=True), shape) for name in (self.inputs[0], self.output))
        backwards = StoredBackwards.W if math.prod(whole[: self.first]) > 1 else StoredBackwards.H
        store_in_order(context.builder, ifm, ofm, backwards=backwards)

    def _seen(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """With the axis as columns, or as rows where no dimension is before it: those take half the time."""
        parts = (shape[: self.first], shape[self.first : self.last + 1], shape[self.last + 1 :])
        outer, count, inner = (math.prod(part) for part in parts)
        return (outer, count, inner) if outer > 1 else (count, 1, inner)


def _parse(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    layer = Reverse("reverse", ("0",), "out", int(call.layer["first"]), int(call.layer["last"]))
    return Match.of(layer, call.output(), call.activation("input", "0"))


RECORD = Record((Reverse,), (Composite("reverse", host_call, _parse),))
