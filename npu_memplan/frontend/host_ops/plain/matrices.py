"""CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED and BATCH_MATMUL of float32.

Invariant: products are summed one after the other in the reference's order; the bias is added to the finished sum.
"""

from __future__ import annotations

import math
from typing import Any

from ....models.tensor import Tensor
from ..batch_matmul import element_of, matrices
from ..common import bias_of, inside, padding_before, require_same_batches, shape4
from ..convolution import check_channels
from ..operator import Lowering, UnsupportedOperatorError, lowering
from ..tir import Buffer, Expr, both, const, floor_div, raw_load, real, row_indices
from .numbers import REAL, activated, same


def _tensors(work: Lowering, data: int, weights: int, bias: int) -> tuple[Tensor, Tensor, Tensor]:
    """(input, weights, output), all float32."""
    found = work.tensor(data), work.tensor(weights), work.output()
    extra = work.optional(bias)
    same((*found, *((extra,) if extra is not None else ())), REAL)
    return found


def _with_bias(work: Lowering, total: Expr, offsets: Buffer | None, channel: Expr, activation: int) -> Expr:
    value = total if offsets is None else total + raw_load(offsets, [channel])
    return activated(work.function, value, activation, "float32")


@lowering("CONV_2D", plain=True)
def conv_2d(work: Lowering) -> None:
    """Weights are [out channels, kernel height, kernel width, in channels of one group]."""
    import tflite

    _convolution(work, work.options(tflite.Conv2DOptions), depthwise=False)


@lowering("DEPTHWISE_CONV_2D", plain=True)
def depthwise_conv_2d(work: Lowering) -> None:
    """Weights are [1, kernel height, kernel width, out channels]."""
    import tflite

    _convolution(work, work.options(tflite.DepthwiseConv2DOptions), depthwise=True)


def _convolution(work: Lowering, opt: Any, *, depthwise: bool) -> None:
    data, weights, output = _tensors(work, 0, 1, 2)
    batches, in_h, in_w, in_c = shape4(data)
    _, out_h, out_w, out_c = shape4(output)
    require_same_batches(data, output)
    k_h, k_w, depth = check_channels(weights, in_c, out_c, depthwise=depthwise)
    same_size = opt.Padding() == 0
    stride_h, stride_w, dilation_h, dilation_w = (
        opt.StrideH(), opt.StrideW(), opt.DilationHFactor(), opt.DilationWFactor()
    )  # fmt: skip
    top = padding_before(same_size, in_h, k_h, stride_h, dilation_h, out_h)
    left = padding_before(same_size, in_w, k_w, stride_w, dilation_w, out_w)
    bias = bias_of(work, 2, out_c)
    function = work.function
    source, matrix = work.read(0, "input"), work.read(1, "weights")
    offsets = work.read(2, "bias") if bias is not None else None
    target = work.write()
    total = function.local("sum", "float32")
    a_group = out_c // (in_c // depth) if not depthwise else out_c // in_c  # output channels of one group
    with function.grid((batches, out_h, out_w, out_c), ("n", "y", "x", "c")) as (n, y, x, c):
        total.set(real(0))
        with function.grid((k_h, k_w), ("ky", "kx")) as (ky, kx):
            row = function.bind(y * stride_h + ky * dilation_h - top, "row")
            column = function.bind(x * stride_w + kx * dilation_w - left, "column")
            last_row = (out_h - 1) * stride_h + (k_h - 1) * dilation_h - top
            last_column = (out_w - 1) * stride_w + (k_w - 1) * dilation_w - left
            with function.when(both(inside(row, -top, last_row, in_h), inside(column, -left, last_column, in_w))):
                if depthwise:
                    value = raw_load(source, [n, row, column, floor_div(c, a_group)])
                    total.add(value * raw_load(matrix, [const(0), ky, kx, c]))
                else:
                    with function.loop(depth, "k") as k:
                        channel = k if depth == in_c else floor_div(c, a_group) * depth + k
                        value = raw_load(source, [n, row, column, channel])
                        total.add(value * raw_load(matrix, [c, ky, kx, k]))
        result = _with_bias(work, total.get(), offsets, c, opt.FusedActivationFunction())
        function.store(target, result, n, y, x, c)


