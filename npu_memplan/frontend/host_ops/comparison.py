"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS and LESS_EQUAL, with broadcasting.

Invariant: what is compared are the real values in fixed point, as in the reference: two of them that differ by
less than its 8 extra bits can tell are equal.
"""

from __future__ import annotations

from tvm import tirx

from ...fixed_point.multiplier import quantise_multiplier
from .common import EIGHT_BITS, require_same_type
from .elementwise import each, rescaled
from .operator import Lowering, lowering, require
from .tir import Expr

_LEFT_SHIFT = 8
COMPARISONS = {
    "EQUAL": tirx.EQ,
    "NOT_EQUAL": tirx.NE,
    "GREATER": tirx.GT,
    "GREATER_EQUAL": tirx.GE,
    "LESS": tirx.LT,
    "LESS_EQUAL": tirx.LE,
}


@lowering(*COMPARISONS)
def compare(work: Lowering) -> None:
    """Whether input 0 is equal to, greater or less than input 1."""
    pair, output = (work.tensor(0), work.tensor(1)), work.output()
    require_same_type(pair, EIGHT_BITS)
    require(output.dtype == "bool", f"output {output.name!r} is {output.dtype}, not bool")
    for tensor in pair:
        require(tensor.scale < 1.0, f"tensor {tensor.name!r} has scale {tensor.scale}; the reference takes < 1")
    scales = [quantise_multiplier(tensor.scale) for tensor in pair]

    def result(*values: Expr) -> Expr:
        operands = rescaled(work, values, _LEFT_SHIFT, scales)
        return COMPARISONS[work.operator.name](*(work.function.bind(operand, "operand") for operand in operands))

    each(work, result, "first", "second")
