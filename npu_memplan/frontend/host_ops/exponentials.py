"""What SOFTMAX and LOG_SOFTMAX of int8 share: the sum over one row of exp(x - largest x).

Invariant: exponentials have 31 fraction bits and their sum `31 - SUM_INTEGER_BITS`; differences so far below the
largest element that fixed point cannot hold them count nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...fixed_point.multiplier import LIMITS, input_radius, quantise_multiplier
from .fixed_tir import exp_on_negative, high_mul, rounding_shift
from .operator import require
from .tir import Buffer, Expr, Function, const, largest, load, row_indices, select

DIFF_INTEGER_BITS = 5
SUM_INTEGER_BITS = 12


@dataclass(frozen=True, slots=True)
class Differences:
    """How differences of stored values become real ones with `31 - DIFF_INTEGER_BITS` fraction bits."""

    multiplier: int
    shift: int
    lowest: int  # the smallest difference that does not leave the format

    @classmethod
    def scaled(cls, beta: float, scale: float) -> Differences:
        """For inputs of this scale, times beta; `UnsupportedOperatorError` where the product is too small."""
        real = min(beta * scale * (1 << (31 - DIFF_INTEGER_BITS)), float((1 << 31) - 1))
        require(real > 1.0, f"beta {beta} x input scale {scale} is too small for fixed point")
        multiplier, shift = quantise_multiplier(real)
        return cls(multiplier, shift, -input_radius(DIFF_INTEGER_BITS, shift))

    def rescale(self, difference: Expr) -> Expr:
        """A difference not below `lowest`, in the format."""
        # With a shift of 31, `lowest` is 0: there is nothing to shift.
        return high_mul(difference * const(1 << min(self.shift, 30)), self.multiplier)


def sum_of_row(
    function: Function, source: Buffer, row: Expr, differences: Differences, kept: Buffer | None = None
) -> tuple[Expr, Expr]:
    """(largest element, sum of exponentials) of a row of `source`; the exponentials themselves go to `kept`."""
    shape = [int(extent) for extent in source.shape]
    peak, total = function.local("peak"), function.local("total")
    peak.set(const(LIMITS[str(source.dtype)][0]))
    with function.loop(shape[-1], "c") as c:
        peak.set(largest(peak.get(), load(source, *row_indices(row, c, shape))))
    total.set(const(0))
    with function.loop(shape[-1], "c") as c:
        difference = function.bind(load(source, *row_indices(row, c, shape)) - peak.get(), "difference")
        # Below the radius the result is zero; the product must not leave int32 there.
        scaled = differences.rescale(largest(difference, const(differences.lowest)))
        power = exp_on_negative(function, scaled, DIFF_INTEGER_BITS)
        power = function.bind(select(difference >= differences.lowest, power, const(0)), "exponential")
        if kept is not None:
            function.store(kept, power, c)
        total.add(rounding_shift(function, power, SUM_INTEGER_BITS))
    return peak.get(), total.get()
