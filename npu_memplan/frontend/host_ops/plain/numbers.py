"""What operators on plain numbers share: which types, constants, choices, fused activations.

Invariant: a choice between two numbers is the reference's own comparison, so that NaN goes the way it goes there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....models.tensor import Tensor
from ..common import as_it_is, require_same_type
from ..elementwise import each
from ..operator import Lowering, require
from ..tir import Expr, Function, number, select

REAL = ("float32",)
NUMBERS = ("float32", "int32", "int64")
_BOUNDS = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}  # of fused activations


def same(tensors: tuple[Tensor, ...], allowed: tuple[str, ...]) -> str:
    """The one type of these tensors; refuses others than the `allowed`."""
    return require_same_type(tensors, allowed, scaled=False)


def least(dtype: str) -> float:
    """The smallest finite number of a type."""
    return float(np.finfo(dtype).min) if dtype.startswith("float") else int(np.iinfo(dtype).min)


def most(dtype: str) -> float:
    """The largest finite number of a type."""
    return -least(dtype) if dtype.startswith("float") else -(least(dtype) + 1)


def largest_of(function: Function, a: Expr, b: Expr, dtype: str) -> Expr:
    """C++'s max(a, b): b only where a < b."""
    a, b = function.bind(a, "a", dtype), function.bind(b, "b", dtype)
    return select(a < b, b, a)


def smallest_of(function: Function, a: Expr, b: Expr, dtype: str) -> Expr:
    """C++'s min(a, b): b only where b < a."""
    a, b = function.bind(a, "a", dtype), function.bind(b, "b", dtype)
    return select(b < a, b, a)


def activated(function: Function, value: Expr, activation: int, dtype: str) -> Expr:
    """A number within the range of a fused activation; without one, floats lose their infinities."""
    require(activation in _BOUNDS, f"fused activation number {activation} is not supported")
    low, high = _BOUNDS[activation]
    if activation == 0 and not dtype.startswith("float"):
        return value
    value = largest_of(function, value, number(least(dtype) if low is None else low, dtype), dtype)
    return smallest_of(function, value, number(most(dtype) if high is None else high, dtype), dtype)


def element_by_element(work: Lowering, compute: Callable[[Function, Expr], Expr], allowed: tuple[str, ...]) -> None:
    """output = compute(input), of one type."""
    dtype, function = same((work.tensor(0), work.output()), allowed), work.function
    each(work, lambda x: compute(function, function.bind(x, "x", dtype)), "input", take=as_it_is)


def pair_by_pair(work: Lowering, compute: Callable[[Function, Expr, Expr], Expr], allowed: tuple[str, ...]) -> None:
    """output = compute(input 0, input 1) with broadcasting, of inputs of one type; the output may have another."""
    dtype, function = same((work.tensor(0), work.tensor(1)), allowed), work.function

    def result(x: Expr, y: Expr) -> Expr:
        return compute(function, function.bind(x, "x", dtype), function.bind(y, "y", dtype))

    each(work, result, "first", "second", take=as_it_is)
