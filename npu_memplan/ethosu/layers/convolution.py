"""Convolutions: over all channels, depthwise, and transposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, ClassVar, cast

import numpy as np

from ..lower.emit_context import EmitContext, exact_window
from ..lower.layer import Limits, StorageTraits
from ..lower.operands import Operand, Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import conv_scale
from ..lower.tensors import NO_PADDING, LayerTensor, Padding
from ..reading.reader import MAX_STRIDE, Match, Reader, RejectedError, need_nhwc, padding_of, pair, stride_of
from ..schedule.shram import ceil_div
from ..stream.isa import Upscale
from .weighted import Sums, Weighted, ohwi, read_product, weighted

_MAX_KERNEL_ELEMENTS = 64 * 64
_MAX_KERNEL_HEIGHT = 64
_MAX_PADDING = (31, 31, 32, 32)  # top, left, bottom, right, in one operation
_INTERLEAVED = {(1, 1): Upscale.NONE, (2, 2): Upscale.TRANSPOSE}  # by the stride of a transposed convolution
_FEW = 32  # channels: the most that any order of the weights takes at once


def too_wide(padding: Padding) -> bool:
    """Whether a convolution cannot have `padding`."""
    return any(side > most for side, most in zip(padding.sides, _MAX_PADDING, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Conv(Weighted):
    stride: tuple[int, int] = (1, 1)  # y, x
    dilation: tuple[int, int] = (1, 1)
    padding: Padding = NO_PADDING
    depthwise: bool = False
    upscale: Upscale = Upscale.NONE
    in_parts: bool = False  # a transposed one: in four where that takes fewer cycles

    limits: ClassVar[Limits] = Limits(mixed=frozenset(("int8", "uint8")), one_image=True)

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        height, width = self.weights.shape[1:3]
        dilated_height = (height - 1) * self.dilation[0] + 1
        dilated_width = (width - 1) * self.dilation[1] + 1
        if any(not 1 <= s <= MAX_STRIDE for s in self.stride):
            return f"its stride {self.stride[0]}x{self.stride[1]} is not within 1..{MAX_STRIDE}"
        if any(not 1 <= d <= 2 for d in self.dilation):
            return f"its dilation {self.dilation[0]}x{self.dilation[1]} is not 1 or 2"
        if dilated_height > _MAX_KERNEL_HEIGHT or dilated_height * dilated_width > _MAX_KERNEL_ELEMENTS:
            return (
                f"its dilated kernel {dilated_height}x{dilated_width} is higher than {_MAX_KERNEL_HEIGHT} "
                f"or has more than {_MAX_KERNEL_ELEMENTS} elements"
            )
        if too_wide(self.padding):
            return f"its padding {self.padding.sides} is more than {_MAX_PADDING} at the top, left, bottom and right"
        unfit = self._unfit_weights()
        if unfit is not None:
            return unfit
        if self.depthwise and inputs[0].shape[-1] != output.shape[-1]:
            return f"its depth multiplier is {output.shape[-1] // inputs[0].shape[-1]} on more than one input channel"
        if self.upscale and (self.padding.top >= height or self.padding.left >= width):
            return "its padding is wider than its kernel"
        return None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits(bricks=self.inputs if self.in_parts else (*self.inputs, self.output))

    def emit(self, context: EmitContext) -> None:
        source, result = context.tensors[self.inputs[0]], context.tensors[self.output]
        ifm, ofm = context.operand(source.name), context.operand(result.name)
        single = source.dtype == "uint8"
        scales = [conv_scale(source.scale, s, result.scale, single=single) for s in self.weight_scales]
        kernel = cast("tuple[int, int]", self.weights.shape[1:3])
        window = exact_window(Window(kernel, self.stride, self.dilation, self.padding, self.upscale), ifm, ofm)
        output = context.output(self.clamp)
        sums = Sums(ifm, window, self.weights)
        if not self.depthwise:
            sums = _cheapest(context, sums, ofm, output)
        parts = _cheaper_parts(context, sums, ofm, output) if self.in_parts else []
        for part, target in parts or [(sums, ofm)]:
            self._emit_sums(context.builder, part, target, scales, output, self.depthwise)


# ---------------------------------------------------------------------- few channels


def _cheapest(context: EmitContext, sums: Sums, ofm: Operand, output: Output) -> Sums:
    """`sums` or the same over runs of columns: the way with the fewest estimated cycles."""
    runs = in_runs(sums, ofm) if sums.ifm.shape.depth < _FEW else None
    if runs is None:
        return sums

    return min(sums, runs, key=lambda way: _cycles(context, way, ofm, output))


def _cycles(context: EmitContext, sums: Sums, ofm: Operand, output: Output) -> float:
    return context.builder.cycles_of_sums(sums.ifm, ofm, sums.window, output, sums.weights)


def in_runs(sums: Sums, ofm: Operand) -> Sums | None:
    """The same sums over runs of `stride` columns; None where rows are not made of such, or are read otherwise.

    Every weight meets the value that it met, and the zeros that are added meet values of the map; its bytes are the
    same. The multipliers take as many input channels at a time whether they are there or not.
    """
    view, window, stride = sums.ifm.view, sums.window, sums.window.stride[1]
    height, width, depth = view.shape
    if stride == 1 or width % stride or not view.has_dense_rows:
        return None
    if window.dilation[1] > 1 or window.upscale is not Upscale.NONE:
        return None
    before = -window.padding.left % stride  # columns of the first run that are before the window
    runs = ceil_div(before + window.kernel[1], stride)
    weights = np.zeros((len(sums.weights), window.kernel[0], stride * runs, depth), sums.weights.dtype)
    weights[:, :, before : before + window.kernel[1]] = sums.weights
    strides = (view.strides[0], stride * view.strides[1], view.element_bytes)
    seen = replace(sums.ifm, view=replace(view, shape=(height, width // stride, stride * depth), strides=strides))
    padding = replace(window.padding, left=ceil_div(window.padding.left, stride))
    changed = replace(window, kernel=(window.kernel[0], runs), stride=(window.stride[0], 1), padding=padding)
    return Sums(seen, exact_window(changed, seen, ofm), weights.reshape(*weights.shape[:2], runs, stride * depth))


# ---------------------------------------------------------------------- transposed


def _cheaper_parts(context: EmitContext, sums: Sums, ofm: Operand, output: Output) -> list[tuple[Sums, Operand]]:
    """`parts_of` where they take fewer estimated cycles than `sums`; else none."""
    parts = parts_of(sums, ofm)
    spent = sum(_cycles(context, part, target, output) for part, target in parts)
    return parts if spent < _cycles(context, sums, ofm, output) else []


def parts_of(sums: Sums, ofm: Operand) -> list[tuple[Sums, Operand]]:
    """Sums over a map between whose elements are zeros, as four without them: for every second row and column of the
    result. Every weight that met an element meets it still. None where a part has no weights, or begins further on.
    """
    padding, (height, width, depth) = sums.window.padding, ofm.view.shape
    parts = []
    for y, x in product(range(2), repeat=2):
        first = (padding.top - y) % 2, (padding.left - x) % 2
        before = (padding.top - y - first[0]) // 2, (padding.left - x - first[1]) // 2
        weights = np.ascontiguousarray(sums.weights[:, first[0] :: 2, first[1] :: 2])
        kernel = (weights.shape[1], weights.shape[2])
        view = ofm.view.box((y, x, 0), (ceil_div(height - y, 2), ceil_div(width - x, 2), depth), (2, 2, 1))
        if view is None or 0 in (*view.shape, *kernel) or min(before) < 0:
            return []
        target = replace(ofm, view=view)
        window = exact_window(Window(kernel, padding=Padding(*before, 0, 0)), sums.ifm, target)
        if window.padding.bottom >= kernel[0] or window.padding.right >= kernel[1]:
            return []
        parts.append((Sums(sums.ifm, window, weights), target))
    return parts


# ---------------------------------------------------------------------- in Relax


def _conv2d(reader: Reader, root: Any) -> Match:
    call, out, source, weights, fields = read_product(reader, root, "nn.conv2d")
    need_nhwc(str(call.attrs.data_layout))
    depth, channels, groups = out.shape[-1], source[0].shape[-1], int(call.attrs.groups)
    values = ohwi(weights, str(call.attrs.kernel_layout))
    depthwise = groups > 1
    if depthwise:
        if groups != channels:
            raise RejectedError(f"it is a convolution in {groups} groups over {channels} channels")
        # HWOI of a depthwise kernel: O runs over the groups, I over the multiplier
        values = values.reshape(-1, *values.shape[1:3], 1) if values.shape[3] == 1 else values
        if values.shape[0] != depth:
            raise RejectedError(f"its depth multiplier is {depth // groups} on more than one input channel")
    layer = Conv(
        "conv2d",
        weights=values,
        stride=stride_of(call.attrs.strides, out),
        dilation=pair(call.attrs.dilation),
        padding=padding_of(call.attrs.padding),
        depthwise=depthwise,
        **fields,
    )
    return Match.of(layer, out, source)


def _transpose_conv(reader: Reader, root: Any) -> Match:
    """A transposed convolution: the NPU interleaves zeros, for stride 2, and convolves with the mirrored kernel."""
    call, out, source, weights, fields = read_product(reader, root, "nn.conv2d_transpose")
    need_nhwc(str(call.attrs.data_layout))
    stride = pair(call.attrs.strides)
    if stride not in _INTERLEAVED or int(call.attrs.groups) != 1 or pair(call.attrs.dilation) != (1, 1):
        raise RejectedError("only transpose convolutions with stride 1x1 or 2x2, one group and no dilation fit the NPU")
    values = ohwi(weights, str(call.attrs.kernel_layout))[:, ::-1, ::-1, :]
    _, height, width, _ = values.shape
    own = padding_of(call.attrs.padding)
    seen = tuple(step * extent for step, extent in zip(stride, source[0].shape[1:3], strict=True))
    layer = Conv(
        "transpose_conv",
        weights=np.ascontiguousarray(values),
        padding=transposed_padding(own, (height, width), seen, out.shape[1:3]),
        upscale=_INTERLEAVED[stride],
        **fields,
    )
    return Match.of(layer, out, source)


def transposed_padding(
    own: Padding, kernel: tuple[int, int], source: tuple[int, ...], result: tuple[int, ...]
) -> Padding:
    """Padding of the equivalent convolution over the upscaled input, which has the extent `source`."""
    top, left = kernel[0] - 1 - own.top, kernel[1] - 1 - own.left
    bottom = result[0] - 1 + kernel[0] - top - source[0]
    right = result[1] - 1 + kernel[1] - left - source[1]
    if min(top, left) < 0:
        raise RejectedError("its padding is wider than its kernel")
    # the upscaled image ends in a zero row and column that may be outside of what is read
    return Padding(top, left, max(bottom, 0), max(right, 0))


RECORD = Record(
    (Conv,),
    (
        Composite("conv2d", partial(weighted, "nn.conv2d"), _conv2d),
        Composite("transpose_conv", partial(weighted, "nn.conv2d_transpose"), _transpose_conv),
    ),
)
