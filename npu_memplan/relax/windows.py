"""Convolutions, fully connected layers and pools: composites to layers.

Invariant: weights come out as [O, H, W, I] with their zero point subtracted, whatever layout the
frontend chose; activations must be NHWC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ethosu.lower.graph import Conv, Layer, Padding, Pool, PoolKind, Tensor
from ..ethosu.stream.isa import Upscale
from .reader import Constant, Match, Reader, RejectedError, number, shape_of


def _pair(values: Any) -> tuple[int, int]:
    numbers = [int(v) for v in values]
    return (numbers[0], numbers[-1])


def _stride(values: Any, out: Tensor) -> tuple[int, int]:
    """Strides as far as they matter: one window needs none."""
    y, x = _pair(values)
    return (1 if out.shape[1] == 1 else y, 1 if out.shape[2] == 1 else x)


def _padding(values: Any) -> Padding:
    numbers = [int(v) for v in values]
    if len(numbers) == 1:
        numbers *= 4
    if len(numbers) == 2:
        numbers *= 2
    return Padding(*numbers)


def _bias(reader: Reader, expression: Any, depth: int) -> tuple[Any, NDArray[np.int32] | NDArray[np.int64]]:
    """The weighted sum below an optional bias, and the bias; int64 where there is none."""
    add = reader.call(expression, "add")
    if add is None:
        return expression, np.zeros(depth, np.int64)
    bias = reader.constant(add.args[1])
    return add.args[0], bias.values.reshape(-1)


def _is_wide(tensor: Tensor, bias: NDArray[Any]) -> bool:
    """Whether TFLite accumulates in 64 bits."""
    return tensor.dtype == "int16" and bias.dtype == np.int64


def _zeroed(weights: Constant, values: NDArray[Any], axis: int) -> NDArray[Any]:
    """Weights minus their zero points (one, or one for each channel along `axis`)."""
    zeros = weights.zero_points
    if zeros.size > 1:
        shape = [1] * values.ndim
        shape[axis] = zeros.size
        zeros = zeros.reshape(shape)
    return values.astype(np.int16) - zeros.astype(np.int16)


def _scales(weights: Constant) -> tuple[float, ...]:
    values = [float(s) for s in weights.scales]
    return (values[0],) if len(set(values)) == 1 else tuple(values)


def _ohwi(values: NDArray[Any], layout: str) -> NDArray[Any]:
    order = [layout.index(letter) for letter in "OHWI"]
    return np.ascontiguousarray(values.transpose(order))


def parse_conv2d(reader: Reader, root: Any) -> Match:
    """dequantize, conv2d, [bias], [activation], quantize."""
    out, real, clamp = reader.quantised(root)
    depth = out.shape[-1]
    real, bias = _bias(reader, real, depth)
    call = reader.need(real, "nn.conv2d")
    _need_nhwc(str(call.attrs.data_layout))
    tensor, variable = reader.activation(call.args[0], "0")
    weights = reader.constant(call.args[1])
    groups = int(call.attrs.groups)
    values = _ohwi(_zeroed(weights, weights.values, str(call.attrs.kernel_layout).index("O")), call.attrs.kernel_layout)
    depthwise = groups > 1
    if depthwise:
        if groups != tensor.shape[-1]:
            raise RejectedError(f"it is a convolution in {groups} groups over {tensor.shape[-1]} channels")
        # HWOI of a depthwise kernel: O runs over the groups, I over the multiplier
        values = values.reshape(-1, *values.shape[1:3], 1) if values.shape[3] == 1 else values
        if values.shape[0] != depth:
            raise RejectedError(f"its depth multiplier is {depth // groups} on more than one input channel")
    layer = Conv(
        "conv2d",
        ("0",),
        "out",
        weights=values,
        bias=bias.astype(np.int64),
        wide=_is_wide(tensor, bias),
        weight_scales=_scales(weights),
        clamp=clamp,
        stride=_stride(call.attrs.strides, out),
        dilation=_pair(call.attrs.dilation),
        padding=_padding(call.attrs.padding),
        depthwise=depthwise,
    )
    return Match(layer, {"0": tensor, "out": out}, (variable,))


def parse_transpose_conv(reader: Reader, root: Any) -> Match:
    """A transposed convolution with stride 2: the NPU interleaves zeros and convolves with the mirrored kernel."""
    out, real, clamp = reader.quantised(root)
    real, bias = _bias(reader, real, out.shape[-1])
    call = reader.need(real, "nn.conv2d_transpose")
    _need_nhwc(str(call.attrs.data_layout))
    if _pair(call.attrs.strides) != (2, 2) or int(call.attrs.groups) != 1 or _pair(call.attrs.dilation) != (1, 1):
        raise RejectedError("only transpose convolutions with stride 2x2, one group and no dilation fit the NPU")
    tensor, variable = reader.activation(call.args[0], "0")
    weights = reader.constant(call.args[1])
    layout = str(call.attrs.kernel_layout)
    values = _ohwi(_zeroed(weights, weights.values, layout.index("O")), layout)[:, ::-1, ::-1, :]
    _, height, width, _ = values.shape
    own = _padding(call.attrs.padding)
    layer = Conv(
        "transpose_conv",
        ("0",),
        "out",
        weights=np.ascontiguousarray(values),
        bias=bias.astype(np.int64),
        wide=_is_wide(tensor, bias),
        weight_scales=_scales(weights),
        clamp=clamp,
        padding=_transposed_padding(own, (height, width), tensor.shape[1:3], out.shape[1:3]),
        upscale=Upscale.TRANSPOSE,
    )
    return Match(layer, {"0": tensor, "out": out}, (variable,))


def _transposed_padding(
    own: Padding, kernel: tuple[int, int], source: tuple[int, ...], result: tuple[int, ...]
) -> Padding:
    """Padding of the equivalent convolution over the input upscaled by two."""
    top, left = kernel[0] - 1 - own.top, kernel[1] - 1 - own.left
    bottom = result[0] - 1 + kernel[0] - top - 2 * source[0]
    right = result[1] - 1 + kernel[1] - left - 2 * source[1]
    if min(top, left) < 0:
        raise RejectedError("its padding is wider than its kernel")
    # the upscaled image ends in a zero row and column that may lie outside of what is read
    return Padding(top, left, max(bottom, 0), max(right, 0))


def parse_fully_connected(reader: Reader, root: Any) -> Match:
    """dequantize, matmul with constant weights, [bias], [activation], quantize."""
    out, real, clamp = reader.quantised(root)
    depth = out.shape[-1]
    real, bias = _bias(reader, real, depth)
    call = reader.need(real, "matmul")
    tensor, variable = reader.activation(call.args[0], "0")
    weights = reader.constant(call.args[1])
    if weights.values.ndim != 2:
        raise RejectedError(f"its weights have {weights.values.ndim} dimensions; batched products stay on the host")
    values = _zeroed(weights, weights.values, 1).T
    layer = Conv(
        "fully_connected",
        ("0",),
        "out",
        weights=np.ascontiguousarray(values).reshape(depth, 1, 1, -1),
        bias=bias.astype(np.int64),
        wide=_is_wide(tensor, bias),
        weight_scales=_scales(weights),
        clamp=clamp,
        fully_connected=True,
    )
    return Match(layer, {"0": tensor, "out": out}, (variable,))


def parse_max_pool(reader: Reader, root: Any) -> Match:
    """max_pool2d on stored values, or between dequantize and quantize of equal scales."""
    clip = reader.call(root, "clip")
    if reader.call(root if clip is None else clip.args[0], "quantize") is not None:
        out, real, clamp = reader.quantised(root)
        call = reader.need(real, "nn.max_pool2d")
        tensor, variable = reader.activation(call.args[0], "0")
        if (tensor.scale, tensor.zero_point) != (out.scale, out.zero_point):
            raise RejectedError("its input and output have different scales")
    else:
        call, clamp = _integer_clamp(reader, root, "nn.max_pool2d")
        variable = call.args[0]
        tensor, out = plain(variable, "0"), plain(call, "out")
    return Match(_pool(call, out, PoolKind.MAX, clamp), {"0": tensor, "out": out}, (variable,))


def parse_average_pool(reader: Reader, root: Any) -> Match:
    """astype(int32), avg_pool2d, astype(int8): TFLite's average pool as TVM imports it."""
    call, clamp = _integer_clamp(reader, root, "astype")
    inner, inner_clamp = _integer_clamp(reader, call.args[0], "nn.avg_pool2d")
    clamp = (max(clamp[0], inner_clamp[0]), min(clamp[1], inner_clamp[1]))
    widened = reader.need(inner.args[0], "astype")
    variable = widened.args[0]
    tensor, out = plain(variable, "0"), plain(call, "out")
    _need_average(inner)
    return Match(_pool(inner, out, PoolKind.AVERAGE, clamp), {"0": tensor, "out": out}, (variable,))


