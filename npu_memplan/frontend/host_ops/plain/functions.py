"""Functions of one number: NOT, NEG, ABS, SQUARE, SQRT, EXP, LOG, LOGISTIC, TANH, the RELU family, ELU, HARD_SWISH, ...

Invariant: a function of the C library is called where the reference calls it, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from ..common import as_it_is
from ..elementwise import each
from ..operator import Lowering, lowering
from ..tir import Expr, Function, dtype_of, library, number, real, select
from .numbers import NUMBERS, REAL, element_by_element, largest_of, same, smallest_of

_LOGISTIC_IS_ONE = 16.619047164916992  # above
_LOGISTIC_IS_EXP = -9.0  # below


def logistic(function: Function, x: Expr) -> Expr:
    """1 / (1 + exp(-x)), which ends at 1 and begins as the exponential itself."""
    middle = real(1) / (real(1) + library("expf", number(0, "float32") - x))
    power = function.bind(library("expf", x), "power", "float32")
    middle = function.bind(middle, "middle", "float32")
    return select(x > real(_LOGISTIC_IS_ONE), real(1), select(x < real(_LOGISTIC_IS_EXP), power, middle))


def _elu(function: Function, x: Expr) -> Expr:
    below = function.bind(library("expm1f", x), "below", "float32")
    return select(x < real(0), below, x)


def _negative(_: Function, x: Expr) -> Expr:
    return x * real(-1) if dtype_of(x) == "float32" else number(0, dtype_of(x)) - x


def _size(_: Function, x: Expr) -> Expr:
    zero = number(0, dtype_of(x))
    return library("fabsf", x) if dtype_of(x) == "float32" else select(x < zero, zero - x, x)


def _hard_swish(function: Function, x: Expr) -> Expr:
    inner = smallest_of(function, real(6), largest_of(function, real(0), x + real(3), "float32"), "float32")
    return x * inner / real(6)


_OF_OTHERS = {"NEG": NUMBERS, "ABS": ("float32", "int32"), "LOGICAL_NOT": ("bool",)}  # all else is of float32
_FUNCTIONS: dict[str, Callable[[Function, Expr], Expr]] = {
    "NEG": _negative,
    "ABS": _size,
    "LOGICAL_NOT": lambda _, x: tirx.Not(x),
    "SQUARE": lambda _, x: x * x,
    "SQRT": lambda _, x: library("sqrtf", x),
    "RSQRT": lambda _, x: real(1) / library("sqrtf", x),
    "EXP": lambda _, x: library("expf", x),
    "LOG": lambda _, x: library("logf", x),
    "SIN": lambda _, x: library("sinf", x),
    "COS": lambda _, x: library("cosf", x),
    "TANH": lambda _, x: library("tanhf", x),
    "FLOOR": lambda _, x: library("floorf", x),
    "CEIL": lambda _, x: library("ceilf", x),
    "ROUND": lambda _, x: library("rintf", x),  # halves to even
    "RELU": lambda _, x: select(x < real(0), real(0), x),
    "RELU6": lambda _, x: select(x > real(6), real(6), select(x < real(0), real(0), x)),
    "RELU_N1_TO_1": lambda _, x: select(x > real(1), real(1), select(x < real(-1), real(-1), x)),
    "RELU_0_TO_1": lambda _, x: select(x > real(1), real(1), select(x < real(0), real(0), x)),
    "LOGISTIC": logistic,
    "ELU": _elu,
    "HARD_SWISH": _hard_swish,
}


@lowering(*_FUNCTIONS, plain=True)
def function_of_one(work: Lowering) -> None:
    """output = f(input)."""
    element_by_element(work, _FUNCTIONS[work.operator.name], _OF_OTHERS.get(work.operator.name, REAL))


@lowering("LEAKY_RELU", plain=True)
def leaky_relu(work: Lowering) -> None:
    """x above zero, alpha x elsewhere."""
    alpha = real(work.options("LeakyReluOptions").Alpha())
    element_by_element(work, lambda _, x: select(x > real(0), x, x * alpha), REAL)


@lowering("PRELU", plain=True)
def prelu(work: Lowering) -> None:
    """x from zero on, alpha x below, with an alpha for each element or channel."""
    same((work.tensor(0), work.tensor(1), work.output()), REAL)

    def result(x: Expr, slope: Expr) -> Expr:
        x = work.function.bind(x, "x", "float32")
        return select(x >= real(0), x, x * slope)

    each(work, result, "input", "alpha", take=as_it_is)
