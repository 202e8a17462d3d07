"""A border of one value around height, width and channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor, Padding
from ..reading.patterns import alone
from ..reading.reader import Match, Reader, RejectedError


@dataclass(frozen=True, slots=True, eq=False)
class Pad(Layer):
    """The input inside a border of the stored value `value`."""

    padding: Padding
    value: int = 0
    channels: tuple[int, int] = (0, 0)  # before the input's and after them

    limits: ClassVar[Limits] = Limits(one_image=True)

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Its input is made inside of the border where it has no other reader."""
        return StorageTraits(moves=True, keeps_scale=True, begin=partial(self._begin, tensors))

    def _begin(self, tensors: Mapping[str, LayerTensor], index: int) -> tuple[int, ...]:
        begin = [0] * len(tensors[self.output].shape)
        begin[-3:] = self.padding.top, self.padding.left, self.channels[0]
        return tuple(begin)

    def emit(self, context: EmitContext) -> None:
        """The border, and the input unless it is there already."""
        whole, out, pad = context.view(self.output), context.tensors[self.output], self.padding
        source = context.tensors[self.inputs[0]]
        _, height, width, depth = out.shape
        _, inner_height, inner_width, inner_depth = source.shape
        if context.storage.embedded.get(self.inputs[0]) != self.output:
            target = whole.box(self._begin(context.tensors, 0), source.shape)
            assert target is not None
            context.copy(context.view(self.inputs[0]), target, out.dtype)
        borders = (
            ((0, 0, 0, 0), (1, pad.top, width, depth)),
            ((0, height - pad.bottom, 0, 0), (1, pad.bottom, width, depth)),
            ((0, pad.top, 0, 0), (1, inner_height, pad.left, depth)),
            ((0, pad.top, pad.left + inner_width, 0), (1, inner_height, pad.right, depth)),
        )
        for begin, shape in borders:
            if all(shape):
                target = whole.box(begin, shape)
                assert target is not None
                border = np.full(shape, self.value, out.dtype)
                context.copy(context.builder.constant_view(border), target, out.dtype)
        for first, count in ((0, self.channels[0]), (self.channels[0] + inner_depth, self.channels[1])):
            for begun in range(0, count, inner_depth):  # made of the input's bytes: no constants
                shape = (1, inner_height, inner_width, min(inner_depth, count - begun))
                target = whole.box((0, pad.top, pad.left, first + begun), shape)
                read = context.view(self.inputs[0]).box((0, 0, 0, 0), shape)
                assert target is not None
                assert read is not None  # neither is in bricks
                context.copy(read, target, out.dtype, (self.value, self.value))


def _parse(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.moved(root, "nn.pad")
    widths = [int(w) for w in call.attrs.pad_width]
    if len(tensor.shape) != 4 or any(widths[:2]) or min(widths) < 0:
        raise RejectedError(f"it pads {widths} in front of and behind each dimension; only images fit, not their batch")
    if str(call.attrs.pad_mode) != "constant":
        raise RejectedError(f"its mode is {call.attrs.pad_mode}; only constant padding fits the NPU")
    padding = Padding(widths[2], widths[4], widths[3], widths[5])
    value = int(float(call.attrs.pad_value))
    return Match(
        Pad("pad", ("0",), "out", padding, value, (widths[6], widths[7])), {"0": tensor, "out": out}, (call.args[0],)
    )


RECORD = Record((Pad,), (Composite("pad", partial(alone, "nn.pad"), _parse),))