def parse_real_average_pool(reader: Reader, root: Any) -> Match:
    """avg_pool2d between dequantize and quantize; equal scales average the stored values, others are a mean."""
    out, real, clamp = reader.quantised(root)
    call = reader.need(real, "nn.avg_pool2d")
    tensor, variable = reader.activation(call.args[0], "0")
    _need_average(call)
    layer = _pool(call, out, PoolKind.AVERAGE, clamp)
    if (tensor.scale, tensor.zero_point) != (out.scale, out.zero_point):
        if layer.padding.any:
            raise RejectedError("its input and output have different scales and it is padded")
        layer = _pool(call, out, PoolKind.MEAN, clamp)
    return Match(layer, {"0": tensor, "out": out}, (variable,))


def reduction(name: str, kind: PoolKind) -> Callable[[Reader, Any], Match]:
    """The parser of a Relax reduction over height, width or both, or over the channels."""

    def parser(reader: Reader, root: Any) -> Match:
        out, real, clamp = reader.quantised(root)
        call = reader.need(real, name)
        tensor, variable = reader.activation(call.args[0], "0")
        rank = len(tensor.shape)
        axes = sorted(int(a) % rank for a in call.attrs.axis)
        across = axes == [rank - 1]
        if not across and rank == 4 and tensor.shape[0] != 1:
            raise RejectedError(f"its batch is {tensor.shape[0]}; windows need batch 1")
        if not across and (rank not in (3, 4) or not set(axes) <= {rank - 3, rank - 2}):
            raise RejectedError(f"its axes are {axes} of {rank}; only height and width, or the channels, fit the NPU")
        height, width = (tensor.shape[axis] if axis in axes else 1 for axis in (rank - 3, rank - 2))
        kernel = (1, tensor.shape[-1]) if across else (height, width)
        layer = Pool(name, ("0",), "out", kind, kernel, clamp, reduces=True, across=across)
        return Match(layer, {"0": tensor, "out": out}, (variable,))

    return parser


