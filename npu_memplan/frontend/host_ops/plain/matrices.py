"""CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED and BATCH_MATMUL of float32.

Invariant: products are summed one after the other in the reference's order; the bias is added to the finished sum.
"""

from __future__ import annotations

from typing import Any

from ....models.tensor import Tensor
from ..batch_matmul import element_of, matrices
from ..common import bias_of
from ..geometry import ConvolutionGeometry, matrix_of, transposed_activation
from ..operator import Lowering, UnsupportedOperatorError, lowering
from ..tir import Buffer, Expr, both, const, raw_load, real, row_indices
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
    g = ConvolutionGeometry.of(data, weights, output, opt, depthwise=depthwise)
    bias = bias_of(work, 2, g.out_c)
    function = work.function
    source, matrix = work.read(0, "input"), work.read(1, "weights")
    offsets = work.read(2, "bias") if bias is not None else None
    target = work.write()
    total = function.local("sum", "float32")
    with function.grid(g.outputs, ("n", "y", "x", "c")) as (n, y, x, c):
        total.set(real(0))
        with function.grid((g.k_h, g.k_w), ("ky", "kx")) as (ky, kx):
            row, column, valid = g.source(function, y, x, ky, kx)
            with function.when(valid):
                if depthwise:
                    value = raw_load(source, [n, row, column, g.channel(c, c)])
                    total.add(value * raw_load(matrix, [const(0), ky, kx, c]))
                else:
                    with function.loop(g.depth, "k") as k:
                        value = raw_load(source, [n, row, column, g.channel(c, k)])
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
    g = ConvolutionGeometry.transposed(data, weights, output, options)
    bias = bias_of(work, 3, g.out_c)
    function = work.function
    matrix, source = work.read(1, "weights"), work.read(2, "input")
    offsets = work.read(3, "bias") if bias is not None else None
    target = work.write()
    total = function.local("sum", "float32")
    rows, columns = (
        min(-(-g.k_h // g.stride_h), g.in_h),
        min(-(-g.k_w // g.stride_w), g.in_w),
    )  # that can reach one element
    with function.grid(g.outputs, "nyxc") as (n, y, x, c):
        total.set(real(0))
        first_row = _first_to_reach(work, y + g.top, g.k_h, g.stride_h)
        first_column = _first_to_reach(work, x + g.left, g.k_w, g.stride_w)
        with function.grid((rows + 1, columns + 1), ("r", "s")) as (r, s):
            row, column = function.bind(first_row + r, "row"), function.bind(first_column + s, "column")
            ky = function.bind(y + g.top - row * g.stride_h, "ky")
            kx = function.bind(x + g.left - column * g.stride_w, "kx")
            hit = both(row < g.in_h, column < g.in_w, ky >= 0, ky < g.k_h, kx >= 0, kx < g.k_w)
            with function.when(hit), function.loop(g.in_c, "k") as k:
                total.add(raw_load(source, [n, row, column, k]) * raw_load(matrix, [c, ky, kx, k]))
        function.store(target, _with_bias(work, total.get(), offsets, c, transposed_activation(options)), n, y, x, c)


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
    rows, units, depth = matrix_of(data, weights, output, options)
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
