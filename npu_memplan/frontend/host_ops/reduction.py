"""Many elements to one: windows (AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D) and axes (MEAN, SUM, ARG_MAX, CUMSUM, ...).

Invariant: elements are read in the order in which they are in memory. Sums of stored numbers are exact int32; the
division by the number of elements is part of the one multiplier that also rescales. What ADD_N and CUMSUM add is
brought to twice the scale with 20 more bits, and rescaled once. The average is over the positions inside the image,
read row by row; of stored numbers it is rounded to nearest with halves away from zero, and input and output have the
same scale and zero point.
"""

from __future__ import annotations

import math
import operator as of
from collections.abc import Callable
from typing import Any

from tvm import tirx

from ...fixed_point import LIMITS, quantise_multiplier
from ...models.tensor import Tensor
from .common import (
    ACTIVATION_TYPES,
    EIGHT_BITS,
    ImageAxis,
    as_it_is,
    clamp_to_range,
    ends,
    flat_values,
    nhwc_shape,
    one_value,
    require_rows,
    require_same_batches,
    require_same_type,
    stored_value,
)
from .elementwise import NUMBERS, REAL, clamp_activation, common_type, largest_of, least, most
from .operator import Lowering, lowering, require_supported
from .tir import (
    Expr,
    LocalScalar,
    both,
    cast,
    clamp,
    dtype_of,
    int_constant,
    library,
    maximum_of,
    multiply_when_running,
    number,
    raw_load,
    select,
    smallest,
)


def axes_of(work: Lowering) -> list[int]:
    """The axes that an operator reduces, each once, ascending."""
    rank = len(work.tensor(0).shape)
    axes = sorted({a + rank if a < 0 else a for a in flat_values(work, 1)})
    require_supported(all(0 <= a < rank for a in axes), f"it reduces axes {axes} of {rank} dimensions")
    return axes


def _join_indices(rank: int, axes: list[int], kept: list[Expr], reduced: list[Expr]) -> list[Expr]:
    """Indices of an input element, from those of the kept and of the reduced axes."""
    outer, inner = iter(kept), iter(reduced)
    return [next(inner) if axis in axes else next(outer) for axis in range(rank)]


def reduce_axes(
    work: Lowering,
    name: str,
    start: Expr,
    join: Callable[[Expr, Expr], Expr],
    result: Callable[[Expr], Expr] = lambda total: total,
) -> None:
    """output = result(total), where total = join(total, element) for each element over some axes, from `start` on."""
    data, output, axes = work.tensor(0), work.output(), axes_of(work)
    kept = [1 if a in axes else extent for a, extent in enumerate(data.shape)]
    left = [extent for a, extent in enumerate(data.shape) if a not in axes]
    fits = list(output.shape) in (kept, left or [1], left)
    require_supported(fits, f"its input {list(data.shape)} without axes {axes} does not give {list(output.shape)}")
    function, rank = work.function, len(data.shape)
    source, target = work.read(0, "input"), work.write()
    total = function.local(name, dtype_of(start))
    with function.grid([data.shape[a] for a in range(rank) if a not in axes]) as place:
        total.set(start)
        with function.grid([data.shape[a] for a in axes], "rstuvw") as inner:
            total.set(join(total.read(), raw_load(source, _join_indices(rank, axes, place, inner))))
        if len(output.shape) == rank:  # reduced axes are kept with extent 1
            place = _join_indices(rank, axes, place, [int_constant(0)] * len(axes))
        function.store(target, result(total.read()), *place)


@lowering("MEAN", "SUM")
def lower_mean(work: Lowering) -> None:
    """Sum or mean over some axes."""
    data, output = ends(work, ACTIVATION_TYPES)
    count = math.prod(data.shape[a] for a in axes_of(work))
    multiplier, shift = quantise_multiplier(data.scale / output.scale)
    if work.operator.name == "MEAN":
        bits = min(count.bit_length() - 1, 32, 31 + shift)
        require_supported(
            count and bits >= 0, f"a mean of {count} elements with scales {data.scale} and {output.scale}"
        )
        multiplier, shift = (multiplier << bits) // count, shift - bits

    def result(total: Expr) -> Expr:
        centred = total - int_constant(data.zero_point * count)
        value = multiply_when_running(work.function, centred, multiplier, shift) + int_constant(output.zero_point)
        return clamp(value, *LIMITS[output.dtype])

    reduce_axes(work, "sum", int_constant(0), lambda total, element: total + cast(element, "int32"), result)


