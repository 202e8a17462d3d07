"""LOG_SOFTMAX.

Invariant: one logarithm a row, in the reference's fixed point: a power of two, and a quotient of polynomials around
the fourth root of 1/2.
"""

from __future__ import annotations

import math

from ...fixed_point.functions import ROOT_HALF
from ...fixed_point.multiplier import LIMITS, quantise_multiplier
from .common import EIGHT_BITS, require_quantisation, require_same_type
from .exponentials import DIFF_INTEGER_BITS, SUM_INTEGER_BITS, Differences, sum_of_row
from .fixed_tir import (
    clamp_wide,
    high_mul,
    leading_zeros,
    multiply_by_quantised,
    reciprocal_one_plus,
    rounding_shift,
    saturating_shift_left,
)
from .operator import Lowering, lowering
from .tir import Expr, Function, cast, clamp, const, largest, load, row_indices, select, smallest

_OUTPUT_INTEGER_BITS = 4
_LOG_INTEGER_BITS = DIFF_INTEGER_BITS + 1  # while it is added up
# With 31 fraction bits, f = 2^(1/4):
_LOG_2 = 1488522236
_FOURTH_ROOT_HALF = 1805811301  # 1/f
_NUMERATOR = 117049297  # 11/240 f
_DENOMINATOR = (1057819769, 638450708, 127690142)  # 2/f - f, f/4, f/20


@lowering("LOG_SOFTMAX")
def log_softmax(work: Lowering) -> None:
    """x - log(sum of exp(x)) over the last axis."""
    data, output = work.tensor(0), work.output()
    kind = require_same_type((data, output), EIGHT_BITS)
    low, high = LIMITS[kind]
    require_quantisation(output, 16 / 256, high)
    differences = Differences.scaled(1.0, data.scale)
    back = quantise_multiplier((1 << (31 - differences.shift)) / differences.multiplier)
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.loop(math.prod(data.shape) // data.shape[-1], "row") as row:
        peak, total = sum_of_row(function, source, row, differences)
        log = function.bind(_logarithm(function, total), "log")
        # Differences from here on down have the least result; above, nothing leaves int32.
        floor = multiply_by_quantised(function, log + const(LIMITS["int32"][0]), *back)
        floor = function.bind(largest(floor, const(differences.lowest - 1)), "floor")
        with function.loop(data.shape[-1], "c") as c:
            difference = function.bind(load(source, *row_indices(row, c, data.shape)) - peak, "difference")
            scaled = differences.rescale(largest(difference, const(differences.lowest)))
            real = clamp_wide(cast(scaled, "int64") - cast(log, "int64"))
            result = rounding_shift(function, real, 31 - DIFF_INTEGER_BITS - _OUTPUT_INTEGER_BITS)
            result = clamp(result + const(high), low, high)
            function.store(target, select(difference > floor, result, const(low)), *row_indices(row, c, output.shape))


def _logarithm(function: Function, value: Expr) -> Expr:
    """log(value) with `31 - DIFF_INTEGER_BITS` fraction bits, of a value >= 1 with `31 - SUM_INTEGER_BITS`."""
    one = 1 << (31 - _LOG_INTEGER_BITS)
    # value = 2^power x fraction, by two ways to split it; the one with the larger power and smaller fraction counts.
    zeros = leading_zeros(function, value)
    normal = value * (const(1) << (zeros - const(1)))
    first = saturating_shift_left(high_mul(normal, ROOT_HALF), 1)
    power = (const(SUM_INTEGER_BITS) - zeros) * const(one) + const(one // 4)
    headroom = leading_zeros(function, high_mul(value, ROOT_HALF)) - const(1)
    second = clamp_wide(cast(value, "int64") * (const(1, "int64") << cast(headroom, "int64")))
    other_power = (const(SUM_INTEGER_BITS) - headroom) * const(one) - const(one // 4)
    power = function.bind(largest(power, other_power), "power")
    r = function.bind(smallest(first, second), "r")

    wide = cast(r, "int64") + const(_FOURTH_ROOT_HALF + 1, "int64")
    p = function.bind(cast(wide >> const(1, "int64"), "int32"), "p")
    half = function.bind(r - const(_FOURTH_ROOT_HALF), "half")  # named, or TVM doubles the constant past int32
    q = function.bind(half * const(2), "q")
    square = function.bind(high_mul(q, q), "square")
    numerator = high_mul(q, r) + high_mul(high_mul(q, square), _NUMERATOR)
    constant, linear, quadratic = _DENOMINATOR
    inner = const(constant) + q + high_mul(square, quadratic)
    below = high_mul(p, inner) + high_mul(q, linear)  # the denominator, less 1
    reciprocal = reciprocal_one_plus(function, below)
    fraction = high_mul(rounding_shift(function, numerator, _LOG_INTEGER_BITS), reciprocal)
    return saturating_shift_left(high_mul(power, _LOG_2) + fraction, _LOG_INTEGER_BITS - DIFF_INTEGER_BITS)
