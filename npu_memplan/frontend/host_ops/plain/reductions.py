"""MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL, ARG_MAX, ARG_MIN and CUMSUM of plain numbers.

Invariant: elements are met in the order in which they lie in memory.
"""

from __future__ import annotations

import math
import operator as of
from collections.abc import Callable
from typing import Any

from tvm import tirx

from ..operator import Lowering, lowering
from ..reduction import accumulate, axes_of, reduce, search
from ..tir import Expr, LocalScalar, number, select
from .numbers import NUMBERS, REAL, least, most, same, wrapped

Combine = Callable[[Any, Any], Any]


def _reduce(work: Lowering, start: float, combine: Combine, allowed: tuple[str, ...]) -> None:
    """output = combine(..., element), from `start` on, over some axes; divided by their number for a mean."""
    data = work.tensor(0)
    dtype = same((data, work.output()), allowed)

    def join(total: Expr, element: Expr) -> Expr:
        return wrapped(combine, total, work.function.bind(element, "element", dtype), dtype)

    def result(total: Expr) -> Expr:
        if work.operator.name != "MEAN":
            return total
        return total / number(math.prod(data.shape[a] for a in axes_of(work)), dtype)

    reduce(work, "total", number(start, dtype), join, result)


@lowering("SUM", "REDUCE_PROD", plain=True)
def total(work: Lowering) -> None:
    """Sum or product over some axes."""
    is_sum = work.operator.name == "SUM"
    _reduce(work, 0 if is_sum else 1, of.add if is_sum else of.mul, NUMBERS)


@lowering("MEAN", plain=True)
def mean(work: Lowering) -> None:
    """Sum over some axes, divided by the number of its elements."""
    _reduce(work, 0, of.add, REAL)


@lowering("REDUCE_MAX", "REDUCE_MIN", plain=True)
def extremum(work: Lowering) -> None:
    """Largest or smallest element over some axes."""
    dtype = same((work.tensor(0), work.output()), NUMBERS)
    is_max = work.operator.name == "REDUCE_MAX"

    def better(best: Expr, x: Expr) -> Expr:
        return select(x > best if is_max else x < best, x, best)

    _reduce(work, least(dtype) if is_max else most(dtype), better, NUMBERS)


@lowering("REDUCE_ANY", "REDUCE_ALL", plain=True)
def logical(work: Lowering) -> None:
    """Whether any, or every, element over some axes is true."""
    is_all = work.operator.name == "REDUCE_ALL"
    _reduce(work, is_all, tirx.And if is_all else tirx.Or, ("bool",))


@lowering("ARG_MAX", "ARG_MIN", plain=True)
def arg_extremum(work: Lowering) -> None:
    """Index of the first largest or smallest element along an axis."""

    def update(best: LocalScalar, where: LocalScalar, value: Expr, k: Expr, better: Expr) -> None:
        with work.function.when(better):
            where.set(k)
            best.set(value)

    search(work, same((work.tensor(0),), NUMBERS), update)


@lowering("CUMSUM", plain=True)
def running_sum(work: Lowering) -> None:
    """The sum of all elements before along an axis, the element itself included unless it is exclusive."""
    dtype = same((work.tensor(0), work.output()), NUMBERS)
    accumulate(
        work,
        start=lambda: number(0, dtype),
        term=lambda element: work.function.bind(element, "value", dtype),
        join=lambda total, value: wrapped(of.add, total, value, dtype),
        result=lambda total: total,
    )
