"""Operators with weights or windows: convolutions, dense layers, products of matrices, pools.

Invariant: as `drawing`; weights have per-channel scales over up to six decades, where their type has such.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.random_networks.drawing import Drawing, Value
from tests.support.random_values import RANGE, random_bias

_MOST_MACS = 400_000
_SAME, _VALID = 0, 1
Window = dict[str, Any]  # kernel, stride, dilation, padding, and the height and width that come out
Stored = tuple[float, int]  # scale and zero point


def _spread(value: Value) -> float:
    """About the standard deviation of the real numbers of a value."""
    if not value.quantised:
        return value.bound / 2
    low, high = RANGE[value.dtype]
    return 0.3 * (high - low) * float(value.scale)


def _channel_scales(d: Drawing, channels: int, dtype: str) -> Any:
    """Scales of weights: one, near ones, or ones over six decades."""
    base = d.near(float(10 ** d.rng.uniform(-3.5, -1)), "int8", 1.0)
    kind = d.number(0, 3)
    if dtype == "uint8" or kind == 0:
        return np.float32(base)
    if kind == 1:
        return (base * 10 ** d.rng.uniform(-3, 3, channels)).astype(np.float32)
    return (base * d.rng.uniform(0.3, 1.5, channels)).astype(np.float32)


def _weights(d: Drawing, x: Value, shape: tuple[int, ...], channels: int, axis: int) -> tuple[int, Any]:
    """(tensor, scales) of weights for `x`."""
    if not x.quantised and d.chance(0.85):
        return d.constant(shape, "float32").index, None
    scales = _channel_scales(d, channels, x.dtype)
    if x.dtype == "uint8":
        return d.b.constant(d.stored(shape, "uint8"), scales, d.zero("uint8")), scales
    values = np.maximum(d.stored(shape, "int8"), -127).astype(np.int8)
    if d.chance(0.3):
        values = np.where(d.rng.random(shape) < 0.6, 0, values).astype(np.int8)
    if not x.quantised:  # a hybrid: weights of 8 bits, the rest in float32
        return d.b.constant(values, np.float32(0.01), 0, axis=axis), None
    return d.b.constant(values, scales, 0, axis=axis), scales


def _bias(d: Drawing, x: Value, channels: int, scales: Any) -> int:
    """The tensor of a bias, or -1: none."""
    if d.chance(d.without_bias):
        return -1
    if not x.quantised:
        return d.constant((channels,), "float32").index
    wide = x.dtype == "int16" and d.chance(d.wide_bias)
    each = np.float32(x.scale) * scales
    return d.b.constant(random_bias(d.rng, channels, x.dtype, wide), each)


def _given(bias: int) -> list[int]:
    """An input that TFLite refuses as -1: left out, where there is none."""
    return [bias] if bias >= 0 else []


def _result(
    d: Drawing, x: Value, shape: tuple[int, ...], scales: Any, taps: int, stored: Stored | None = None
) -> Value:
    """What sums of `taps` products are stored in."""
    if not x.quantised:
        return d.tensor(shape, "float32", bound=x.bound * 2 * math.sqrt(taps))
    if stored is not None:
        return d.tensor(shape, x.dtype, *stored)
    typical = float(np.median(np.atleast_1d(scales))) * 60 * _spread(x) * math.sqrt(taps)
    steps = 8000 if x.dtype == "int16" else 40
    scale = typical / steps * float(10 ** d.rng.uniform(-0.5, 0.7))
    of = float(x.scale) * float(np.atleast_1d(scales)[0])
    return d.tensor(shape, x.dtype, d.near(scale, x.dtype, of), d.zero(x.dtype))


def _window(d: Drawing, height: int, width: int, dilated: bool = True) -> Window | None:
    """Kernel, stride, dilation, padding and the output's height and width; None where nothing comes out."""
    kernel = [int(d.choice(1, 1, 2, 3, 3, 5, 7)) for _ in range(2)]
    stride = [int(d.choice(1, 1, 1, 2, 2, 3, 4)) for _ in range(2)]
    if d.chance(0.5):
        stride[1] = stride[0]
    dilation = [1, 1] if not dilated or max(stride) > 1 or d.chance(0.75) else [d.number(1, 3) for _ in range(2)]
    return window((height, width), kernel, stride, dilation, d.number(0, 1))