@lowering("REDUCE_MAX", "REDUCE_MIN")
def reduce_extremum(work: Lowering) -> None:
    """Largest or smallest element over some axes."""
    data, output = ends(work, EIGHT_BITS)
    low, high = LIMITS[data.dtype]
    alike = data.scale == output.scale and data.zero_point == output.zero_point
    require_supported(alike, "its output has another scale or zero point than its input")
    start, choose = (low, maximum_of) if work.operator.name == "REDUCE_MAX" else (high, smallest)
    reduce_axes(work, "best", int_constant(start), lambda best, element: choose(best, cast(element, "int32")))


@lowering("ARG_MAX", "ARG_MIN", both=True)
def arg_extremum(work: Lowering) -> None:
    """Index of the first largest or smallest element along an axis."""
    data, output, is_max = work.tensor(0), work.output(), work.operator.name == "ARG_MAX"
    dtype = require_same_type((data,), NUMBERS if work.plain else EIGHT_BITS, scaled=False)
    require_supported(
        output.dtype in ("int32", "int64"), f"output {output.name!r} is {output.dtype}, not int32 or int64"
    )
    dtype, take = (dtype, as_it_is) if work.plain else ("int32", stored_value)
    axis, function = one_value(work, 1) % max(len(data.shape), 1), work.function
    source, target = work.read(0, "input"), work.write()
    if not work.plain:
        work.describe("arg_max", axis=axis, smallest=int(not is_max))
    best, where = function.local("best", dtype), function.local("where")
    left = [extent for a, extent in enumerate(data.shape) if a != axis]
    require_supported(
        data.shape and data.shape[axis], f"its input {list(data.shape)} has no elements along axis {axis}"
    )
    require_supported(list(output.shape) in (left, left or [1]), f"its output is {list(output.shape)}, not {left}")
    with function.grid(left) as place:
        best.set(take(source, data, *place[:axis], int_constant(0), *place[axis:]))
        where.set(int_constant(0))
        with function.loop(data.shape[axis], "k") as k:
            value = function.bind(take(source, data, *place[:axis], k, *place[axis:]), "value", dtype)
            better = value > best.read() if is_max else value < best.read()
            if work.plain:
                with function.when(better):
                    where.set(k)
                    best.set(value)
            else:
                where.set(select(better, k, where.read()))
                best.set(maximum_of(best.read(), value) if is_max else smallest(best.read(), value))
        function.store(target, where.read(), *place)
    if not work.plain and axis == len(data.shape) - 1:
        flip = (0x80 if data.dtype == "int8" else 0) ^ (0 if is_max else 0xFF)
        rows, is_wide = math.prod(left), int(output.dtype == "int64")
        work.kernel("kernel_forms kernel_arg_extremum", source, target, rows, data.shape[axis], flip, is_wide)


_LEFT_SHIFT = 20


