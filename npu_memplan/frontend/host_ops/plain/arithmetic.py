"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, ADD_N, comparisons, LOGICAL_... .

Invariant: one operation an element, then the fused activation; truths are bool, one byte, 0 or 1.
"""

from __future__ import annotations

import operator as of
from collections.abc import Callable
from typing import Any

from tvm import tirx

from ..elementwise import COMPARISONS
from ..operator import Lowering, lowering, require
from ..tir import Expr, Function, both, cast, library, number, raw_load, select
from .numbers import NUMBERS, REAL, activated, element_by_element, pair_by_pair, same, wrapped

_OF_32_BITS = ("float32", "int32")
_COMPUTE: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "ADD": (of.add, "AddOptions"),
    "SUB": (of.sub, "SubOptions"),
    "MUL": (of.mul, "MulOptions"),
}


def _activation(work: Lowering, kind: str) -> int:
    """Number of the fused activation; files may leave the options out where there is none."""
    options = work.operator.options(kind)
    return 0 if options is None else int(options.FusedActivationFunction())


@lowering(*_COMPUTE, plain=True)
def arithmetic(work: Lowering) -> None:
    """input 0 (+, -, x) input 1."""
    compute, options = _COMPUTE[work.operator.name]
    dtype = same((work.tensor(0), work.output()), NUMBERS)
    # tflite-micro takes no notice of an activation here:
    ignored = (work.operator.name, dtype) == ("ADD", "int32")
    activation = 0 if ignored else _activation(work, options)
    pair_by_pair(work, lambda f, x, y: activated(f, wrapped(compute, x, y, dtype), activation, dtype), NUMBERS)


@lowering("DIV", plain=True)
def divide(work: Lowering) -> None:
    """input 0 / input 1; whole numbers are cut towards zero."""
    dtype = same((work.tensor(0), work.output()), _OF_32_BITS)
    activation = _activation(work, "DivOptions")

    def result(function: Function, x: Expr, y: Expr) -> Expr:
        if dtype == "float32":
            return activated(function, x / y, activation, dtype)
        # A division by zero, where the reference stops, gives zero.
        zero = number(0, dtype)
        quotient = tirx.truncdiv(x, select(y == zero, number(1, dtype), y))
        return activated(function, select(y == zero, zero, quotient), activation, dtype)

    pair_by_pair(work, result, _OF_32_BITS)


@lowering("MAXIMUM", "MINIMUM", plain=True)
def extremum(work: Lowering) -> None:
    """The larger or the smaller one."""
    is_max = work.operator.name == "MAXIMUM"
    pair_by_pair(work, lambda _, x, y: select(x > y if is_max else x < y, x, y), NUMBERS)


@lowering("SQUARED_DIFFERENCE", plain=True)
def squared_difference(work: Lowering) -> None:
    """(input 0 - input 1) squared."""
    dtype = same((work.tensor(0), work.output()), _OF_32_BITS)

    def result(function: Function, x: Expr, y: Expr) -> Expr:
        difference = function.bind(wrapped(of.sub, x, y, dtype), "difference", dtype)
        return wrapped(of.mul, difference, difference, dtype)

    pair_by_pair(work, result, _OF_32_BITS)


@lowering("FLOOR_DIV", plain=True)
def floor_divide(work: Lowering) -> None:
    """The largest whole number not above the quotient; floats are divided in double precision."""
    dtype = same((work.tensor(0), work.output()), _OF_32_BITS)

    def result(_: Function, x: Expr, y: Expr) -> Expr:
        if dtype == "int32":
            return tirx.floordiv(x, select(y == number(0, dtype), number(1, dtype), y))
        return cast(tirx.call_pure_extern("float64", "floor", cast(x, "float64") / cast(y, "float64")), "float32")

    pair_by_pair(work, result, (dtype,))


@lowering("FLOOR_MOD", plain=True)
def floor_modulo(work: Lowering) -> None:
    """What a division leaves, with the divisor's sign."""
    same((work.tensor(0), work.output()), REAL)

    def result(function: Function, x: Expr, y: Expr) -> Expr:
        rest = function.bind(library("fmodf", x, y), "rest", "float32")
        zero = number(0, "float32")
        differ = tirx.NE(cast(y < zero, "int32"), cast(rest < zero, "int32"))
        return select(both(tirx.NE(rest, zero), differ), rest + y, rest)

    pair_by_pair(work, result, REAL)


@lowering("ADD_N", plain=True)
def add_many(work: Lowering) -> None:
    """The sum of all inputs, from the first to the last."""
    output, parts = work.output(), work.tensors()
    dtype = same((output, *parts), NUMBERS)
    alike = all(part.shape == output.shape for part in parts)
    require(alike, "its inputs have other shapes than its output")
    sources, total = work.read_all("input"), work.function.local("sum", dtype)

    def result(place: list[Expr]) -> Expr:
        total.set(number(0, dtype))
        for source in sources:
            total.set(wrapped(of.add, total.get(), raw_load(source, place), dtype))
        return total.get()

    work.fill(result)


_EQUALITY = ("EQUAL", "NOT_EQUAL")
_LOGIC = {"LOGICAL_AND": tirx.And, "LOGICAL_OR": tirx.Or}


@lowering(*COMPARISONS, plain=True)
def compare(work: Lowering) -> None:
    """Whether input 0 is equal to, greater or less than input 1."""
    output = work.output()
    require(output.dtype == "bool", f"output {output.name!r} is {output.dtype}, not bool")
    name = work.operator.name
    allowed = (*NUMBERS, "bool") if name in _EQUALITY else NUMBERS
    pair_by_pair(work, lambda _, x, y: COMPARISONS[name](x, y), allowed)


@lowering(*_LOGIC, plain=True)
def combine(work: Lowering) -> None:
    """input 0 and, or: input 1."""
    connect = _LOGIC[work.operator.name]
    pair_by_pair(work, lambda _, x, y: connect(x, y), ("bool",))


@lowering("LOGICAL_NOT", plain=True)
def invert(work: Lowering) -> None:
    """Not the input."""
    element_by_element(work, lambda _, x: tirx.Not(x), ("bool",))
