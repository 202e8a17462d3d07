"""EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL and LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT.

Invariant: the result is bool, one byte, 0 or 1.
"""

from __future__ import annotations

from tvm import tirx

from ..comparison import COMPARISONS
from ..operator import Lowering, lowering, require
from .numbers import NUMBERS, element_by_element, pair_by_pair

_EQUALITY = ("EQUAL", "NOT_EQUAL")
_LOGIC = {"LOGICAL_AND": tirx.And, "LOGICAL_OR": tirx.Or}


@lowering(*COMPARISONS, plain=True)
def compare(work: Lowering) -> None:
    """Whether input 0 is equal to, greater or less than input 1."""
    output = work.output()
    require(output.dtype == "bool", f"output {output.name!r} is {output.dtype}, not bool")
    name = work.operator.name
    allowed = (*NUMBERS, "bool") if name in _EQUALITY else NUMBERS
    pair_by_pair(work, lambda _, x, y: COMPARISONS[name](x, y), allowed)


@lowering(*_LOGIC, plain=True)
def combine(work: Lowering) -> None:
    """input 0 and, or: input 1."""
    connect = _LOGIC[work.operator.name]
    pair_by_pair(work, lambda _, x, y: connect(x, y), ("bool",))


@lowering("LOGICAL_NOT", plain=True)
def invert(work: Lowering) -> None:
    """Not the input."""
    element_by_element(work, lambda _, x: tirx.Not(x), ("bool",))
