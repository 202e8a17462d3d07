"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL, ARG_MAX, ARG_MIN and CUMSUM of plain numbers.

Invariant: elements are met in the order in which they lie in memory.
"""

from __future__ import annotations

import math
import operator as of
from collections.abc import Callable
from typing import Any

from tvm import tirx

from ..common import flat_values
from ..operator import Lowering, UnsupportedOperatorError, lowering
from ..reduction import axes_of, joined, output_place
from ..tir import Expr, const, raw_load, select
from .numbers import NUMBERS, REAL, WHOLE, least, number, same, wrapped

Combine = Callable[[Any, Any], Any]


def _reduce(work: Lowering, start: float, combine: Combine, allowed: tuple[str, ...], mean: bool = False) -> None:
    """output = combine(..., element), from `start` on, over some axes; divided by their number for a mean."""
    data, output = work.tensor(0), work.output()
    dtype = same((data, output), allowed)
    rank = len(data.shape)
    axes = axes_of(work, rank)
    count = math.prod(data.shape[a] for a in axes)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    total = function.local("total", dtype)
    with function.grid([data.shape[a] for a in range(rank) if a not in axes]) as place:
        total.set(number(start, dtype))
        with function.grid([data.shape[a] for a in axes], "rstuvw") as inner:
            element = raw_load(source, joined(rank, axes, place, inner))
            element = function.bind(element, "element", dtype)
            total.set(
                wrapped(combine, total.get(), element, dtype) if dtype != "bool" else combine(total.get(), element)
            )
        result = total.get()
        if mean:
            result = (
                result / number(count, dtype) if dtype == "float32" else tirx.truncdiv(result, number(count, dtype))
            )
        function.store(target, result, *output_place(output.shape, rank, axes, place))


@lowering("SUM", "REDUCE_PROD", plain=True)
def total(work: Lowering) -> None:
    """Sum or product over some axes."""
    is_sum = work.operator.name == "SUM"
    _reduce(work, 0 if is_sum else 1, of.add if is_sum else of.mul, NUMBERS)


@lowering("MEAN", plain=True)
def mean(work: Lowering) -> None:
    """Sum over some axes, divided by the number of its elements."""
    _reduce(work, 0, of.add, REAL, mean=True)


@lowering("REDUCE_MAX", "REDUCE_MIN", plain=True)
def extremum(work: Lowering) -> None:
    """Largest or smallest element over some axes."""
    dtype = same((work.tensor(0), work.output()), NUMBERS)
    is_max = work.operator.name == "REDUCE_MAX"
    start = least(dtype)
    if not is_max:
        start = -start if dtype == "float32" else -(start + 1)

    def better(best: Expr, x: Expr) -> Expr:
        return select(x > best if is_max else x < best, x, best)

    _reduce(work, start, better, NUMBERS)


@lowering("REDUCE_ANY", "REDUCE_ALL", plain=True)
def logical(work: Lowering) -> None:
    """Whether any, or every, element over some axes is true."""
    is_all = work.operator.name == "REDUCE_ALL"
    _reduce(work, is_all, tirx.And if is_all else tirx.Or, ("bool",))


@lowering("ARG_MAX", "ARG_MIN", plain=True)
def arg_extremum(work: Lowering) -> None:
    """Index of the first largest or smallest element along an axis."""
    data, output = work.tensor(0), work.output()
    dtype = same((data,), NUMBERS)
    if output.dtype not in WHOLE:
        raise UnsupportedOperatorError(f"output {output.name!r} is {output.dtype}, not int32 or int64")
    rank = len(data.shape)
    axis = flat_values(work, 1)[0] % max(rank, 1)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    is_max = work.operator.name == "ARG_MAX"
    best, where = function.local("best", dtype), function.local("where")
    with function.grid([e for a, e in enumerate(data.shape) if a != axis]) as place:
        best.set(raw_load(source, [*place[:axis], const(0), *place[axis:]]))
        where.set(const(0))
        with function.loop(data.shape[axis], "k") as k:
            value = function.bind(raw_load(source, [*place[:axis], k, *place[axis:]]), "value", dtype)
            with function.when(value > best.get() if is_max else value < best.get()):
                where.set(k)
                best.set(value)
        function.store(target, where.get(), *place)


@lowering("CUMSUM", plain=True)
def running_sum(work: Lowering) -> None:
    """The sum of all elements before along an axis, the element itself included unless it is exclusive."""
    import tflite

    options = work.options(tflite.CumsumOptions)
    data, output = work.tensor(0), work.output()
    dtype = same((data, output), NUMBERS)
    rank = len(data.shape)
    axis = flat_values(work, 1)[0] % max(rank, 1)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    total = function.local("total", dtype)
    with function.grid([e for a, e in enumerate(data.shape) if a != axis]) as place:
        total.set(number(0, dtype))
        with function.loop(data.shape[axis], "k") as k:
            at = const(data.shape[axis] - 1) - k if options.Reverse() else k
            here = [*place[:axis], at, *place[axis:]]
            value = function.bind(raw_load(source, here), "value", dtype)
            if options.Exclusive():
                function.store(target, total.get(), *here)
            total.set(wrapped(of.add, total.get(), value, dtype))
            if not options.Exclusive():
                function.store(target, total.get(), *here)
