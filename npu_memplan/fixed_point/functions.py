"""exp, logistic, tanh and reciprocals in 31-bit fixed point, as gemmlowp and TFLite's reference compute them.

Invariant: every step rounds and saturates as the reference's does. Vectorised over int64 arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .multiplier import INT32_MAX, IntArray, high_mul, rounding_shift, saturate32

ROOT_HALF = 1518500250  # the square root of 1/2 with 31 fraction bits
_EXP_STEPS = (  # (exponent e, exp(-2^e) with 31 fraction bits)
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242),
)  # fmt: skip
EXP_MINUS_EIGHTH = 1895147668  # exp(-1/8)
ONE_THIRD = 715827883


def exp_steps(integer_bits: int, bits: int = 31) -> list[tuple[int, int]]:
    """(bit of the remainder, multiplier) of the barrel shifter of `exp_on_negative`; `bits` is 15 for int16 numbers."""
    steps = [(bits - integer_bits + e, m) for e, m in _EXP_STEPS if integer_bits > e]
    return steps if bits == 31 else [(bit, rounded_to_16_bits(m)) for bit, m in steps]


def rounded_to_16_bits(constant: int) -> int:
    """A constant of 32 bits as one of 16, halves away from zero."""
    return int(rounding_shift(constant, 16))


def exp_on_negative(raw: Any, integer_bits: int) -> IntArray:
    """exp(a) with 31 fraction bits, for a <= 0 given with `31 - integer_bits` fraction bits."""
    a = np.asarray(raw, np.int64)
    quarter = 1 << (31 - integer_bits - 2)
    within = (a & (quarter - 1)) - quarter
    result = _exp_quarter(saturate32(within << integer_bits))
    remainder = within - a
    for bit, multiplier in exp_steps(integer_bits):
        result = np.where(remainder & (1 << bit), high_mul(result, multiplier), result)
    return np.where(a == 0, INT32_MAX, result)


def _exp_quarter(a: IntArray) -> IntArray:
    """exp on [-1/4, 0): four Taylor terms around -1/8."""
    x = a + (1 << 28)
    x2 = high_mul(x, x)
    x3 = high_mul(x2, x)
    x4 = high_mul(x2, x2)
    inner = high_mul(rounding_shift(x4, 2) + x3, ONE_THIRD) + x2
    return EXP_MINUS_EIGHTH + high_mul(EXP_MINUS_EIGHTH, x + rounding_shift(inner, 1))


def reciprocal_one_plus(a: IntArray, subtract_one: bool) -> IntArray:
    """1/(1+a), or (1-a)/(1+a), for a in [0, 1), all with 31 fraction bits (three Newton steps)."""
    half_denominator = (a + INT32_MAX + 1) >> 1
    x = 1515870810 + high_mul(half_denominator, -1010580540)  # 48/17, -32/17 with 29 fraction bits
    for _ in range(3):
        product = high_mul(half_denominator, x)
        x = x + saturate32(high_mul(x, (1 << 29) - product) << 2)
    if subtract_one:
        return saturate32((x - (1 << 29)) << 2)
    return saturate32(x << 1)


def logistic(raw: Any, integer_bits: int) -> IntArray:
    """1/(1+exp(-a)) with 31 fraction bits."""
    a = np.asarray(raw, np.int64)
    positive = reciprocal_one_plus(exp_on_negative(-np.abs(a), integer_bits), subtract_one=False)
    result = np.where(a < 0, INT32_MAX - positive, positive)
    return np.where(a == 0, 1 << 30, result)


def tanh(raw: Any, integer_bits: int) -> IntArray:
    """tanh(a) with 31 fraction bits."""
    a = np.asarray(raw, np.int64)
    # exp(-2|a|): the same bits read with one integer bit more.
    magnitude = reciprocal_one_plus(exp_on_negative(-np.abs(a), integer_bits + 1), subtract_one=True)
    return np.where(a == 0, 0, np.where(a < 0, -magnitude, magnitude))