def _need_nhwc(layout: str) -> None:
    if layout != "NHWC":
        raise RejectedError(f"its layout is {layout}; run relax.transform.ConvertLayout to NHWC first")


def _need_average(call: Any) -> None:
    if bool(call.attrs.count_include_pad) and _padding(call.attrs.padding).any:
        raise RejectedError("it counts its padding; the NPU averages valid elements only")


def _integer_clamp(reader: Reader, expression: Any, name: str) -> tuple[Any, tuple[int, int]]:
    """The call of `name` below an optional clip, and the clip."""
    clamp = (-(1 << 31), (1 << 31) - 1)
    clip = reader.call(expression, "clip")
    if clip is not None:
        clamp = (int(number(clip.args[1])), int(number(clip.args[2])))
        expression = clip.args[0]
    return reader.need(expression, name), clamp


def plain(expression: Any, name: str) -> Tensor:
    """A tensor whose scale this operator does not state: whoever else touches it does."""
    return Tensor(name, shape_of(expression.ty), str(expression.ty.dtype), float("nan"))


def _pool(call: Any, out: Tensor, kind: PoolKind, clamp: tuple[int, int]) -> Pool:
    _need_nhwc(str(call.attrs.layout))
    if any(int(d) != 1 for d in call.attrs.dilation):
        raise RejectedError("its window is dilated")
    if out.dtype.startswith("float"):
        raise RejectedError(f"its tensor of type {out.dtype} is not quantised")
    least, most = out.limits
    layer: Layer = Pool(
        kind.value,
        ("0",),
        "out",
        kind,
        _pair(call.attrs.pool_size),
        (max(clamp[0], least), min(clamp[1], most)),
        _stride(call.attrs.strides, out),
        _padding(call.attrs.padding),
    )
    assert isinstance(layer, Pool)
    return layer
