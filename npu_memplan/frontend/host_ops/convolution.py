"""CONV_2D and DEPTHWISE_CONV_2D.

Invariant: positions outside the image are skipped, as in the reference, which equals reading
the zero point there.
"""

from __future__ import annotations

from typing import Any

from ...models.tensor import Tensor
from .common import (
    accumulator_type,
    bias_of,
    centred,
    channel_scales,
    clamp_to_activation,
    inside,
    padding_before,
    require_same_batches,
    require_types,
    shape4,
)
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import both, cast, const, floor_div, load


@lowering("CONV_2D")
def conv_2d(work: Lowering) -> None:
    """Weights are [out channels, kernel height, kernel width, in channels of one group]."""
    import tflite

    _convolution(work, work.options(tflite.Conv2DOptions), depthwise=False)


@lowering("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(work: Lowering) -> None:
    """Weights are [1, kernel height, kernel width, out channels]."""
    import tflite

    _convolution(work, work.options(tflite.DepthwiseConv2DOptions), depthwise=True)


def _convolution(work: Lowering, opt: Any, *, depthwise: bool) -> None:
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    require_types(data, weights, output)
    batches, in_h, in_w, in_c = shape4(data)
    _, out_h, out_w, out_c = shape4(output)
    require_same_batches(data, output)
    k_h, k_w, depth = check_channels(weights, in_c, out_c, depthwise=depthwise)
    same = opt.Padding() == 0
    stride_h, stride_w = opt.StrideH(), opt.StrideW()
    dilation_h, dilation_w = opt.DilationHFactor(), opt.DilationWFactor()
    top = padding_before(same, in_h, k_h, stride_h, dilation_h, out_h)
    left = padding_before(same, in_w, k_w, stride_w, dilation_w, out_w)

    bias = bias_of(work, 2, out_c)
    kind = "int64" if depthwise and data.dtype == "int16" else accumulator_type(data, bias)
    wide = kind == "int64"
    scales = channel_scales(data, weights, output, out_c, single=data.dtype == "uint8")
    function = work.function
    source, matrix = work.read(0, "input"), work.read(1, "weights")
    offsets = work.read(2, "bias") if bias is not None else None
    tables = {name: work.table(name, values) for name, values in scales.tables(wide).items()}
    target = work.write()
    total = function.local("sum", kind)
    groups = in_c // depth if not depthwise else 1
    with function.grid((batches, out_h, out_w, out_c), ("n", "y", "x", "c")) as (n, y, x, c):
        total.set(cast(load(offsets, c), kind) if offsets is not None else const(0, kind))
        with function.grid((k_h, k_w), ("ky", "kx")) as (ky, kx):
            row = function.bind(y * stride_h + ky * dilation_h - top, "row")
            column = function.bind(x * stride_w + kx * dilation_w - left, "column")
            last_row = (out_h - 1) * stride_h + (k_h - 1) * dilation_h - top
            last_column = (out_w - 1) * stride_w + (k_w - 1) * dilation_w - left
            valid = both(inside(row, -top, last_row, in_h), inside(column, -left, last_column, in_w))
            with function.when(valid):
                if depthwise:
                    multiplier = out_c // in_c
                    channel = floor_div(c, multiplier)
                    value = load(source, n, row, column, channel) - const(data.zero_point)
                    total.add(cast(value * centred(matrix, weights, 0, ky, kx, c), kind))
                else:
                    with function.loop(depth, "k") as k:
                        channel = k
                        if groups > 1:
                            channel = floor_div(c, out_c // groups) * depth + k
                        value = load(source, n, row, column, channel) - const(data.zero_point)
                        total.add(cast(value * centred(matrix, weights, c, ky, kx, k), kind))
        scaled = scales.apply(function, total.get(), tables, c, wide)
        function.store(target, clamp_to_activation(scaled, opt.FusedActivationFunction(), output), n, y, x, c)


def check_channels(weights: Tensor, in_c: int, out_c: int, *, depthwise: bool) -> tuple[int, int, int]:
    """(height, width, depth) of a kernel that fits so many channels; refuses others."""
    first, k_h, k_w, depth = shape4(weights)
    if depthwise:
        fits = first == 1 and depth == out_c and out_c % in_c == 0
    else:
        fits = first == out_c and in_c % depth == 0 and out_c % (in_c // depth) == 0
    if not fits:
        raise UnsupportedOperatorError(f"weights {list(weights.shape)} do not fit {in_c} -> {out_c} channels")
    return k_h, k_w, depth
