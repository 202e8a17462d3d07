"""AVERAGE_POOL_2D and MAX_POOL_2D.

Invariant: the average is over the positions inside the image, rounded to nearest with halves
away from zero; input and output have the same scale and zero point.
"""

from __future__ import annotations

from ...fixed_point.multiplier import LIMITS
from .common import (
    ACTIVATION_TYPES,
    clamp_to_range,
    inside,
    padding_before,
    require_same_batches,
    require_same_type,
    shape4,
)
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import Expr, both, const, largest, load, select, smallest, truncated_div


@lowering("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool_2d(work: Lowering) -> None:
    """A window of `FilterHeight` x `FilterWidth` moves over each channel."""
    import tflite

    options = work.options(tflite.Pool2DOptions)
    data, output = work.tensor(0), work.output()
    require_same_type((data, output), ACTIVATION_TYPES)
    if abs(data.scale - output.scale) > 1e-6 or data.zero_point != output.zero_point:
        raise UnsupportedOperatorError("its output has another scale or zero point than its input")
    batches, in_h, in_w, depth = shape4(data)
    _, out_h, out_w, out_depth = shape4(output)
    require_same_batches(data, output)
    if out_depth != depth:
        raise UnsupportedOperatorError(f"input {list(data.shape)} and output {list(output.shape)} have other channels")
    k_h, k_w = options.FilterHeight(), options.FilterWidth()
    stride_h, stride_w = options.StrideH(), options.StrideW()
    same = options.Padding() == 0
    top = padding_before(same, in_h, k_h, stride_h, 1, out_h)
    left = padding_before(same, in_w, k_w, stride_w, 1, out_w)
    average = work.operator.name == "AVERAGE_POOL_2D"

    function = work.function
    source, target = work.read(0, "input"), work.write()
    value = function.local("value")
    with function.grid((batches, out_h, out_w, depth), ("n", "y", "x", "c")) as (n, y, x, c):
        value.set(const(0) if average else const(LIMITS[data.dtype][0]))
        with function.grid((k_h, k_w), ("ky", "kx")) as (ky, kx):
            row, column = y * stride_h + ky - top, x * stride_w + kx - left
            last_row, last_column = (out_h - 1) * stride_h + k_h - 1 - top, (out_w - 1) * stride_w + k_w - 1 - left
            with function.when(both(inside(row, -top, last_row, in_h), inside(column, -left, last_column, in_w))):
                element = load(source, n, row, column, c)
                value.set(value.get() + element if average else largest(value.get(), element))
        result = value.get()
        if average:
            count = extent_inside(y, stride_h, top, k_h, in_h) * extent_inside(x, stride_w, left, k_w, in_w)
            count = function.bind(count, "count")
            half = truncated_div(count, const(2))
            result = truncated_div(result + select(result > 0, half, -half), count)
        clamped = clamp_to_range(result, options.FusedActivationFunction(), output)
        function.store(target, clamped, n, y, x, c)


def extent_inside(position: Expr, stride: int, before: int, kernel: int, size: int) -> Expr:
    """Number of window rows (or columns) that lie inside the image."""
    origin = position * stride - before
    return smallest(const(kernel), const(size) - origin) - largest(const(0), const(0) - origin)
