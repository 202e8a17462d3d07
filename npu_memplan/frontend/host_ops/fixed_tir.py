"""TFLite's fixed-point arithmetic as TIR, for values known only when running.

Invariant: the same results as `fixed_point`, for every int32 input that the reference kernels
can meet; products are formed in int64, everything else in int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...fixed_point.functions import EXP_MINUS_EIGHTH, ONE_THIRD, ROOT_HALF, exp_steps
from ...fixed_point.multiplier import INT32_MAX
from .tir import Expr, Function, cast, clamp, const, dtype_of, largest, load, select

_NEWTON_STEPS = 5  # of an inverse square root


def high_mul(a: Expr, b: Expr | int) -> Expr:
    """Rounding doubling high multiply; a and b must not both be the smallest int32."""
    product = cast(a, "int64") * cast(b, "int64")
    return cast((product + const(1 << 30, "int64")) >> const(31, "int64"), "int32")


def rounding_shift(function: Function, value: Expr, exponent: int) -> Expr:
    """Divide by 2^exponent (0..31), to nearest, halves away from zero."""
    if exponent == 0:
        return value
    value = function.bind(value, "scaled")
    nudge = const(1 << (exponent - 1), "int64") - cast(value < 0, "int64")
    return cast((cast(value, "int64") + nudge) >> const(exponent, "int64"), "int32")


def rounding_shift_by(function: Function, value: Expr, exponent: Expr) -> Expr:
    """`rounding_shift` by an exponent (0..62) that is known only when running."""
    value = function.bind(cast(value, "int64"), "scaled", "int64")
    exponent = function.bind(cast(exponent, "int64"), "exponent", "int64")
    # The exponent may be 0, so the half is found by masking instead of 1 << (exponent - 1).
    mask = function.bind((const(1, "int64") << exponent) - const(1, "int64"), "mask", "int64")
    threshold = (mask >> const(1, "int64")) + cast(value < const(0, "int64"), "int64")
    return cast((value >> exponent) + cast((value & mask) > threshold, "int64"), "int32")


def multiply_rounded_once(value: Expr, multiplier: int, shift: int) -> Expr:
    """`value * multiplier * 2^(shift - 31)` of an int32, to nearest, halves up; shifts below 31."""
    bits = 31 - shift
    product = cast(value, "int64") * const(multiplier, "int64") + const(1 << (bits - 1), "int64")
    return cast(product >> const(bits, "int64"), "int32")


def saturating_shift_left(value: Expr, bits: int) -> Expr:
    """`value << bits`, limited to int32."""
    return clamp_wide(cast(value, "int64") * const(1 << bits, "int64"))


def clamp_wide(value: Expr) -> Expr:
    """An int64 limited to int32."""
    return cast(clamp(value, -INT32_MAX - 1, INT32_MAX), "int32")


def leading_zeros(function: Function, value: Expr) -> Expr:
    """Number of leading zero bits of an int32 that is not negative; 32 for zero."""
    zeros = const(0)
    rest = function.bind(value, "rest")
    for step in (16, 8, 4, 2):
        small = rest < const(1 << (31 - step))
        zeros = zeros + select(small, const(step), const(0))
        rest = function.bind(select(small, rest * const(1 << step), rest), "rest")
    # Bits 30 and 29 are left to look at: the sign bit is always clear.
    return function.bind(zeros + const(1) + select(rest < const(1 << 30), const(1), const(0)), "zeros")


def reciprocal_one_plus(function: Function, a: Expr) -> Expr:
    """1/(1+a) for a in [0, 1), both with 31 fraction bits (three Newton steps)."""
    half = cast((cast(a, "int64") + const(INT32_MAX + 1, "int64")) >> const(1, "int64"), "int32")
    half = function.bind(half, "half_denominator")
    x = function.bind(const(1515870810) + high_mul(half, -1010580540), "reciprocal")  # 48/17 - 32/17 a
    for _ in range(3):
        error = const(1 << 29) - high_mul(half, x)
        x = function.bind(x + saturating_shift_left(high_mul(x, error), 2), "reciprocal")
    return function.bind(saturating_shift_left(x, 1), "reciprocal")


def inverse_root(function: Function, value: Expr) -> tuple[Expr, Expr]:
    """1 / sqrt(value) as (31 fraction bits, right shift 0..12), of an int32 that is not negative; 0 counts as 1."""
    large = value >= const(1 << 29)
    start = function.bind(largest(select(large, value >> const(2), value), 2), "start")
    pairs = function.bind(((leading_zeros(function, start) - const(1)) >> const(1)) - const(1), "pairs")
    # Between 1/2 and 2, with 28 fraction bits from here on.
    normal = (start << (pairs * const(2))) >> const(1)
    half = function.bind(rounding_shift(function, normal, 1), "half")
    x = function.bind(const(1 << 28), "x")
    for _ in range(_NEWTON_STEPS):
        cube = saturating_shift_left(high_mul(high_mul(x, x), x), 6)
        step = high_mul(const(3 << 27), x) - high_mul(half, function.bind(cube, "cube"))
        x = function.bind(saturating_shift_left(step, 3), "x")
    shift = function.bind(select(large, const(12), const(11)) - pairs, "shift")
    root = high_mul(x, ROOT_HALF) * (const(1) << largest(const(0) - shift, 0))
    is_one = value <= const(1)
    multiplier = function.bind(select(is_one, const(INT32_MAX), root), "multiplier")
    return multiplier, function.bind(select(is_one, const(0), largest(shift, 0)), "right")


def multiply_by_quantised(function: Function, value: Expr, multiplier: int, shift: int) -> Expr:
    """`value * multiplier * 2^(shift - 31)` with TFLite's double rounding."""
    if shift > 0:
        value = value * const(1 << shift) if shift < 31 else const(0)
    return rounding_shift(function, high_mul(value, multiplier), max(-shift, 0))


