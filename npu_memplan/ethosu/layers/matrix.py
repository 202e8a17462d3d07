"""Sums of products: convolutions, fully connected layers, and products of two matrices.

Invariant: weights are [O, H, W, I] with their zero point subtracted, whatever layout the frontend chose. Products are
exact 32-bit values; so are their sums before they are scaled, for a depth of 65,536 at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from ..arch import Architecture, Language
from ..lower.emit import Builder, EmitContext, exact_window, reshape_operand
from ..lower.emit_u85 import multiply_maps, permute
from ..lower.languages import overflow_reason
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import INT32, NO_PADDING, LayerTensor, Operand, Output, Padding, TensorView, Window
from ..lower.scaling import UNITY, Scale, conv_scale, float32_value, quantise_multiplier, rounded_once
from ..reading import patterns as p
from ..reading.reader import (
    MAX_STRIDE,
    Composite,
    Constant,
    Described,
    DescribedCall,
    Input,
    LayerPart,
    Match,
    Reader,
    Record,
    RejectedError,
    need_nhwc,
    padding_of,
    pair,
    stride_of,
)
from ..schedule.rams import ceil_div
from ..stream.isa import ElementwiseMode, PoolMode, Rounding, Upscale

_MAX_SUM = 127 * 65536


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """One way to see the input and the weights of a layer; they are OHWI."""

    ifm: Operand
    window: Window
    weights: NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Weighted(Layer):
    weights: NDArray[Any]  # OHWI (depthwise: O = 1, I = channels out), zero point already subtracted
    bias: NDArray[np.int64]
    weight_scales: tuple[float, ...]  # one, or one for each output channel
    clamp: tuple[int, int]  # quantised
    takes_tables: ClassVar[bool] = True

    wide: bool = field(default=False, kw_only=True)  # 64-bit accumulators, rounded once: int16 without an int32 bias
    stated: tuple[Scale, ...] = field(default=(), kw_only=True)  # one, or one a channel; (): the tensors' scales say it

    def _unfit_weights(self) -> str | None:
        sizes = np.abs(self.weights).reshape(len(self.weights), -1)
        if sizes.sum(axis=1, dtype=np.int64).max(initial=0) > _MAX_SUM:
            return "the sum of the absolute weights of a channel exceeds 127 * 65536"
        if sizes.max(initial=0) > 255:
            return "its weights do not fit 9 bits after their zero point is subtracted"
        if np.abs(self.bias).max(initial=0) >= 1 << 39:
            return "its bias does not fit 40 bits"
        if len(self.weight_scales) not in (1, len(self.bias)):
            return f"it has {len(self.weight_scales)} weight scales for {len(self.bias)} channels"
        return None

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        """Sums of 16-bit values that are not rounded once have as many bits as their multipliers leave."""
        narrow = target.language is Language.U85 and inputs[0].element_bytes == 2 and not self.wide
        return overflow_reason(self.weights, self.bias) if narrow else None

    def _emit_sums(
        self, builder: Builder, sums: Sums, ofm: Operand, scales: Sequence[Scale], output: Output, depthwise: bool
    ) -> None:
        if self.wide:
            scales = [rounded_once(s) for s in scales]
            output = replace(output, rounding=Rounding.NATURAL)
        scales = self.stated or scales
        builder.convolve(sums.ifm, ofm, sums.window, output, sums.weights, self.bias, scales, depthwise=depthwise)


# ---------------------------------------------------------------------- in Relax


def product_patterns(name: str) -> Iterator[p.Pattern]:
    """A product with constant weights, with a bias or without."""
    bare = p.op(name, p.dequantize(p.anything()), _weight_pattern())
    yield from p.result_patterns(bare)
    yield from p.result_patterns(p.op("add", bare, _bias_pattern()))


def _move_pattern(x: p.Pattern) -> p.Pattern:
    return p.op("reshape", x, p.anything()) | p.op("permute_dims", x)


def _weight_pattern() -> p.Pattern:
    constant = p.constant()
    return _move_pattern(p.dequantize(constant)) | p.dequantize(_move_pattern(constant)) | p.dequantize(constant)


def _bias_pattern() -> p.Pattern:
    constant = p.constant()
    wide = p.op("multiply", p.op("astype", constant), p.constant())  # relax.dequantize takes no int64
    bias = p.dequantize(constant) | wide
    return p.op("reshape", bias, p.anything()) | bias


def read_product(reader: Reader, root: Any, name: str) -> tuple[Any, LayerTensor, Input, Constant, dict[str, Any]]:
    """dequantize, `name` with constant weights, [bias], [activation], quantize.

    The call, its result "out", its input "0", its weights, and the fields that it gives any `Weighted`: a scale where
    all are equal, else one for each channel; no bias is one of int64; TFLite accumulates `wide` sums in 64 bits.
    """
    out, real, clamp = reader.read_quantised(root)
    add = reader.call(real, "add")
    bias = np.zeros(out.shape[-1], np.int64) if add is None else reader.constant(add.args[1]).values.reshape(-1)
    call = reader.need(real if add is None else add.args[0], name)
    source, weights = reader.activation(call.args[0], "0"), reader.constant(call.args[1])
    scales = tuple(float(s) for s in weights.scales)
    fields = {
        "inputs": ("0",),
        "output": "out",
        "bias": bias.astype(np.int64),
        "wide": source[0].dtype == "int16" and bias.dtype == np.int64,
        "weight_scales": scales[:1] if len(set(scales)) == 1 else scales,
        "clamp": clamp,
    }
    return call, out, source, weights, fields


def subtract_zero_points(weights: Constant, axis: int) -> NDArray[Any]:
    """Weights minus their zero points (one, or one for each channel along `axis`)."""
    zeros = weights.zero_points
    if zeros.size > 1:
        shape = [1] * weights.values.ndim
        shape[axis] = zeros.size
        zeros = zeros.reshape(shape)
    return weights.values.astype(np.int16) - zeros.astype(np.int16)


def weights_ohwi(weights: Constant, layout: str) -> NDArray[Any]:
    """Weights of a convolution without their zero points, in the order of the NPU."""
    values = subtract_zero_points(weights, layout.index("O"))
    return np.ascontiguousarray(values.transpose([layout.index(letter) for letter in "OHWI"]))


_MAX_KERNEL_ELEMENTS = 64 * 64
_MAX_KERNEL_HEIGHT = 64
_MAX_PADDING = (31, 31, 32, 32)  # top, left, bottom, right, in one operation
INTERLEAVED = {(1, 1): Upscale.NONE, (2, 2): Upscale.TRANSPOSE}  # by the stride of a transposed convolution
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
    """The same sums over runs of `stride` columns, whose added weights are zero; None: rows have no such runs."""
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


def _parse_conv2d(reader: Reader, root: Any) -> Match:
    call, out, source, weights, fields = read_product(reader, root, "nn.conv2d")
    need_nhwc(str(call.attrs.data_layout))
    depth, channels, groups = out.shape[-1], source[0].shape[-1], int(call.attrs.groups)
    values = weights_ohwi(weights, str(call.attrs.kernel_layout))
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
    return Match.for_layer(layer, out, source)


def _transpose_conv(reader: Reader, root: Any) -> Match:
    """A transposed convolution: the NPU interleaves zeros, for stride 2, and convolves with the mirrored kernel."""
    call, out, source, weights, fields = read_product(reader, root, "nn.conv2d_transpose")
    need_nhwc(str(call.attrs.data_layout))
    stride = pair(call.attrs.strides)
    if stride not in INTERLEAVED or int(call.attrs.groups) != 1 or pair(call.attrs.dilation) != (1, 1):
        raise RejectedError("only transpose convolutions with stride 1x1 or 2x2, one group and no dilation fit the NPU")
    values = weights_ohwi(weights, str(call.attrs.kernel_layout))[:, ::-1, ::-1, :]
    _, height, width, _ = values.shape
    own = padding_of(call.attrs.padding)
    seen = tuple(step * extent for step, extent in zip(stride, source[0].shape[1:3], strict=True))
    layer = Conv(
        "transpose_conv",
        weights=np.ascontiguousarray(values),
        padding=transposed_padding(own, (height, width), seen, out.shape[1:3]),
        upscale=INTERLEAVED[stride],
        **fields,
    )
    return Match.for_layer(layer, out, source)


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


CONVOLUTION_RECORD = Record(
    (Conv,),
    (
        Composite("conv2d", partial(product_patterns, "nn.conv2d"), _parse_conv2d),
        Composite("transpose_conv", partial(product_patterns, "nn.conv2d_transpose"), _transpose_conv),
    ),
)


_WIDTHS = (2, 4, 8)  # of pixels


@dataclass(frozen=True, slots=True, eq=False)
class FullyConnected(Weighted):
    """A 1x1 convolution over rows of values; `weights` are [O, 1, 1, I]."""

    limits: ClassVar[Limits] = Limits(mixed=frozenset(("int8", "uint8")), one_image=True)
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as rows

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return self._unfit_weights()

    def emit(self, context: EmitContext) -> None:
        source, result = context.tensors[self.inputs[0]], context.tensors[self.output]
        output = context.output(self.clamp)
        if source.dtype == "uint8":  # LiteRT's kernel rounds these once
            output = replace(output, rounding=Rounding.NATURAL)
        scales = [conv_scale(source.scale, s, result.scale) for s in self.weight_scales]
        ways = [self._seen(context, plane) for plane in self._planes(context)]
        sums, ofm = min(ways, key=partial(self._cycles, context, output)) if len(ways) > 1 else ways[0]
        self._emit_sums(context.builder, sums, ofm, scales, output, depthwise=False)

    def _planes(self, context: EmitContext) -> list[tuple[int, int]]:
        """Rows of values as pixels: of one column, which stripes cut best, or of more, which fill micro-blocks."""
        rows = int(np.prod(context.tensors[self.inputs[0]].shape)) // self.weights.shape[3]
        wide = context.for_cycles and context.builder.accelerator.language is Language.U85
        return [(rows // width, width) for width in ((1, *_WIDTHS) if wide else (1,)) if rows % width == 0]

    def _seen(self, context: EmitContext, plane: tuple[int, int]) -> tuple[Sums, Operand]:
        ifm = reshape_operand(context.operand(self.inputs[0]), (*plane, self.weights.shape[3]))
        ofm = reshape_operand(context.operand(self.output), (*plane, len(self.bias)))
        return Sums(ifm, exact_window(Window(), ifm, ofm), self.weights), ofm

    def _cycles(self, context: EmitContext, output: Output, way: tuple[Sums, Operand]) -> float:
        sums, ofm = way
        return context.builder.cycles_of_sums(sums.ifm, ofm, sums.window, output, sums.weights)


def _fully_connected(reader: Reader, root: Any) -> Match:
    _, out, source, weights, fields = read_product(reader, root, "matmul")
    if weights.values.ndim != 2:
        raise RejectedError(f"its weights have {weights.values.ndim} dimensions; batched products stay on the host")
    values = np.ascontiguousarray(subtract_zero_points(weights, 1).T).reshape(out.shape[-1], 1, 1, -1)
    return Match.for_layer(FullyConnected("fully_connected", weights=values, **fields), out, source)


FULLY_CONNECTED_RECORD = Record(
    (FullyConnected,), (Composite("fully_connected", partial(product_patterns, "matmul"), _fully_connected),)
)


_MAX_PRODUCTS = 256
_WIDE_BITS = 15  # of a multiplier of 48-bit sums


@dataclass(frozen=True, slots=True, eq=False)
class BatchMatMul(Layer):
    """[..., rows, depth] times [..., depth, columns] for each leading index; either may be stored transposed."""

    turned: tuple[bool, bool]  # whether an input is stored as [..., depth, rows] or [..., columns, depth]
    clamp: tuple[int, int]
    stated: Scale | None = None  # None: the tensors' scales say it

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as stacks of matrices

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        stacks = math.prod(output.shape[:-2])
        if stacks > _MAX_PRODUCTS:
            return f"it multiplies {stacks} pairs of matrices; at most {_MAX_PRODUCTS} are multiplied on the NPU"
        if output.dtype == "int16" and self.stated is not None and self.stated.multiplier >> _WIDE_BITS:
            return f"its sums of 48 bits are scaled by more than {_WIDE_BITS} bits"
        return None

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        if target.language is not Language.U85:
            return "it multiplies two feature maps, which only Ethos-U85 does"
        return None

    def reading_transposed(self, place: int, name: str) -> BatchMatMul:
        """The same product, whose input `place` is the transposed tensor `name`."""
        inputs = tuple(name if i == place else old for i, old in enumerate(self.inputs))
        first, second = (turned != (i == place) for i, turned in enumerate(self.turned))
        return replace(self, inputs=inputs, turned=(first, second))

    def emit(self, context: EmitContext) -> None:
        """Transposes, where the products want other orders, and one operation for each pair of matrices."""
        a, b, out = (context.tensors[name] for name in (*self.inputs, self.output))
        first, second = (
            _Stack.of_tensor(context, tensor, turned)
            for tensor, turned in ((a, self.turned[0]), (b, not self.turned[1]))
        )
        made = _Stack(context.view(out.name), out.shape)
        scale = self.stated or quantise_multiplier(
            float32_value(a.scale) * float32_value(b.scale) / float32_value(out.scale)
        )
        output = context.output(self.clamp, scale)
        if a.dtype == "int16" and self.stated is None:  # TFLite's sums of 64 bits are rounded once
            output = replace(output, scale=rounded_once(scale), rounding=Rounding.NATURAL)
        for place in np.ndindex(out.shape[:-2]):
            multiply_maps(
                context.builder,
                Operand(first.matrix_view(place), a.dtype, a.zero_point),
                Operand(second.matrix_view(place), b.dtype, b.zero_point),
                Operand(made.matrix_view(place), out.dtype, out.zero_point),
                output,
            )


@dataclass(frozen=True, slots=True)
class _Stack:
    """Matrices in dense rows."""

    view: TensorView
    shape: tuple[int, ...]

    @staticmethod
    def of_tensor(context: EmitContext, tensor: LayerTensor, turned: bool) -> _Stack:
        """The stack of matrices of `tensor`; transposed if it is `turned`."""
        if not turned:
            return _Stack(context.view(tensor.name), tensor.shape)
        shape = (*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2])
        if tensor.data is not None:
            values = np.ascontiguousarray(np.swapaxes(tensor.data, -1, -2)).astype(tensor.dtype)
            return _Stack(context.builder.constant_view(values), shape)
        moved = context.builder.temporary(f"{tensor.name}_transposed", shape, tensor.dtype).view
        axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        permute(context.builder, context.view(tensor.name), moved, axes, tensor.dtype)
        return _Stack(moved, shape)

    def matrix_view(self, place: tuple[int, ...]) -> TensorView:
        """The matrix at the leading indices `place` of the result, as one row of pixels; extents of 1 are repeated."""
        *leading, rows, columns = self.shape
        mine = place[len(place) - len(leading) :]
        index = 0
        for at, extent in zip(mine, leading, strict=True):
            index = index * extent + (at if extent > 1 else 0)
        size = self.view.element_bytes
        plane = rows * columns * size
        return replace(
            self.view,
            offset=self.view.offset + index * plane,
            shape=(1, rows, columns),
            strides=(plane, columns * size, size),
        )


def _parse_batch_matmul(call: DescribedCall) -> LayerPart:
    out = call.output()
    turned = bool(call.layer["turned_first"]), bool(call.layer["turned_second"])
    second = "second" if call.has("second") else "first"  # what is both operands is one parameter
    inputs = call.activation("first"), call.operand(second)
    return LayerPart.for_layer(BatchMatMul("batch_matmul", ("0", "1"), "out", turned, out.limits), out, *inputs)


BATCH_MATMUL_RECORD = Record((BatchMatMul,), (Described("batch_matmul", _parse_batch_matmul),))


_MOST_STEPS = 256  # rows or columns, of which each takes two operations


@dataclass(frozen=True, slots=True, eq=False)
class ProductSums(Layer):
    """[stacks, rows, depth] times [stacks, depth, columns], 8 bits; `turned`: the second is stored transposed."""

    turned: bool
    clamp: tuple[int, int]
    stated: Scale  # of the sums

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as stacks of matrices

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if output.dtype == "int16":
            return "it multiplies int16 matrices, whose sums have more than 32 bits"
        steps = min(output.shape[-2:])
        if steps > _MOST_STEPS:
            return f"it multiplies {steps} rows and columns; at most {_MOST_STEPS} are multiplied on the NPU"
        return None

    def emit(self, context: EmitContext) -> None:
        """Two operations for each row, or for each column where there are fewer of these."""
        first, second, made = (_stacked_matrices(context, name) for name in (*self.inputs, self.output))
        second = second if self.turned else _transpose_stacks(context.builder, second)
        by_column = first.view.shape[1] >= second.view.shape[1]
        whole, other = (first, second) if by_column else (second, first)
        output = context.output(self.clamp, self.stated)
        for index in range(other.view.shape[1]):
            products = context.builder.temporary(f"{self.output}_products", whole.view.shape, "int32")
            one = replace(other, view=_part(other.view, 1, index))
            context.builder.elementwise(ElementwiseMode.MUL, whole, one, products, Output(INT32, UNITY))
            sums = _part(made.view, 2 if by_column else 1, index)
            if not by_column:  # the row's elements as pixels
                sums = _as_pixels(sums, (*sums.shape[::2], 1), (sums.strides[0], sums.strides[2]))
            context.builder.pool(PoolMode.REDUCE_SUM, products, replace(made, view=sums), Window(), output)


def _stacked_matrices(context: EmitContext, name: str) -> Operand:
    """A tensor as [stacks, rows, columns]."""
    tensor = context.tensors[name]
    view = context.view(name).reshape((math.prod(tensor.shape[:-2]), *tensor.shape[-2:]))
    assert view is not None  # it is dense
    return Operand(view, tensor.dtype, tensor.zero_point)


def _transpose_stacks(builder: Builder, source: Operand) -> Operand:
    """[stacks, depth, columns] as [stacks, columns, depth], by a copy for each stack."""
    stacks, depth, columns = source.view.shape
    moved = builder.temporary("transposed", (stacks, columns, depth), source.dtype, source.zero_point)
    size, info = source.view.element_bytes, np.iinfo(source.dtype)
    output = Output((int(info.min), int(info.max)), UNITY)
    for stack in range(stacks):
        rows, turned = _part(source.view, 0, stack), _part(moved.view, 0, stack)
        seen = (
            _as_pixels(rows, (depth, columns, 1), (rows.strides[1], size)),
            _as_pixels(turned, (depth, columns, 1), (size, turned.strides[1])),
        )
        ends = [Operand(view, source.dtype) for view in seen]
        builder.pool(PoolMode.MAX, ends[0], ends[1], Window(), output)
    return moved


def _part(view: TensorView, axis: int, index: int) -> TensorView:
    """One index of an axis, which stays."""
    shape = tuple(1 if place == axis else extent for place, extent in enumerate(view.shape))
    return replace(view, offset=view.offset + index * view.strides[axis], shape=shape)


def _as_pixels(view: TensorView, shape: tuple[int, ...], strides: tuple[int, int]) -> TensorView:
    """The same place, seen as pixels of one channel."""
    return replace(view, shape=shape, strides=(*strides, view.element_bytes))