@lowering("TRANSPOSE_CONV", plain=True)
def transpose_conv(work: Lowering) -> None:
    """Inputs are the output's shape, weights [out channels, kernel h, kernel w, in channels], data, bias.

    The reference scatters from the first input place to the last: an output element sums what reaches it in that order.
    """
    import tflite

    options = work.options(tflite.TransposeConvOptions)
    data, weights, output = _tensors(work, 2, 1, 3)
    batches, in_h, in_w, in_c = shape4(data)
    _, out_h, out_w, out_c = shape4(output)
    require_same_batches(data, output)
    filters, k_h, k_w, depth = shape4(weights)
    if filters != out_c or depth != in_c:
        raise UnsupportedOperatorError(f"weights {list(weights.shape)} do not fit {in_c} -> {out_c} channels")
    stride_h, stride_w = options.StrideH(), options.StrideW()
    same_size = options.Padding() == 0
    top = max((in_h - 1) * stride_h + k_h - out_h, 0) // 2 if same_size else 0
    left = max((in_w - 1) * stride_w + k_w - out_w, 0) // 2 if same_size else 0
    bias = bias_of(work, 3, out_c)
    activation = options.FusedActivationFunction() if hasattr(options, "FusedActivationFunction") else 0
    function = work.function
    matrix, source = work.read(1, "weights"), work.read(2, "input")
    offsets = work.read(3, "bias") if bias is not None else None
    target = work.write()
    total = function.local("sum", "float32")
    rows, columns = min(-(-k_h // stride_h), in_h), min(-(-k_w // stride_w), in_w)  # that can reach one element
    with function.grid((batches, out_h, out_w, out_c), "nyxc") as (n, y, x, c):
        total.set(real(0))
        first_row = _first_to_reach(work, y + top, k_h, stride_h)
        first_column = _first_to_reach(work, x + left, k_w, stride_w)
        with function.grid((rows + 1, columns + 1), ("r", "s")) as (r, s):
            row, column = function.bind(first_row + r, "row"), function.bind(first_column + s, "column")
            ky = function.bind(y + top - row * stride_h, "ky")
            kx = function.bind(x + left - column * stride_w, "kx")
            hit = both(row < in_h, column < in_w, ky >= 0, ky < k_h, kx >= 0, kx < k_w)
            with function.when(hit), function.loop(in_c, "k") as k:
                total.add(raw_load(source, [n, row, column, k]) * raw_load(matrix, [c, ky, kx, k]))
        function.store(target, _with_bias(work, total.get(), offsets, c, activation), n, y, x, c)


def _first_to_reach(work: Lowering, place: Expr, kernel: int, stride: int) -> Expr:
    """The first input row (or column) whose window covers `place` of the padded output; 0 at least."""
    from ..tir import largest, truncated_div

    return work.function.bind(truncated_div(largest(place - const(kernel - stride), 0), const(stride)), "first")


@lowering("FULLY_CONNECTED", plain=True)
def fully_connected(work: Lowering) -> None:
    """Output row = weights x input row + bias; weights are [units, depth]."""
    import tflite

    options = work.options(tflite.FullyConnectedOptions)
    data, weights, output = _tensors(work, 0, 1, 2)
    if options.WeightsFormat() != 0:
        raise UnsupportedOperatorError("its weights are shuffled")
    units, depth = weights.shape[-2], weights.shape[-1]
    rows = math.prod(output.shape) // units
    if rows * units != math.prod(output.shape) or rows * depth != math.prod(data.shape):
        raise UnsupportedOperatorError(
            f"weights {list(weights.shape)} do not fit input {list(data.shape)} and output {list(output.shape)}"
        )
    bias = bias_of(work, 2, units)
    function = work.function
    source, matrix = work.read(0, "input"), work.read(1, "weights")
    offsets = work.read(2, "bias") if bias is not None else None
    target = work.write()
    total = function.local("sum", "float32")
    with function.grid((rows, units), ("row", "unit")) as (row, unit):
        total.set(real(0))
        with function.loop(depth, "k") as k:
            value = raw_load(source, row_indices(row, k, _as_rows(data.shape, depth, rows)))
            total.add(value * raw_load(matrix, row_indices(unit, k, weights.shape)))
        result = _with_bias(work, total.get(), offsets, unit, options.FusedActivationFunction())
        function.store(target, result, *row_indices(row, unit, output.shape))


def _as_rows(shape: tuple[int, ...], depth: int, rows: int) -> tuple[int, ...]:
    """The input's shape, whose last axis has to be a row where there are several."""
    if rows > 1 and shape[-1] != depth:
        raise UnsupportedOperatorError(f"input {list(shape)} is not rows of {depth}")
    return shape


@lowering("BATCH_MATMUL", plain=True)
def batch_matmul(work: Lowering) -> None:
    """Input 0 x input 1, either of them transposed."""
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    same((a, b, output), REAL)
    depth, turned_a, turned_b = matrices(work)
    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    total = function.local("sum", "float32")
    with function.grid(output.shape) as place:
        *_, row, column = place
        total.set(real(0))
        with function.loop(depth, "k") as k:
            x = raw_load(first, element_of(place, a, output, (k, row) if turned_a else (row, k)))
            y = raw_load(second, element_of(place, b, output, (column, k) if turned_b else (k, column)))
            total.add(x * y)
        function.store(target, total.get(), *place)