def window(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    padding: int = _SAME,
) -> Window | None:
    """A window over maps of `size`; None where nothing comes out."""
    out = []
    for n, k, s, gap in zip(size, kernel, stride, dilation, strict=True):
        reach = (k - 1) * gap + 1
        out.append(-(-n // s) if padding == _SAME else (n - reach) // s + 1)
    if min(out) < 1:
        return None
    return {"kernel": kernel, "stride": stride, "dilation": dilation, "padding": padding, "out": out}


def _strides(w: Window) -> dict[str, Any]:
    return {"Padding": w["padding"], "StrideH": w["stride"][0], "StrideW": w["stride"][1]}


def _dilations(w: Window) -> dict[str, Any]:
    return {"DilationHFactor": w["dilation"][0], "DilationWFactor": w["dilation"][1]}


def conv(d: Drawing, x: Value) -> bool:
    if len(x.shape) != 4 or x.dtype not in (*RANGE, "float32"):
        return False
    _, height, width, depth = x.shape
    w = _window(d, height, width)
    if w is None:
        return False
    groups = d.choice(*(g for g in (1, 2, 4) if depth % g == 0)) if d.chance(0.15) else 1
    return convolve(d, x, w, groups * max(1, d.depth() // groups), groups)


def convolve(d: Drawing, x: Value, w: Window, channels: int, groups: int = 1, stored: Stored | None = None) -> bool:
    """CONV_2D by a window; `stored`: the quantisation of its result."""
    n, _, _, depth = x.shape
    shape = (n, *w["out"], channels)
    taps = math.prod(w["kernel"]) * depth // groups
    if not d.fits(shape) or math.prod(shape) * taps > _MOST_MACS:
        return False
    weights, scales = _weights(d, x, (channels, *w["kernel"], depth // groups), channels, 0)
    bias, y = _bias(d, x, channels, scales), _result(d, x, shape, scales, taps, stored)
    fields = {**_strides(w), **_dilations(w), "FusedActivationFunction": d.fused()}
    reads: list[Value | int] = [x, weights, *_given(bias)]
    return d.operator("CONV_2D", reads, y, "Conv2DOptions", 3, **fields)


def depthwise(d: Drawing, x: Value) -> bool:
    if len(x.shape) != 4 or x.dtype not in (*RANGE, "float32"):
        return False
    _, height, width, depth = x.shape
    w = _window(d, height, width)
    if w is None:
        return False
    if d.chance(0.6):  # both at once, as Vela and tflite-micro prefer it
        w["stride"] = [w["stride"][0]] * 2
        if w["padding"] == _SAME:
            w["out"] = [-(-s // w["stride"][0]) for s in (height, width)]
        else:
            reach = [(k - 1) * g + 1 for k, g in zip(w["kernel"], w["dilation"], strict=True)]
            w["out"] = [(s - r) // w["stride"][0] + 1 for s, r in zip((height, width), reach, strict=True)]
    multiplier = int(d.choice(1, 1, 1, 2, 3)) if depth > 1 else int(d.choice(1, 3, 8))
    return convolve_depthwise(d, x, w, multiplier)


def convolve_depthwise(d: Drawing, x: Value, w: Window, multiplier: int = 1) -> bool:
    """DEPTHWISE_CONV_2D by a window."""
    n, _, _, depth = x.shape
    channels = depth * multiplier
    shape = (n, *w["out"], channels)
    taps = math.prod(w["kernel"])
    if min(w["out"]) < 1 or not d.fits(shape) or math.prod(shape) * taps > _MOST_MACS:
        return False
    weights, scales = _weights(d, x, (1, *w["kernel"], channels), channels, 3)
    bias, y = _bias(d, x, channels, scales), _result(d, x, shape, scales, taps)
    fields = {**_strides(w), **_dilations(w), "FusedActivationFunction": d.fused(), "DepthMultiplier": multiplier}
    reads: list[Value | int] = [x, weights, *_given(bias)]
    return d.operator("DEPTHWISE_CONV_2D", reads, y, "DepthwiseConv2DOptions", 3, **fields)


def transpose_conv(d: Drawing, x: Value) -> bool:
    if len(x.shape) != 4 or x.dtype not in (*RANGE, "float32"):
        return False
    n, height, width, depth = x.shape
    kernel = [int(d.choice(1, 2, 3, 4, 5)) for _ in range(2)]
    stride = [int(d.choice(1, 2, 2, 3))] * 2
    padding = d.number(0, 1)
    sizes = zip((height, width), kernel, stride, strict=True)
    out = [size * s if padding == _SAME else (size - 1) * s + max(k, s) for size, k, s in sizes]
    channels = d.depth()
    shape, taps = (n, *out, channels), math.prod(kernel) * depth
    if not d.fits(shape) or math.prod(shape) * taps > _MOST_MACS:
        return False
    weights, scales = _weights(d, x, (channels, *kernel, depth), channels, 0)
    y = _result(d, x, shape, scales, taps)
    bias = _bias(d, x, channels, scales)
    reads: list[Value | int] = [d.numbers(shape), weights, x, *_given(bias)]
    strides = _strides({"padding": padding, "stride": stride})
    return d.operator("TRANSPOSE_CONV", reads, y, "TransposeConvOptions", 3, **strides)


def dense(d: Drawing, x: Value) -> bool:
    """FULLY_CONNECTED: of the last dimension, or of several that are read as one."""
    if x.dtype not in (*RANGE, "float32") or not 1 <= len(x.shape) <= 4:
        return False
    depth = x.shape[-1]
    keep = len(x.shape) > 1 and d.chance(0.3)
    if not keep and d.chance(0.4):  # rows that are other than the last dimension
        depth = math.prod(x.shape[1:]) if len(x.shape) > 1 and d.chance(0.7) else math.prod(x.shape[-2:])
    return connect(d, x, d.depth(), depth, keep)


def connect(d: Drawing, x: Value, units: int, depth: int, keep: bool, stored: Stored | None = None) -> bool:
    """FULLY_CONNECTED of rows of `depth`; `keep`: the leading dimensions stay; `stored`: as `convolve`."""
    rows = x.elements // depth
    shape = (*x.shape[:-1], units) if keep else (rows, units)
    if not d.fits(shape) or rows * units * depth > _MOST_MACS or depth * units > 1 << 17:
        return False
    weights, scales = _weights(d, x, (units, depth), units, 0)
    if x.dtype == "int8" and np.size(scales) > 1 and d.chance(0.7):  # one scale is the usual
        scales = np.float32(np.median(scales))
        spec = d.b.tensors[weights]
        weights = d.b.constant(spec.data, scales, 0)
    bias, y = _bias(d, x, units, scales), _result(d, x, shape, scales, depth, stored)
    fields = {"FusedActivationFunction": d.fused(), "KeepNumDims": keep}
    return d.operator("FULLY_CONNECTED", [x, weights, bias], y, "FullyConnectedOptions", 5, **fields)


def batch_matmul(d: Drawing, x: Value) -> bool:
    if x.dtype not in ("int8", "int16", "float32") or not 2 <= len(x.shape) <= 4:
        return False
    turned = [d.chance(0.3), d.chance(0.3)]
    rows, depth = x.shape[-2:][::-1] if turned[0] else x.shape[-2:]
    columns = d.extent()
    if not d.fits((*x.shape[:-2], rows, columns)) or math.prod(x.shape[:-2]) * rows * columns * depth > _MOST_MACS:
        return False
    other = d.partner(x, (*x.shape[:-2], *((columns, depth) if turned[1] else (depth, columns))))
    return multiply(d, x, other, turned)


def multiply(d: Drawing, x: Value, other: Value, turned: Sequence[bool]) -> bool:
    """BATCH_MATMUL of two values, each transposed or not."""
    rows, depth = x.shape[-2:][::-1] if turned[0] else x.shape[-2:]
    shape = (*x.shape[:-2], rows, other.shape[-2 if turned[1] else -1])
    if x.quantised:
        scale = _spread(x) * _spread(other) * math.sqrt(depth) / (8000 if x.dtype == "int16" else 40)
        y = d.tensor(shape, x.dtype, d.near(scale, x.dtype, float(x.scale * other.scale)), d.zero(x.dtype))
    else:
        y = d.tensor(shape, x.dtype, bound=x.bound * other.bound * depth)
    return d.operator("BATCH_MATMUL", [x, other], y, "BatchMatMulOptions", 4, AdjX=turned[0], AdjY=turned[1])


def pool(d: Drawing, x: Value) -> bool:
    if len(x.shape) != 4 or x.dtype not in (*RANGE, "float32"):
        return False
    w = _window(d, x.shape[1], x.shape[2], dilated=False)
    if d.chance(0.15) and x.shape[1] * x.shape[2] < 256:  # over the whole map
        w = {"kernel": list(x.shape[1:3]), "stride": [1, 1], "padding": _VALID, "out": [1, 1]}
    if w is None or not d.fits((x.shape[0], *w["out"], x.shape[3])):
        return False
    name = d.choice("AVERAGE_POOL_2D", "MAX_POOL_2D")
    y = d.like(x, (x.shape[0], *w["out"], x.shape[3]))
    fields = {**_strides(w), "FilterHeight": w["kernel"][0], "FilterWidth": w["kernel"][1]}
    return d.operator(name, [x], y, "Pool2DOptions", 2, **fields, FusedActivationFunction=d.fused())


OPERATORS = {conv: 14, depthwise: 9, transpose_conv: 4, dense: 6, batch_matmul: 2, pool: 7}
