"""Functions of one 8-bit value: chains of 32-bit operators between two RESCALEs, as the 256 values that they make.

Invariant: values are what TOSA's operators make of every 8-bit number; where one would not fit 32 bits, which TOSA
leaves open, the graph is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import EVERY_BYTE, GraphBuilder
from .operands import rescale_numbers

_INT32 = np.iinfo(np.int32)
PAIRS: dict[str, Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
}
FUNCTIONS = frozenset(("ABS", "NEGATE", "RESCALE", *PAIRS))


@dataclass(frozen=True, slots=True, eq=False)
class ByteFunction:
    """The 32-bit values that are made of each value of the int8 tensor `source`, from -128 on."""

    source: int
    values: NDArray[np.int64]


def byte_function(builder: GraphBuilder, index: int, before: int) -> ByteFunction | None:
    """How the 32-bit tensor `index` follows from one int8 tensor, element by element, in operators before number
    `before`; None where it does not.
    """
    made = builder.made_by.get(index)
    if made is None or made.index >= before or made.kind not in FUNCTIONS or not made.inputs:
        return None
    if builder.dtype(index) != "int32":
        return None  # its values would have been narrowed
    if made.kind in PAIRS:
        return _of_constant(builder, made)
    source, values = made.inputs[0], EVERY_BYTE
    if made.kind != "RESCALE" or builder.dtype(source) != "int8":
        known = byte_function(builder, source, made.index)
        if known is None:
            return None
        source, values = known.source, known.values
    elif source in builder.graph.constants:
        return None
    if made.kind == "RESCALE":
        return _fitting(made, source, rescale_numbers(builder, made)(values))
    if made.kind == "NEGATE" and any(builder.scalar(zero) for zero in made.inputs[1:]):
        return None
    return _fitting(made, source, np.abs(values) if made.kind == "ABS" else -values)


def _of_constant(builder: GraphBuilder, operator: TosaOperator) -> ByteFunction | None:
    """An operator of two values, of which one is one constant."""
    pair = operator.inputs[:2]
    if operator.kind == "MUL" and builder.scalar(operator.inputs[2]):
        return None
    for place, index in enumerate(pair):
        constant = constant_values(builder, pair[1 - place])
        if constant is None or constant.size != 1:
            continue
        known = byte_function(builder, index, operator.index)
        if known is not None:
            operands = [known.values, constant.reshape(1)]
            return _fitting(operator, known.source, PAIRS[operator.kind](*(operands[::-1] if place else operands)))
    return None


def constant_values(builder: GraphBuilder, index: int) -> NDArray[np.int64] | None:
    """The values of a 32-bit tensor that is constant, or a RESCALE of a stored constant; None of others."""
    known = builder.graph.constants.get(index)
    if known is not None:
        return known.astype(np.int64)
    made = builder.made_by.get(index)
    if made is None or made.kind != "RESCALE" or not made.inputs:
        return None
    stored = builder.graph.constants.get(made.inputs[0])
    if stored is None or stored.dtype not in (np.int8, np.int16):
        return None
    return rescale_numbers(builder, made)(stored.astype(np.int64))


def _fitting(operator: TosaOperator, source: int, values: NDArray[Any]) -> ByteFunction:
    if values.min() < _INT32.min or values.max() > _INT32.max:
        raise RejectedError(f"operator {operator.index} ({operator.kind}) makes values beyond 32 bits")
    return ByteFunction(source, values)