class _Sum:
    """How elements of one type (and, if stored, of one scale and zero point) are added."""

    def __init__(self, work: Lowering, data: Tensor, output: Tensor) -> None:
        self.work, self.data, self.output = work, data, output
        self.kind = data.dtype if work.plain else "int32"
        if not work.plain:
            factor = 2 * data.scale / ((1 << _LEFT_SHIFT) * output.scale)
            require_supported(factor < 1.0, f"output scale {output.scale} is too small for input scale {data.scale}")
            self.inwards, self.outwards = quantise_multiplier(0.5), quantise_multiplier(factor)

    def term(self, element: Expr) -> Expr:
        """An element as a term."""
        if self.work.plain:
            return element
        raised = (cast(element, "int32") - int_constant(self.data.zero_point)) * int_constant(1 << _LEFT_SHIFT)
        return multiply_when_running(self.work.function, raised, *self.inwards)

    def begin(self, total: LocalScalar) -> None:
        """Nothing is added yet; what the reference calls zero is the term of a stored 0."""
        total.set(number(0, self.kind) if self.work.plain else self.term(int_constant(0)))

    def add(self, total: LocalScalar, term: Expr) -> None:
        """One term more."""
        total.add(term)

    def result(self, total: LocalScalar) -> Expr:
        """An element of the output."""
        if self.work.plain:
            return total.read()
        scaled = multiply_when_running(self.work.function, total.read(), *self.outwards)
        return clamp(scaled + int_constant(self.output.zero_point), *LIMITS[self.output.dtype])


@lowering("ADD_N", both=True)
def add_many(work: Lowering) -> None:
    """The sum of all inputs from the first to the last, which have one shape (and scale and zero point)."""
    output, parts = work.output(), work.tensors()
    require_same_type((output, *parts), NUMBERS if work.plain else ("int8",), scaled=not work.plain)
    if work.plain:
        alike = all(part.shape == output.shape for part in parts)
        require_supported(alike, "its inputs have other shapes than its output")
    else:
        wanted = parts[0].scale, parts[0].zero_point, output.shape
        alike = all((p.scale, p.zero_point, p.shape) == wanted for p in parts)
        require_supported(alike, "its inputs have several shapes, scales or zero points")
    arithmetic = _Sum(work, parts[0], output)
    sources, total = work.read_all(), work.function.local("sum", arithmetic.kind)

    def result(place: list[Expr]) -> Expr:
        arithmetic.begin(total)
        for source in sources:
            arithmetic.add(total, arithmetic.term(raw_load(source, place)))
        return arithmetic.result(total)

    work.fill(result)


@lowering("CUMSUM", both=True)
def running_sum(work: Lowering) -> None:
    """The sum of all elements before along an axis, the element itself included unless it is exclusive."""
    data, output = ends(work, NUMBERS if work.plain else ("int8",), scaled=not work.plain)
    require_rows(data, output)
    arithmetic, options = _Sum(work, data, output), work.options("CumsumOptions")
    axis, function = one_value(work, 1) % max(len(data.shape), 1), work.function
    source, target = work.read(0, "input"), work.write()
    total = function.local("total", arithmetic.kind)
    with function.grid([e for a, e in enumerate(data.shape) if a != axis]) as place:
        arithmetic.begin(total)
        with function.loop(data.shape[axis], "k") as k:
            at = int_constant(data.shape[axis] - 1) - k if options.Reverse() else k
            here = [*place[:axis], at, *place[axis:]]
            term = arithmetic.term(raw_load(source, here))
            term = function.bind(term, "value" if work.plain else "term", arithmetic.kind)
            if options.Exclusive():
                function.store(target, arithmetic.result(total), *here)
            arithmetic.add(total, term)
            if not options.Exclusive():
                function.store(target, arithmetic.result(total), *here)


# operator on plain numbers -> types that it takes, what it starts with (of such a type), how an element is joined
_OF_NUMBERS: dict[str, tuple[tuple[str, ...], Callable[[str], float], Callable[[Any, Any], Any]]] = {
    "SUM": (NUMBERS, lambda _: 0, of.add),
    "MEAN": (REAL, lambda _: 0, of.add),  # divided by the number of elements then
    "REDUCE_PROD": (NUMBERS, lambda _: 1, of.mul),
    "REDUCE_MAX": (NUMBERS, least, lambda best, x: select(x > best, x, best)),
    "REDUCE_MIN": (NUMBERS, most, lambda best, x: select(x < best, x, best)),
    "REDUCE_ANY": (("bool",), lambda _: False, tirx.Or),
    "REDUCE_ALL": (("bool",), lambda _: True, tirx.And),
}


