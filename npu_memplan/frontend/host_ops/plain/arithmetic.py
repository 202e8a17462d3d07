"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, comparisons, LOGICAL_AND, LOGICAL_OR.

Invariant: one operation an element, then the fused activation; truths are bool, one byte, 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from ..elementwise import COMPARISONS
from ..operator import Lowering, lowering, require
from ..tir import Expr, Function, both, cast, dtype_of, library, number, select
from .numbers import NUMBERS, REAL, activated, pair_by_pair, same

_OF_32_BITS = ("float32", "int32")


def _quotient(_: Function, x: Expr, y: Expr) -> Expr:
    """Whole numbers are cut towards zero."""
    dtype = dtype_of(x)
    if dtype == "float32":
        return x / y
    # A division by zero, where the reference stops, gives zero.
    zero = number(0, dtype)
    quotient = tirx.truncdiv(x, select(y == zero, number(1, dtype), y))
    return select(y == zero, zero, quotient)


def _squared_difference(function: Function, x: Expr, y: Expr) -> Expr:
    difference = function.bind(x - y, "difference", dtype_of(x))
    return difference * difference


def _floor_quotient(_: Function, x: Expr, y: Expr) -> Expr:
    """The largest whole number not above the quotient; floats are divided in double precision."""
    if dtype_of(x) == "int32":
        return tirx.floordiv(x, select(y == number(0, "int32"), number(1, "int32"), y))
    return cast(tirx.call_pure_extern("float64", "floor", cast(x, "float64") / cast(y, "float64")), "float32")


def _floor_rest(function: Function, x: Expr, y: Expr) -> Expr:
    """What a division leaves, with the divisor's sign."""
    rest = function.bind(library("fmodf", x, y), "rest", "float32")
    zero = number(0, "float32")
    differ = tirx.NE(cast(y < zero, "int32"), cast(rest < zero, "int32"))
    return select(both(tirx.NE(rest, zero), differ), rest + y, rest)


# operator -> types that it takes, what it makes of two numbers
_ARITHMETIC: dict[str, tuple[tuple[str, ...], Callable[[Function, Expr, Expr], Expr]]] = {
    "ADD": (NUMBERS, lambda _, x, y: x + y),
    "SUB": (NUMBERS, lambda _, x, y: x - y),
    "MUL": (NUMBERS, lambda _, x, y: x * y),
    "DIV": (_OF_32_BITS, _quotient),
    "SQUARED_DIFFERENCE": (_OF_32_BITS, _squared_difference),
    "FLOOR_DIV": (_OF_32_BITS, _floor_quotient),
    "FLOOR_MOD": (REAL, _floor_rest),
}
_FUSING = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}


@lowering(*_ARITHMETIC, plain=True)
def arithmetic(work: Lowering) -> None:
    """A number of the same type from input 0 and input 1."""
    name = work.operator.name
    allowed, compute = _ARITHMETIC[name]
    dtype = same((work.tensor(0), work.output()), allowed)
    options = work.operator.options(_FUSING[name]) if name in _FUSING else None
    # Files may leave the options out where there is no activation; tflite-micro takes no notice of this one:
    ignored = (name, dtype) == ("ADD", "int32")
    activation = 0 if options is None or ignored else int(options.FusedActivationFunction())

    def result(function: Function, x: Expr, y: Expr) -> Expr:
        value = compute(function, x, y)
        return activated(function, value, activation, dtype) if name in _FUSING else value

    pair_by_pair(work, result, allowed)


_EQUALITY = ("EQUAL", "NOT_EQUAL")
_CHOICES: dict[str, tuple[tuple[str, ...], Callable[[Expr, Expr], Expr]]] = {
    "MAXIMUM": (NUMBERS, lambda x, y: select(x > y, x, y)),
    "MINIMUM": (NUMBERS, lambda x, y: select(x < y, x, y)),
    "LOGICAL_AND": (("bool",), tirx.And),
    "LOGICAL_OR": (("bool",), tirx.Or),
    **{name: ((*NUMBERS, "bool") if name in _EQUALITY else NUMBERS, test) for name, test in COMPARISONS.items()},
}


@lowering(*_CHOICES, plain=True)
def choose(work: Lowering) -> None:
    """One of input 0 and input 1, or whether something is true of them."""
    output, (allowed, compute) = work.output(), _CHOICES[work.operator.name]
    right = work.operator.name not in COMPARISONS or output.dtype == "bool"
    require(right, f"output {output.name!r} is {output.dtype}, not bool")
    pair_by_pair(work, lambda _, x, y: compute(x, y), allowed)
