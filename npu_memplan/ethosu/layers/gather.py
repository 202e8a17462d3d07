"""Channels of each pixel in another order, or some of them: one convolution with weights 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import quantise_multiplier
from ..lower.tensors import LayerTensor
from ..reading.patterns import alone
from ..reading.reader import Match, Reader, RejectedError


@dataclass(frozen=True, slots=True, eq=False)
class ChannelGather(Layer):
    """Channel i of the output is channel `places[i]` of the input."""

    places: tuple[int, ...]

    limits: ClassVar[Limits] = Limits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        """Sums of stored values are of 8 bits."""
        return "its tensors are int16; channels of 8 bits are gathered" if output.dtype == "int16" else None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits(bricks=(*self.inputs, self.output), keeps_scale=True)

    def emit(self, context: EmitContext) -> None:
        """Sums of one stored value each."""
        ifm, ofm = context.operand(self.inputs[0], raw=True), context.operand(self.output, raw=True)
        weights = np.eye(ifm.shape.depth, dtype=np.int16)[list(self.places)]
        context.builder.weighted(
            ifm,
            ofm,
            Window(),
            Output(context.tensors[self.output].limits),
            weights.reshape(len(self.places), 1, 1, -1),
            np.zeros(len(self.places), np.int64),
            [quantise_multiplier(1.0)],
            depthwise=False,
        )


def _parse(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.moved(root, "take")
    places, rank = reader.array(call.args[1]), len(tensor.shape)
    axis = None if call.attrs.axis is None else int(call.attrs.axis) % rank
    if places is None or axis != rank - 1 or places.ndim != 1:
        raise RejectedError("it gathers other things than channels at constant places")
    layer = ChannelGather("gather", ("0",), "out", tuple(int(place) for place in places))
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


RECORD = Record((ChannelGather,), (Composite("gather", partial(alone, "take", 2), _parse),))
