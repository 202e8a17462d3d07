"""DIV: by the divisor's reciprocal, which is a table of the 256 divisors that a tensor of 8 bits can hold.

Invariant: wherever the reference's arithmetic is defined C, the results are its bits. It divides by no zero, and
shifts by no more than 31 bits, which quotients near zero can ask for. Here a zero divides like the smallest step,
and such a quotient is rounded to zero.
"""

from __future__ import annotations

import numpy as np

from ...fixed_point.functions import reciprocal_one_plus
from ...fixed_point.multiplier import LIMITS, IntArray, quantise_multiplier
from ...models.tensor import Tensor
from .common import EIGHT_BITS, clamp_to_activation, require_same_type
from .elementwise import broadcast
from .fixed_tir import high_mul, leading_zeros, rounding_shift_by
from .operator import Lowering, lowering, require
from .tir import cast, const, load, select

_LEAST_HEADROOM = 23  # bits that a difference of two numbers of 8 bits leaves free in an int32


@lowering("DIV")
def divide(work: Lowering) -> None:
    """input 0 / input 1."""
    options = work.options("DivOptions")
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    require_same_type((a, b, output), EIGHT_BITS)
    multiplier, shift = quantise_multiplier(a.scale / (b.scale * output.scale))
    require(shift <= _LEAST_HEADROOM, f"output scale {output.scale} is too small for its inputs' scales")
    values, bits = _reciprocals(b)

    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    reciprocals, exponents = work.table("reciprocals", values), work.table("exponents", bits)
    with function.grid(output.shape) as place:
        x = load(first, *broadcast(place, a, output)) - const(a.zero_point)
        divisor = function.bind(load(second, *broadcast(place, b, output)), "divisor")
        x = function.bind(select(divisor < b.zero_point, const(0) - x, x), "x")
        zeros = leading_zeros(function, select(x < 0, const(-1) - x, x))
        headroom = function.bind(zeros - const(1), "headroom")
        widest = cast(x, "int64") * (const(1, "int64") << cast(headroom, "int64"))
        entry = divisor - const(LIMITS[b.dtype][0])
        quotient = high_mul(high_mul(widest, load(reciprocals, entry)), multiplier)
        result = rounding_shift_by(function, quotient, load(exponents, entry) + headroom - const(shift))
        function.store(target, clamp_to_activation(result, options.FusedActivationFunction(), output), *place)


def _reciprocals(divisor: Tensor) -> tuple[IntArray, IntArray]:
    """1 / |d| as (31 fraction bits, right shift) for every d that `divisor` can hold, from the least."""
    least, most = LIMITS[divisor.dtype]
    size = np.maximum(np.abs(np.arange(least, most + 1, dtype=np.int64) - divisor.zero_point), 1)
    bits = np.frexp(size)[1].astype(np.int64) - 1
    fraction = (size << (31 - bits)) - (1 << 31)
    return reciprocal_one_plus(fraction, subtract_one=False).astype(np.int32), bits.astype(np.int8)
