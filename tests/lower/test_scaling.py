"""Fixed-point arithmetic against exact numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_memplan.ethosu.lower.scaling import quantise_multiplier, reciprocal_scale
from npu_memplan.fixed_point import ScaleError, exp_on_negative, high_mul, multiply_by_quantised, rounding_shift


@given(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(-(2**31) + 1, 2**31 - 1))
def test_a_high_product_is_rounded_with_ties_up(a: int, b: int) -> None:
    assert high_mul(a, b) == min(math.floor(Fraction(a * b, 2**31) + Fraction(1, 2)), 2**31 - 1)
    assert high_mul([3, 1, -1, -3], 1 << 30).tolist() == [2, 1, 0, -1]


@given(st.floats(min_value=2.0**-31, max_value=2.0**20))
def test_multipliers_have_31_significant_bits(real: float) -> None:
    scale = quantise_multiplier(real)
    assert 1 << 30 <= scale.multiplier < 1 << 31
    assert abs(Fraction(scale.multiplier, 1) / 2**scale.shift / Fraction(real) - 1) <= Fraction(1, 1 << 31)


@pytest.mark.parametrize("real, multiplier", [(0.0, 0), (2.0**-40, 0), (1.0, 1 << 30), (1 - 2.0**-40, 1 << 30)])
def test_corner_multipliers(real: float, multiplier: int) -> None:
    assert quantise_multiplier(real).multiplier == multiplier


@pytest.mark.parametrize("real", [-1.0, math.inf, math.nan, 2.0**40])
def test_impossible_scales_are_refused(real: float) -> None:
    with pytest.raises(ScaleError):
        quantise_multiplier(real)


@given(st.integers(-(1 << 24), 1 << 24), st.floats(min_value=1e-6, max_value=4.0))
def test_products_are_within_one_of_the_real_one(value: int, real: float) -> None:
    scale = quantise_multiplier(real)
    found = multiply_by_quantised(value, scale.multiplier, scale.exponent)
    assert abs(found - value * real) <= 1 + abs(value) * real * 2**-30


@given(st.integers(-(1 << 30), 1 << 30), st.integers(0, 30))
def test_shifts_round_half_away_from_zero(value: int, bits: int) -> None:
    exact = Fraction(value, 1 << bits)
    rounded = math.floor(abs(exact) + Fraction(1, 2)) * (1 if value >= 0 else -1)
    assert rounding_shift(value, bits) == rounded


@given(st.integers(1, 4096), st.integers(-(1 << 19), 1 << 19))
def test_reciprocals_average_exactly(count: int, total: int) -> None:
    scale = reciprocal_scale(count)
    # the NPU's double rounding: 31 bits first, the rest half away from zero
    first = (total * scale.multiplier + (1 << 30)) >> 31 if scale.shift > 31 else None
    found = (
        rounding_shift(first, scale.shift - 31)
        if first is not None
        else (total * scale.multiplier + (1 << (scale.shift - 1))) >> scale.shift
    )
    assert abs(found - Fraction(total, count)) <= Fraction(1, 2) + Fraction(1, 1 << 10)


@given(st.floats(min_value=-31.9, max_value=0.0))
def test_exponentials_are_close(x: float) -> None:
    fixed = exp_on_negative(math.floor(x * (1 << 26)), 5)
    assert fixed / (1 << 31) == pytest.approx(math.exp(x), abs=5e-7)
