"""What operators on plain numbers share: which types, constants, choices, fused activations.

Invariant: a choice between two numbers is the reference's own comparison, so that NaN goes the way it goes there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....models.tensor import Tensor
from ..common import require_same_type
from ..elementwise import broadcast
from ..operator import Lowering, UnsupportedOperatorError
from ..tir import Expr, Function, cast, const, raw_load, real, select

REAL = ("float32",)
NUMBERS = ("float32", "int32", "int64")
WHOLE = ("int32", "int64")
_BOUNDS = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}  # of fused activations


def same(tensors: tuple[Tensor, ...], allowed: tuple[str, ...]) -> str:
    """The one type of these tensors; refuses others than the `allowed`."""
    return require_same_type(tensors, allowed, scaled=False)


def number(value: float, dtype: str) -> Expr:
    """A constant of a type."""
    return real(value, dtype) if dtype.startswith("float") else const(int(value), dtype)


def least(dtype: str) -> float:
    """The smallest finite number of a type."""
    return float(np.finfo(dtype).min) if dtype.startswith("float") else int(np.iinfo(dtype).min)


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
    if activation not in _BOUNDS:
        raise UnsupportedOperatorError(f"fused activation number {activation} is not supported")
    low, high = _BOUNDS[activation]
    if activation == 0 and not dtype.startswith("float"):
        return value
    bounds = least(dtype), -least(dtype) if dtype.startswith("float") else -(least(dtype) + 1)
    value = largest_of(function, value, number(bounds[0] if low is None else low, dtype), dtype)
    return smallest_of(function, value, number(bounds[1] if high is None else high, dtype), dtype)


def element_by_element(work: Lowering, compute: Callable[[Function, Expr], Expr], allowed: tuple[str, ...]) -> None:
    """output = compute(input), of one type."""
    data, output = work.tensor(0), work.output()
    dtype = same((data, output), allowed)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape) as place:
        x = function.bind(raw_load(source, broadcast(place, data, output)), "x", dtype)
        function.store(target, compute(function, x), *place)


def pair_by_pair(work: Lowering, compute: Callable[[Function, Expr, Expr], Expr], allowed: tuple[str, ...]) -> None:
    """output = compute(input 0, input 1) with broadcasting, of inputs of one type; the output may have another."""
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    dtype = same((a, b), allowed)
    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    with function.grid(output.shape) as place:
        x = function.bind(raw_load(first, broadcast(place, a, output)), "x", dtype)
        y = function.bind(raw_load(second, broadcast(place, b, output)), "y", dtype)
        function.store(target, compute(function, x, y), *place)


def wrapped(compute: Callable[[Expr, Expr], Expr], x: Expr, y: Expr, dtype: str) -> Expr:
    """compute(x, y), where int32 wraps around instead of being undefined in C."""
    if dtype != "int32":
        return compute(x, y)
    return cast(compute(cast(x, "int64"), cast(y, "int64")), "int32")
