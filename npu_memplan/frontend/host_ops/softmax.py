"""SOFTMAX.

Invariant: the exponents of one row are computed once, in fixed point, and kept in a planned
scratch buffer of int32; nothing is approximated beyond what the reference approximates.
"""

from __future__ import annotations

import math

from ...fixed_point.multiplier import LIMITS
from .common import EIGHT_BITS, require_quantisation, require_same_type
from .exponentials import SUM_INTEGER_BITS, Differences, sum_of_row
from .fixed_tir import high_mul, leading_zeros, reciprocal_one_plus, rounding_shift_by
from .operator import Lowering, lowering, require
from .softmax16 import store_softmax16
from .tir import cast, clamp, const, load, row_indices


@lowering("SOFTMAX")
def softmax(work: Lowering) -> None:
    """Over the last axis; int8 to int8 or int16, int16 to int16, uint8 to uint8."""
    beta = float(work.options("SoftmaxOptions").Beta())
    data, output = work.tensor(0), work.output()
    if data.dtype == "int16":
        return store_softmax16(work, data, output, beta)
    require_same_type((data,), EIGHT_BITS)
    allowed = (data.dtype, "int16") if data.dtype == "int8" else (data.dtype,)
    require(output.dtype in allowed, f"output {output.name!r} is {output.dtype}, not {' or '.join(allowed)}")
    bits = 16 if output.dtype == "int16" else 8
    require_quantisation(output, 1.0 / (1 << bits), LIMITS[output.dtype][0], rel_tol=1e-3)
    differences = Differences.scaled(beta, data.scale)
    depth = data.shape[-1]
    rows = math.prod(data.shape) // depth

    function = work.function
    source, target = work.read(0, "input"), work.write()
    exponents = function.scratch("exponents", (depth,), "int32")
    low, high = LIMITS[output.dtype]
    with function.loop(rows, "row") as row:
        _, total = sum_of_row(function, source, row, differences, exponents)
        # 1 / total: normalise to [1, 2), then Newton's method.
        zeros = leading_zeros(function, total)
        normal = (cast(total, "int64") << cast(zeros, "int64")) - const(1 << 31, "int64")
        fraction = function.bind(cast(normal, "int32"), "fraction")
        reciprocal = reciprocal_one_plus(function, fraction)
        exponent = function.bind(const(SUM_INTEGER_BITS + 31 - bits) - zeros, "output_shift")
        with function.loop(depth, "c") as c:
            power = load(exponents, c)
            rounded = rounding_shift_by(function, high_mul(reciprocal, power), exponent)
            value = clamp(rounded + const(low), low, high)
            function.store(target, value, *row_indices(row, c, output.shape))
    return None
