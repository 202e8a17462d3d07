"""sigmoid and tanh of int16 in gemmlowp's fixed point of 16 bits, as LiteRT's kernel of LSTM computes its gates.

Invariant: every step rounds and saturates as the reference's does; all values are int32 that hold int16. Constants are
those of 32 bits, rounded to 16.
"""

from __future__ import annotations

from ...fixed_point.functions import EXP_MINUS_EIGHTH, ONE_THIRD, exp_steps, rounded_to_16_bits
from ...fixed_point.multiplier import LIMITS
from .fixed_tir import rounding_shift
from .tir import Expr, Function, clamp, const, select

_ONE = 32767  # with 15 fraction bits
_48_OVER_17, _MINUS_32_OVER_17 = rounded_to_16_bits(1515870810), rounded_to_16_bits(-1010580540)


def sigmoid_of(function: Function, x: Expr, integer_bits: int) -> Expr:
    """1 / (1 + exp(-x)) with 15 fraction bits, of an int16 with so many integer bits."""
    x = function.bind(x, "x")
    power = _exp_on_negative(function, select(x < 0, x, const(0) - x), integer_bits)
    ratio = _newton(function, power)
    positive = function.bind(_shifted_left(ratio, 1), "positive")
    result = select(x < 0, const(_ONE) - positive, positive)
    return function.bind(select(x == 0, const(1 << 14), result), "sigmoid")


def tanh_of(function: Function, x: Expr, integer_bits: int) -> Expr:
    """tanh(x) with 15 fraction bits, of an int16 with so many integer bits."""
    x = function.bind(x, "x")
    power = _exp_on_negative(function, select(x < 0, x, const(0) - x), integer_bits + 1)  # exp(-2|x|): the same bits
    size = function.bind(_shifted_left(_newton(function, power) - const(1 << 13), 2), "size")
    return function.bind(select(x == 0, const(0), select(x < 0, const(0) - size, size)), "tanh")


def _exp_on_negative(function: Function, a: Expr, integer_bits: int) -> Expr:
    """exp(a) with 15 fraction bits, for a <= 0."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    a = function.bind(a, "exponent")
    within = function.bind((a & const(quarter - 1)) - const(quarter), "within_quarter")
    x = function.bind(_shifted_left(within, integer_bits) + const(1 << 12), "x")
    x2 = function.bind(_high_mul(x, x), "x2")
    x3, x4 = function.bind(_high_mul(x2, x), "x3"), function.bind(_high_mul(x2, x2), "x4")
    inner = _high_mul(rounding_shift(function, x4, 2) + x3, const(rounded_to_16_bits(ONE_THIRD))) + x2
    start = rounded_to_16_bits(EXP_MINUS_EIGHTH)
    series = _high_mul(const(start), x + rounding_shift(function, inner, 1))
    result = function.bind(clamp(const(start) + series, *LIMITS["int16"]), "power")
    remainder = function.bind(within - a, "remainder")
    for bit, multiplier in exp_steps(integer_bits, 15):
        taken = (remainder & const(1 << bit)) != 0
        result = function.bind(select(taken, _high_mul(result, const(multiplier)), result), "power")
    if integer_bits > 5:
        result = function.bind(select(a < const(-(1 << (fraction_bits + 5))), const(0), result), "power")
    return function.bind(select(a == 0, const(_ONE), result), "power")


def _newton(function: Function, a: Expr) -> Expr:
    """2 / (1 + a) with 13 fraction bits, for a in [0, 1)."""
    half = function.bind((a + const(_ONE + 1)) >> const(1), "half_denominator")
    x = function.bind(const(_48_OVER_17) + _high_mul(half, const(_MINUS_32_OVER_17)), "reciprocal")
    for _ in range(3):
        error = const(1 << 13) - _high_mul(half, x)
        x = function.bind(x + _shifted_left(_high_mul(x, error), 2), "reciprocal")
    return x


def _high_mul(a: Expr, b: Expr) -> Expr:
    """Rounding doubling high multiply of int16; a and b must not both be the smallest."""
    return (a * b + const(1 << 14)) >> const(15)


def _shifted_left(x: Expr, bits: int) -> Expr:
    return clamp(x * const(1 << bits), *LIMITS["int16"])