def multiply_sum(function: Function, value: Expr, multiplier: int, shift: int) -> Expr:
    """The same of an int32; an int64 accumulator times a 16-bit reduced multiplier, rounded once (int16 operators)."""
    if dtype_of(value) != "int64":
        return multiply_by_quantised(function, value, multiplier, shift)
    total = 15 - shift
    product = value * const(reduced_multiplier(multiplier), "int64") + const(1 << (total - 1), "int64")
    return cast(product >> const(total, "int64"), "int32")


def reduced_multiplier(multiplier: int) -> int:
    """A 32-bit multiplier rounded to 16 bits."""
    return (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF


@dataclass(frozen=True, slots=True)
class ChannelScales:
    """Multipliers and shifts, one an output channel; equal ones are kept as numbers."""

    multipliers: Sequence[int]
    shifts: Sequence[int]

    @property
    def are_small(self) -> bool:
        """Whether C kernels take them: no shift moves all bits out of an int32."""
        return all(-31 <= shift <= 30 for shift in self.shifts)

    def tables(self, wide: bool) -> dict[str, Any]:
        """The arrays that `apply` wants, by name; none when all channels are equal."""
        if len(set(zip(self.multipliers, self.shifts, strict=True))) == 1:
            return {}
        if wide:
            return {
                "multiplier": np.array([reduced_multiplier(m) for m in self.multipliers], np.int32),
                "shift": np.array([15 - s for s in self.shifts], np.int32),
            }
        tables = {
            "multiplier": np.array(self.multipliers, np.int32),
            "shift": np.array([max(-s, 0) for s in self.shifts], np.int32),
        }
        if any(s > 0 for s in self.shifts):
            tables["left_shift"] = np.array([max(s, 0) for s in self.shifts], np.int32)
        return tables

    def apply(self, function: Function, value: Expr, buffers: dict[str, Any], channel: Expr, wide: bool) -> Expr:
        """`value` scaled for `channel`; `buffers` holds the tables' buffers; wide: value is int64."""
        if not buffers:
            return multiply_sum(function, value, self.multipliers[0], self.shifts[0])
        multiplier, shift = load(buffers["multiplier"], channel), load(buffers["shift"], channel)
        if wide:
            total = function.bind(cast(shift, "int64"), "total_shift", "int64")
            half = const(1, "int64") << (total - const(1, "int64"))
            return cast((value * cast(multiplier, "int64") + half) >> total, "int32")
        if "left_shift" in buffers:
            value = value * (const(1) << load(buffers["left_shift"], channel))
        return rounding_shift_by(function, high_mul(value, multiplier), shift)


def exp_on_negative(function: Function, a: Expr, integer_bits: int) -> Expr:
    """exp(a) with 31 fraction bits, for a <= 0 with `31 - integer_bits` fraction bits."""
    quarter = 1 << (31 - integer_bits - 2)
    a = function.bind(a, "exponent")
    within = function.bind((a & const(quarter - 1)) - const(quarter), "within_quarter")
    x = function.bind(within * const(1 << integer_bits) + const(1 << 28), "x")
    x2 = function.bind(high_mul(x, x), "x2")
    x3 = function.bind(high_mul(x2, x), "x3")
    x4 = function.bind(high_mul(x2, x2), "x4")
    inner = high_mul(rounding_shift(function, x4, 2) + x3, ONE_THIRD) + x2
    series = high_mul(const(EXP_MINUS_EIGHTH), x + rounding_shift(function, inner, 1))
    result = function.bind(const(EXP_MINUS_EIGHTH) + series, "power")
    remainder = function.bind(within - a, "remainder")
    for bit, multiplier in exp_steps(integer_bits):
        taken = (remainder & const(1 << bit)) != 0
        result = function.bind(select(taken, high_mul(result, multiplier), result), "power")
    return select(a == 0, const(INT32_MAX), result)
