"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS and LESS_EQUAL, with broadcasting.

Invariant: what is compared are the real values in fixed point, as in the reference: two of them that differ by
less than its 8 extra bits can tell are equal.
"""

from __future__ import annotations

from tvm import tirx

from ...fixed_point.multiplier import quantise_multiplier
from .common import EIGHT_BITS, require_same_type
from .elementwise import rescaled
from .operator import Lowering, UnsupportedOperatorError, lowering

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
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    require_same_type((a, b), EIGHT_BITS)
    if output.dtype != "bool":
        raise UnsupportedOperatorError(f"output {output.name!r} is {output.dtype}, not bool")
    for tensor in (a, b):
        if tensor.scale >= 1.0:
            raise UnsupportedOperatorError(f"tensor {tensor.name!r} has scale {tensor.scale}; the reference takes < 1")
    scales = [quantise_multiplier(tensor.scale) for tensor in (a, b)]
    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    with function.grid(output.shape) as place:
        operands = [
            function.bind(operand, "operand") for operand in rescaled(work, (first, second), place, _LEFT_SHIFT, scales)
        ]
        function.store(target, COMPARISONS[work.operator.name](*operands), *place)
