"""Dimensions in another order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..lower.emission import Emission
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..reading.patterns import alone
from ..reading.reader import Match, Reader

_MAX_CHANNELS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Transpose(Layer):
    """Dimensions in another order: output dimension i is input dimension `axes[i]`."""

    axes: tuple[int, ...]

    limits: ClassVar[Limits] = Limits()

    def refusal(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        """Each channel is an operation."""
        if min(inputs[0].shape[-1], output.shape[-1]) > _MAX_CHANNELS:
            return f"it transposes more than {_MAX_CHANNELS} channels"
        if len(output.shape) == 4 and (output.shape[0] != 1 or self.axes[0] != 0):
            return "it moves the batch"
        return None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Always a copy: the NPU's maps have contiguous channels."""
        return StorageTraits(moves=True, keeps_scale=True)

    def emit(self, emission: Emission) -> None:
        """One copy for each channel of the side that has fewer."""
        source, target = emission.view(self.inputs[0]), emission.view(self.output)
        dtype = emission.tensors[self.output].dtype
        if source.shape[-1] < target.shape[-1]:
            order = tuple(self.axes.index(axis) for axis in range(len(self.axes)))
            target = target.permuted(order)
        else:
            source = source.permuted(self.axes)
        for channel in range(source.shape[-1]):
            emission.copy(source.channel(channel), target.channel(channel), dtype)


def _parse(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.moved(root, "permute_dims")
    rank = len(tensor.shape)
    axes = tuple(range(rank))[::-1] if call.attrs.axes is None else tuple(int(a) % rank for a in call.attrs.axes)
    layer = Transpose("transpose", ("0",), "out", axes)
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


RECORD = Record((Transpose,), (Composite("transpose", partial(alone, "permute_dims"), _parse),))
