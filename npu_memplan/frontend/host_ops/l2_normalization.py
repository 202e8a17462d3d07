"""L2_NORMALIZATION.

Invariant: one inverse square root a row, by the reference's five Newton steps; a row of zeros stays zeros.
"""

from __future__ import annotations

import math

from ...fixed_point.functions import ROOT_HALF
from ...fixed_point.multiplier import INT32_MAX, LIMITS
from .common import EIGHT_BITS, require_quantisation, require_same_type
from .fixed_tir import high_mul, leading_zeros, rounding_shift, rounding_shift_by, saturating_shift_left
from .operator import Lowering, lowering, require
from .tir import Expr, Function, clamp, const, largest, load, row_indices, select

_OUTPUT_BITS = 7  # fraction bits of the output
_NEWTON_STEPS = 5


@lowering("L2_NORMALIZATION")
def l2_normalization(work: Lowering) -> None:
    """x / sqrt(sum of x squared) over the last axis."""
    data, output = work.tensor(0), work.output()
    kind = require_same_type((data, output), EIGHT_BITS)
    activation = work.options("L2NormOptions").FusedActivationFunction()
    require(activation == 0, f"the reference refuses its fused activation (number {activation})")
    middle = 0 if kind == "int8" else 128
    require_quantisation(output, 1 / (1 << _OUTPUT_BITS), middle, "computes for")
    function = work.function
    source, target = work.read(0, "input"), work.write()
    total = function.local("total")
    with function.loop(math.prod(data.shape) // data.shape[-1], "row") as row:
        total.set(const(0))
        with function.loop(data.shape[-1], "c") as c:
            x = function.bind(load(source, *row_indices(row, c, data.shape)) - const(data.zero_point), "x")
            total.add(x * x)
        multiplier, right = _inverse_root(function, total.get())
        if kind == "int8":  # tflite-micro takes one shift from the other
            left_shift = function.bind(const(1) << largest(const(_OUTPUT_BITS) - right, 0), "left_shift")
            right_shift = function.bind(largest(right - const(_OUTPUT_BITS), 0), "right_shift")
        else:
            left_shift, right_shift = const(1 << _OUTPUT_BITS), right
        with function.loop(data.shape[-1], "c") as c:
            x = load(source, *row_indices(row, c, data.shape)) - const(data.zero_point)
            value = rounding_shift_by(function, high_mul(x * left_shift, multiplier), right_shift)
            function.store(target, clamp(value + const(middle), *LIMITS[kind]), *row_indices(row, c, output.shape))


def _inverse_root(function: Function, value: Expr) -> tuple[Expr, Expr]:
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
