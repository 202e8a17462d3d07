"""Dimensions in another order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..arch import Architecture, Language
from ..lower.emit import Builder
from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand, Output, Window
from ..lower.permuted import permute
from ..lower.record import Composite, Record
from ..lower.scaling import quantise_multiplier
from ..lower.tensors import LayerTensor
from ..lower.views import TensorView
from ..reading.patterns import alone
from ..reading.reader import Match, Reader
from ..stream.isa import BRICK_CHANNELS

_MAX_CHANNELS = 64
_FEW_PLANES = 8  # more take longer together than one after the other
_TO_PIXELS, _TO_PLANES = (1, 2, 0), (2, 0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Transpose(Layer):
    """Dimensions in another order: output dimension i is input dimension `axes[i]`."""

    axes: tuple[int, ...]

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(moves=True, keeps_scale=True)  # always a copy: channels stay dense

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        """Where results are stored in their order only, each channel is an operation."""
        if target.language is Language.U85:
            return None
        shape = inputs[0].shape
        if self.axes[-1] == len(shape) - 1:
            return None
        if min(shape[-1], shape[self.axes[-1]]) > _MAX_CHANNELS:
            return f"it transposes more than {_MAX_CHANNELS} channels"
        if len(shape) == 4 and (shape[self.axes[0]] != 1 or self.axes[0] != 0):
            return "it moves the batch"
        return None

    def emit(self, context: EmitContext) -> None:
        """One operation that stores its results in another order, or one convolution for few planes and pixels, which
        is made in stripes; else a copy of rows whose channels stay, or one for each channel of the side that has fewer.
        """
        source, target = context.view(self.inputs[0]), context.view(self.output)
        dtype = context.tensors[self.output].dtype
        orders = context.builder.accelerator.language is Language.U85
        inner = tuple(axis - len(self.axes) + 3 for axis in self.axes[-3:])
        if inner in (_TO_PIXELS, _TO_PLANES) and not (orders and context.for_cycles):
            planes, pixels = (source, target) if inner == _TO_PIXELS else (target, source)
            both = _in_bricks(planes, pixels)
            if both is not None:
                seen = [Operand(view, dtype) for view in both]
                _interleave(context.builder, seen[0], seen[1], inner == _TO_PIXELS)
                return
        if orders:
            permute(context.builder, source, target, self.axes, dtype)
            return
        if self.axes[-1] == len(self.axes) - 1:
            context.copy(source.permuted(self.axes), target, dtype)
            return
        if source.shape[-1] < target.shape[-1]:
            order = tuple(self.axes.index(axis) for axis in range(len(self.axes)))
            target = target.permuted(order)
        else:
            source = source.permuted(self.axes)
        for channel in range(source.shape[-1]):
            context.copy(source.channel(channel), target.channel(channel), dtype)


def _in_bricks(planes: TensorView, pixels: TensorView) -> tuple[TensorView, TensorView] | None:
    """[C, H, W] as bricks of 16 columns, one for each plane, and [H, W, C] as as many channels; None where the bytes
    are not such.
    """
    (height, width, depth), size = pixels.shape[-3:], pixels.element_bytes
    dense = planes.is_dense and pixels.is_dense and planes.offset % BRICK_CHANNELS == 0
    if not dense or width % BRICK_CHANNELS or depth > _FEW_PLANES or size > 1:
        return None
    shape = (height, width // BRICK_CHANNELS, BRICK_CHANNELS * depth)
    strides = (width, BRICK_CHANNELS, height * width)
    columns = pixels.reshaped(shape)
    assert columns is not None  # it is dense
    return replace(planes, shape=shape, strides=strides, brick=True), columns


def _interleave(builder: Builder, planes: Operand, pixels: Operand, to_pixels: bool) -> None:
    """Stored values to other channels: sums of one value each."""
    channels, info = planes.shape.depth, np.iinfo(planes.dtype)
    ones = np.eye(channels, dtype=np.int16).reshape(-1, BRICK_CHANNELS, channels)
    weights = ones.transpose(1, 0, 2).reshape(channels, channels)  # one in each row: the channel of `planes`
    ifm, ofm, weights = (planes, pixels, weights) if to_pixels else (pixels, planes, weights.T)
    output, none = Output((int(info.min), int(info.max))), np.zeros(channels, np.int64)
    weights = weights.reshape(channels, 1, 1, channels)
    builder.weighted(ifm, ofm, Window(), output, weights, none, [quantise_multiplier(1.0)], depthwise=False)


def _parse(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.moved(root, "permute_dims")
    rank = len(tensor.shape)
    axes = tuple(range(rank))[::-1] if call.attrs.axes is None else tuple(int(a) % rank for a in call.attrs.axes)
    layer = Transpose("transpose", ("0",), "out", axes)
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


RECORD = Record((Transpose,), (Composite("transpose", partial(alone, "permute_dims"), _parse),))
