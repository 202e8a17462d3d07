"""What the NPU can do: one check for each layer type, with the reason when it cannot.

Invariant: a layer for which `problem` returns None is one that `lower` can put on the NPU, on every
accelerator. Limits are the hardware's register widths and the rules of its block engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import (
    Binary,
    BinaryKind,
    Concat,
    Conv,
    Layer,
    Lookup,
    Pad,
    Pool,
    PoolKind,
    Prelu,
    Requantize,
    Resize,
    SequenceLstm,
    Softmax,
    Squash,
    Tensor,
    Transpose,
)

_MAX_STRIDE = 3
_MAX_KERNEL_ELEMENTS = 64 * 64
_MAX_KERNEL_HEIGHT = 64
_MAX_POOL = 256
_MAX_EXTENT = 1 << 16
_MAX_TRANSPOSED_CHANNELS = 64
_MAX_PHASES = 64
_TYPES = ("int8", "uint8", "int16")


def problem(layer: Layer, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    """Why `layer` cannot run on the NPU; None when it can."""
    for tensor in (*inputs, output):
        if tensor.dtype not in _TYPES:
            return f"its tensor of type {tensor.dtype} is neither 8 nor 16 bits"
        if len(tensor.shape) > 4:
            return f"its tensor has {len(tensor.shape)} dimensions; the NPU walks at most 4"
        if any(extent < 1 or extent > _MAX_EXTENT for extent in tensor.shape):
            return f"an extent of its shape {list(tensor.shape)} is outside 1..65536"
    types = {t.dtype for t in (*inputs, output)}
    if len(types) > 1 and not _may_mix(layer, types):
        return f"its tensors are of different types: {', '.join(sorted(types))}"
    if "int16" in types and isinstance(layer, Lookup | Softmax):
        return "its tensors are int16; the NPU's tables are for 8 bits"
    odd = next((t.zero_point for t in (*inputs, output) if t.dtype == "int16" and t.zero_point), 0)
    if odd:
        return f"its int16 tensor has zero point {odd}; only 0 fits"
    if not isinstance(layer, Softmax) and any(len(t.shape) == 4 and t.shape[0] != 1 for t in (*inputs, output)):
        batch = next(t.shape[0] for t in (*inputs, output) if len(t.shape) == 4 and t.shape[0] != 1)
        if isinstance(layer, Conv | Pool | Pad | Resize):
            return f"its batch is {batch}; windows need batch 1"
    check = _CHECKS.get(type(layer))
    return check(layer, inputs, output) if check else None


def _may_mix(layer: Layer, types: set[str]) -> bool:
    """Whether a layer takes tensors of several types."""
    return isinstance(layer, Requantize | SequenceLstm) or (isinstance(layer, Conv) and "int16" not in types)


def _conv(layer: Conv, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    depth, height, width, _ = layer.weights.shape
    dilated_height = (height - 1) * layer.dilation[0] + 1
    dilated_width = (width - 1) * layer.dilation[1] + 1
    if any(not 1 <= s <= _MAX_STRIDE for s in layer.stride):
        return f"its stride {layer.stride[0]}x{layer.stride[1]} is not within 1..{_MAX_STRIDE}"
    if any(not 1 <= d <= 2 for d in layer.dilation):
        return f"its dilation {layer.dilation[0]}x{layer.dilation[1]} is not 1 or 2"
    if dilated_height > _MAX_KERNEL_HEIGHT or dilated_height * dilated_width > _MAX_KERNEL_ELEMENTS:
        return (
            f"its dilated kernel {dilated_height}x{dilated_width} is higher than {_MAX_KERNEL_HEIGHT} "
            f"or has more than {_MAX_KERNEL_ELEMENTS} elements"
        )
    sums = np.abs(layer.weights.astype(np.int64)).reshape(depth, -1).sum(axis=1)
    if sums.max(initial=0) > 127 * 65536:
        return "the sum of the absolute weights of a channel exceeds 127 * 65536"
    if np.abs(layer.weights).max(initial=0) > 255:
        return "its weights do not fit 9 bits after their zero point is subtracted"
    if np.abs(layer.bias).max(initial=0) >= 1 << 39:
        return "its bias does not fit 40 bits"
    if len(layer.weight_scales) not in (1, len(layer.bias)):
        return f"it has {len(layer.weight_scales)} weight scales for {len(layer.bias)} channels"
    if layer.depthwise and inputs[0].shape[-1] != output.shape[-1]:
        return f"its depth multiplier is {output.shape[-1] // inputs[0].shape[-1]} on more than one input channel"
    if layer.upscale and (layer.padding.top >= height or layer.padding.left >= width):
        return "its padding is wider than its kernel"
    return None


def _pool(layer: Pool, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    height, width = layer.kernel
    if any(not 1 <= s <= _MAX_STRIDE for s in layer.stride):
        return f"its stride {layer.stride[0]}x{layer.stride[1]} is not within 1..{_MAX_STRIDE}"
    sums = layer.kind in (PoolKind.MEAN, PoolKind.SUM)
    if sums and (height > _MAX_POOL or width > 4096 or height * width > 1 << 16):
        return f"it adds {height}x{width} elements; the NPU adds at most {_MAX_POOL} rows and 65536 elements"
    most = 8 if layer.kind is PoolKind.AVERAGE and layer.padding.any else _MAX_POOL
    if not sums and (height > most or width > most):
        return f"its window {height}x{width} is larger than {most}x{most}"
    if not sums and _differ(inputs[0], output):
        return "its input and output have different scales"
    return None


def _differ(first: Tensor, second: Tensor) -> bool:
    """Whether two stated quantisations differ; NaN is a scale that nobody stated."""
    if math.isnan(first.scale) or math.isnan(second.scale):
        return False
    return (first.scale, first.zero_point) != (second.scale, second.zero_point)


def _binary(layer: Binary, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    a, b = inputs
    if all(t.hwc != output.hwc for t in inputs):
        return f"both operands, {list(a.shape)} and {list(b.shape)}, would have to be broadcast"
    if a.data is not None and b.data is not None:
        return "both operands are constants"
    for tensor in inputs:
        if any(mine not in (1, whole) for mine, whole in zip(tensor.hwc, output.hwc, strict=True)):
            return f"its operand {list(tensor.shape)} cannot be broadcast to {list(output.shape)} by the NPU"
        if len(output.shape) == 4 and output.shape[0] != 1 and tensor.hwc != output.hwc:
            return "it broadcasts over a batch that is not 1"
    constant_first = a.data is not None or a.hwc != output.hwc
    if constant_first and b.hwc != output.hwc:
        return "its constant operand is larger than its other operand"
    same = {(t.scale, t.zero_point) for t in (a, b, output)}
    if layer.kind is BinaryKind.SQUARED_DIFFERENCE and output.dtype != "int8":
        return f"its tensors are {output.dtype}; squares of differences need int8"
    if layer.kind in (BinaryKind.MIN, BinaryKind.MAX) and len(same) > 1:
        return "minimum and maximum need equal scales and zero points"
    return None


def _prelu(layer: Prelu, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    data, slopes = inputs
    if data.dtype != "int8":
        return f"its tensors are {data.dtype}; slopes below zero need int8"
    if data.hwc != output.hwc or any(s not in (1, n) for s, n in zip(slopes.hwc, output.hwc, strict=True)):
        return f"its slopes {list(slopes.shape)} cannot be broadcast to {list(output.shape)} by the NPU"
    return None


def _resize(layer: Resize, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    phases = len(layer.rows) * len(layer.columns)
    if phases > _MAX_PHASES:
        return f"it makes {phases} elements of one; at most {_MAX_PHASES} are made on the NPU"
    if output.dtype == "int16" and any(p.second for p in (*layer.rows, *layer.columns)):
        return "its tensors are int16; bilinear resizes fit 8 bits"
    return None


def _lookup(layer: Lookup, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    return None if len(layer.table) == 256 else f"its table has {len(layer.table)} entries instead of 256"


def _squash(layer: Squash, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    if output.scale != 2.0**-15:
        return f"its int16 output has scale {output.scale} instead of 1/32768"
    return None


def _concat(layer: Concat, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    return None if len(output.shape) >= 1 else "it concatenates scalars"


def _softmax(layer: Softmax, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    if output.zero_point != output.limits[0] or abs(output.scale - 1 / 256) > 1e-6:
        return (
            f"its output has scale {output.scale} and zero point {output.zero_point} instead of 1/256 and the minimum"
        )
    return None


def _transpose(layer: Transpose, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    if min(inputs[0].shape[-1], output.shape[-1]) > _MAX_TRANSPOSED_CHANNELS:
        return f"it transposes more than {_MAX_TRANSPOSED_CHANNELS} channels"
    if len(output.shape) == 4 and (output.shape[0] != 1 or layer.axes[0] != 0):
        return "it moves the batch"
    return None


def _sequence_lstm(layer: SequenceLstm, inputs: tuple[Tensor, ...], output: Tensor) -> str | None:
    data, hidden, cell = inputs
    types = (data.dtype, hidden.dtype, cell.dtype, output.dtype)
    if types != ("int8", "int8", "int16", "int8"):
        return f"its data, hidden state, cell state and output are {', '.join(types)}; only int8, int8, int16, int8 fit"
    if math.frexp(cell.scale)[0] != 0.5 or cell.zero_point:
        return f"its cell state has scale {cell.scale} and zero point {cell.zero_point}; only powers of two and 0 fit"
    if _differ(hidden, output):
        return "its hidden state and its output have different scales"
    return None


_CHECKS: dict[type[Layer], Callable[[Any, tuple[Tensor, ...], Tensor], str | None]] = {
    Transpose: _transpose,
    Conv: _conv,
    Pool: _pool,
    Binary: _binary,
    Prelu: _prelu,
    Resize: _resize,
    Lookup: _lookup,
    Concat: _concat,
    Softmax: _softmax,
    SequenceLstm: _sequence_lstm,
    Squash: _squash,
}
