"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D of float32.

Invariant: places outside of the image are left out and not counted.
"""

from __future__ import annotations

from collections.abc import Callable

from ..operator import Lowering, lowering
from ..pooling import pool
from ..tir import Expr, cast, library, real
from .numbers import REAL, activated, largest_of, least, same


@lowering("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", plain=True)
def pool_2d(work: Lowering) -> None:
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
