"""AVERAGE_POOL_2D, MAX_POOL_2D and, of float32, L2_POOL_2D.

Invariant: the average is over the positions inside the image, read row by row; of stored numbers it is rounded to
nearest with halves away from zero, and input and output have the same scale and zero point.
"""

from __future__ import annotations

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
from .plain.numbers import REAL, activated, largest_of, least
from .tir import Expr, both, cast, const, largest, library, number, raw_load, select, smallest


@lowering("AVERAGE_POOL_2D", "MAX_POOL_2D", both=True)
@lowering("L2_POOL_2D", plain=True)
def pool_2d(work: Lowering) -> None:
    """A window of `FilterHeight` x `FilterWidth` moves over each channel."""
    options, function, kind, plain = work.options("Pool2DOptions"), work.function, work.operator.name, work.plain
    data, output = ends(work, REAL if plain else ACTIVATION_TYPES, scaled=not plain)
    alike = plain or (abs(data.scale - output.scale) <= 1e-6 and data.zero_point == output.zero_point)
    require(alike, "its output has another scale or zero point than its input")
    _, in_h, in_w, depth = shape4(data)
    _, out_h, out_w, out_depth = shape4(output)
    require_same_batches(data, output)
    message = f"input {list(data.shape)} and output {list(output.shape)} have other channels"
    require(out_depth == depth, message)
    same = options.Padding() == 0
    down = ImageAxis.padded(same, in_h, out_h, options.FilterHeight(), options.StrideH())
    across = ImageAxis.padded(same, in_w, out_w, options.FilterWidth(), options.StrideW())

    def join(total: Expr, element: Expr) -> Expr:
        element = function.bind(element, "element", "float32") if plain else cast(element, "int32")
        if kind == "MAX_POOL_2D":
            return largest_of(function, total, element, "float32") if plain else largest(total, element)
        return total + (element * element if kind == "L2_POOL_2D" else element)

    def mean(total: Expr, places: Expr) -> Expr:
        places = function.bind(places, "count")
        if plain:
            return total / cast(places, "float32")
        half = tirx.truncdiv(places, const(2))
        return tirx.truncdiv(total + select(total > 0, half, -half), places)

    source, target = work.read(0, "input"), work.write()
    value = function.local("value", "float32" if plain else "int32")
    least_of_all = least("float32") if plain else LIMITS[data.dtype][0]
    with function.grid(output.shape, "nyxc") as (n, y, x, c):
        value.set(number(least_of_all if kind == "MAX_POOL_2D" else 0, "float32" if plain else "int32"))
        with function.grid((down.kernel, across.kernel), ("ky", "kx")) as (ky, kx):
            row, column = down.under(y, ky), across.under(x, kx)
            with function.when(both(down.inside(row), across.inside(column))):
                value.set(join(value.get(), raw_load(source, [n, row, column, c])))
        total = value.get()
        if kind != "MAX_POOL_2D":
            total = mean(total, _extent_inside(y, down) * _extent_inside(x, across))
        total = library("sqrtf", total) if kind == "L2_POOL_2D" else total
        activation = options.FusedActivationFunction()
        limited = (
            activated(function, total, activation, "float32") if plain else clamp_to_range(total, activation, output)
        )
        function.store(target, limited, n, y, x, c)


def _extent_inside(window: Expr, axis: ImageAxis) -> Expr:
    """Number of window rows (or columns) that are inside the image."""
    origin = window * axis.stride - axis.before
    return smallest(const(axis.kernel), const(axis.size) - origin) - largest(const(0), const(0) - origin)