@lowering(*_OF_NUMBERS, plain=True)
def reduce_numbers(work: Lowering) -> None:
    """Sum, mean, product, largest or smallest element over some axes; whether any, or every one, is true."""
    allowed, start, combine = _OF_NUMBERS[work.operator.name]
    dtype = common_type((work.tensor(0), work.output()), allowed)

    def join(total: Expr, element: Expr) -> Expr:
        return combine(total, work.function.bind(element, "element", dtype))

    def result(total: Expr) -> Expr:
        if work.operator.name != "MEAN":
            return total
        count = math.prod(work.tensor(0).shape[a] for a in axes_of(work))
        require_supported(count > 0, "it takes the mean of no elements")
        return total / number(count, dtype)

    reduce_axes(work, "total", number(start(dtype), dtype), join, result)


@lowering("AVERAGE_POOL_2D", "MAX_POOL_2D", both=True)
@lowering("L2_POOL_2D", plain=True)
def pool_2d(work: Lowering) -> None:
    """A window of `FilterHeight` x `FilterWidth` moves over each channel."""
    options, function, kind, plain = work.options("Pool2DOptions"), work.function, work.operator.name, work.plain
    data, output = ends(work, REAL if plain else ACTIVATION_TYPES, scaled=not plain)
    alike = plain or (abs(data.scale - output.scale) <= 1e-6 and data.zero_point == output.zero_point)
    require_supported(alike, "its output has another scale or zero point than its input")
    _, in_h, in_w, depth = nhwc_shape(data)
    _, out_h, out_w, out_depth = nhwc_shape(output)
    require_same_batches(data, output)
    message = f"input {list(data.shape)} and output {list(output.shape)} have other channels"
    require_supported(out_depth == depth, message)
    same = options.Padding() == 0
    down = ImageAxis.with_padding(same, in_h, out_h, options.FilterHeight(), options.StrideH())
    across = ImageAxis.with_padding(same, in_w, out_w, options.FilterWidth(), options.StrideW())

    def join(total: Expr, element: Expr) -> Expr:
        element = function.bind(element, "element", "float32") if plain else cast(element, "int32")
        if kind == "MAX_POOL_2D":
            return largest_of(function, total, element, "float32") if plain else maximum_of(total, element)
        return total + (element * element if kind == "L2_POOL_2D" else element)

    def mean_of(total: Expr, places: Expr) -> Expr:
        places = function.bind(places, "count")
        if plain:
            return total / cast(places, "float32")
        half = tirx.truncdiv(places, int_constant(2))
        return tirx.truncdiv(total + select(total > 0, half, -half), places)

    source, target = work.read(0, "input"), work.write()
    value = function.local("value", "float32" if plain else "int32")
    least_of_all = least("float32") if plain else LIMITS[data.dtype][0]
    with function.grid(output.shape, "nyxc") as (n, y, x, c):
        value.set(number(least_of_all if kind == "MAX_POOL_2D" else 0, "float32" if plain else "int32"))
        with function.grid((down.kernel, across.kernel), ("ky", "kx")) as (ky, kx):
            row, column = down.image_place(y, ky), across.image_place(x, kx)
            with function.when(both(down.is_inside(row), across.is_inside(column))):
                value.set(join(value.read(), raw_load(source, [n, row, column, c])))
        total = value.read()
        if kind != "MAX_POOL_2D":
            total = mean_of(total, _extent_inside(y, down) * _extent_inside(x, across))
        total = library("sqrtf", total) if kind == "L2_POOL_2D" else total
        activation = options.FusedActivationFunction()
        limited = (
            clamp_activation(function, total, activation, "float32")
            if plain
            else clamp_to_range(total, activation, output)
        )
        function.store(target, limited, n, y, x, c)


def _extent_inside(window: Expr, axis: ImageAxis) -> Expr:
    """Number of window rows (or columns) that are inside the image."""
    origin = window * axis.stride - axis.before
    return smallest(int_constant(axis.kernel), int_constant(axis.size) - origin) - maximum_of(
        int_constant(0), int_constant(0) - origin
    )
