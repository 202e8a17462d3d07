"""AVERAGE_POOL_2D, MAX_POOL_2D and, of float32, L2_POOL_2D.

Invariant: the average is over the positions inside the image, read row by row; of stored numbers it is rounded to
nearest with halves away from zero, and input and output have the same scale and zero point.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from ...fixed_point.multiplier import LIMITS
from .common import (
    ACTIVATION_TYPES,
    ImageAxis,
    clamp_to_range,
    ends,
    require_same_batches,
    shape4,
)
from .operator import Lowering, lowering, require
from .plain.numbers import REAL, activated, largest_of, least, same
from .tir import Expr, both, cast, const, dtype_of, largest, library, raw_load, real, select, smallest


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
            half = tirx.truncdiv(places, const(2))
            total = tirx.truncdiv(total + select(total > 0, half, -half), places)
        return clamp_to_range(total, activation, output)

    pool(work, const(0 if average else LIMITS[data.dtype][0]), join, result)


def pool(
    work: Lowering, start: Expr, join: Callable[[Expr, Expr], Expr], result: Callable[[Expr, Callable[[], Expr]], Expr]
) -> None:
    """output = result(total, number of places), where total = join(total, element) for each place inside the image."""
    options, data, output = work.options("Pool2DOptions"), work.tensor(0), work.output()
    _, in_h, in_w, depth = shape4(data)
    _, out_h, out_w, out_depth = shape4(output)
    require_same_batches(data, output)
    message = f"input {list(data.shape)} and output {list(output.shape)} have other channels"
    require(out_depth == depth, message)
    same = options.Padding() == 0
    down = ImageAxis.padded(same, in_h, out_h, options.FilterHeight(), options.StrideH())
    across = ImageAxis.padded(same, in_w, out_w, options.FilterWidth(), options.StrideW())

    function = work.function
    source, target = work.read(0, "input"), work.write()
    value = function.local("value", dtype_of(start))
    with function.grid(output.shape, "nyxc") as (n, y, x, c):
        value.set(start)
        with function.grid((down.kernel, across.kernel), ("ky", "kx")) as (ky, kx):
            row, column = down.under(y, ky), across.under(x, kx)
            with function.when(both(down.inside(row), across.inside(column))):
                value.set(join(value.get(), raw_load(source, [n, row, column, c])))

        def count() -> Expr:
            return function.bind(_extent_inside(y, down) * _extent_inside(x, across), "count")

        function.store(target, result(value.get(), count), n, y, x, c)


def _extent_inside(window: Expr, axis: ImageAxis) -> Expr:
    """Number of window rows (or columns) that lie inside the image."""
    origin = window * axis.stride - axis.before
    return smallest(const(axis.kernel), const(axis.size) - origin) - largest(const(0), const(0) - origin)


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
