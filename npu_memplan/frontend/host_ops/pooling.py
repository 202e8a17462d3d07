"""AVERAGE_POOL_2D, MAX_POOL_2D and, of float32, L2_POOL_2D.

Invariant: the average is over the positions inside the image, read row by row; of stored numbers it is rounded to
nearest with halves away from zero, and input and output have the same scale and zero point.
"""

from __future__ import annotations

from collections.abc import Callable

from ...fixed_point.multiplier import LIMITS
from .common import (
    ACTIVATION_TYPES,
    clamp_to_range,
    ends,
    inside,
    padding_before,
    require_same_batches,
    shape4,
)
from .operator import Lowering, lowering, require
from .plain.numbers import REAL, activated, largest_of, least, same
from .tir import Expr, both, cast, const, dtype_of, largest, library, raw_load, real, select, smallest, truncated_div


@lowering("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool_2d(work: Lowering) -> None:
    """A window of `FilterHeight` x `FilterWidth` moves over each channel."""
    activation = work.options("Pool2DOptions").FusedActivationFunction()
    data, output = ends(work, ACTIVATION_TYPES)
    alike = abs(data.scale - output.scale) <= 1e-6 and data.zero_point == output.zero_point
    require(alike, "its output has another scale or zero point than its input")
    average = work.operator.name == "AVERAGE_POOL_2D"

    def join(total: Expr, element: Expr) -> Expr:
        element = cast(element, "int32")
        return total + element if average else largest(total, element)

    def result(total: Expr, count: Callable[[], Expr]) -> Expr:
        if average:
            places = count()
            half = truncated_div(places, const(2))
            total = truncated_div(total + select(total > 0, half, -half), places)
        return clamp_to_range(total, activation, output)

    pool(work, const(0 if average else LIMITS[data.dtype][0]), join, result)


def pool(
    work: Lowering, start: Expr, join: Callable[[Expr, Expr], Expr], result: Callable[[Expr, Callable[[], Expr]], Expr]
) -> None:
    """output = result(total, number of places), where total = join(total, element) for each place inside the image."""
    options, data, output = work.options("Pool2DOptions"), work.tensor(0), work.output()
    batches, in_h, in_w, depth = shape4(data)
    _, out_h, out_w, out_depth = shape4(output)
    require_same_batches(data, output)
    message = f"input {list(data.shape)} and output {list(output.shape)} have other channels"
    require(out_depth == depth, message)
    k_h, k_w = options.FilterHeight(), options.FilterWidth()
    stride_h, stride_w = options.StrideH(), options.StrideW()
    same = options.Padding() == 0
    top = padding_before(same, in_h, k_h, stride_h, 1, out_h)
    left = padding_before(same, in_w, k_w, stride_w, 1, out_w)
    last_row, last_column = (out_h - 1) * stride_h + k_h - 1 - top, (out_w - 1) * stride_w + k_w - 1 - left

    function = work.function
    source, target = work.read(0, "input"), work.write()
    value = function.local("value", dtype_of(start))
    with function.grid((batches, out_h, out_w, depth), "nyxc") as (n, y, x, c):
        value.set(start)
        with function.grid((k_h, k_w), ("ky", "kx")) as (ky, kx):
            row, column = y * stride_h + ky - top, x * stride_w + kx - left
            with function.when(both(inside(row, -top, last_row, in_h), inside(column, -left, last_column, in_w))):
                value.set(join(value.get(), raw_load(source, [n, row, column, c])))
        rows, columns = _extent_inside(y, stride_h, top, k_h, in_h), _extent_inside(x, stride_w, left, k_w, in_w)

        def count(places: Expr = rows * columns) -> Expr:
            return function.bind(places, "count")

        function.store(target, result(value.get(), count), n, y, x, c)


def _extent_inside(position: Expr, stride: int, before: int, kernel: int, size: int) -> Expr:
    """Number of window rows (or columns) that lie inside the image."""
    origin = position * stride - before
    return smallest(const(kernel), const(size) - origin) - largest(const(0), const(0) - origin)


@lowering("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", plain=True)
def pool_2d_of_floats(work: Lowering) -> None:
    """A window of `FilterHeight` x `FilterWidth` moves over each channel."""
    activation = work.options("Pool2DOptions").FusedActivationFunction()
    same((work.tensor(0), work.output()), REAL)
    function, kind = work.function, work.operator.name

    def join(total: Expr, element: Expr) -> Expr:
        element = function.bind(element, "element", "float32")
        if kind == "MAX_POOL_2D":
            return largest_of(function, total, element, "float32")
        return total + (element if kind == "AVERAGE_POOL_2D" else element * element)

    def result(total: Expr, count: Callable[[], Expr]) -> Expr:
        if kind != "MAX_POOL_2D":
            total = total / cast(count(), "float32")
        if kind == "L2_POOL_2D":
            total = library("sqrtf", total)
        return activated(function, total, activation, "float32")

    pool(work, real(least("float32") if kind == "MAX_POOL_2D" else 0), join, result)
