"""Functions of one value: chains of 32-bit operators and TOSA's TABLE, as tables of the NPU.

Functions of one 8-bit value: chains of 32-bit operators between two RESCALEs, as the 256 values that they make.

Invariant: values are what TOSA's operators make of every 8-bit number; where one would not fit 32 bits, which TOSA
leaves open, the graph is refused.

The layers of TOSA's TABLE and NEGATE: of int8 256 results, of int16 the ends of 512 lines with a RESCALE after.

Invariant: results of int16 are those of TOSA's TABLE and RESCALE for every one of 65,536 values, which are all tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.layers.activation import Interpolation, Lookup
from ...ethosu.reading.reader import RejectedError
from ...models.tosa import TosaOperator
from .builder import EVERY_BYTE, Clamp, GraphBuilder
from .operands import rescale_numbers
from .rescaling import Rescaling

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


_LINES, _STEP_BITS = 512, 7
_INT16 = np.iinfo(np.int16)


def byte_table(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """TABLE of int8."""
    entries = builder.constant(operator.inputs[1]).reshape(-1).astype(np.int64)
    table = tuple(int(v) for v in np.clip(entries, *clamp))
    builder.add(operator, Lookup("table", (builder.moved(operator.inputs[0]),), "", table))


def negated(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """NEGATE of int8, as a table."""
    if builder.dtype(operator.inputs[0]) != "int8":
        raise RejectedError(f"it negates {builder.dtype(operator.inputs[0])}, not int8")
    before, after = (builder.scalar(zero) for zero in operator.inputs[1:])
    table = tuple(int(v) for v in np.clip(after + before - EVERY_BYTE, *clamp))
    builder.add(operator, Lookup("negate", (builder.moved(operator.inputs[0]),), "", table), after)


def word_table(
    builder: GraphBuilder, operator: TosaOperator, computed: TosaOperator, numbers: Rescaling, clamp: Clamp
) -> None:
    """TABLE of int16, whose results have 7 bits of fraction, and the RESCALE that rounds them."""
    entries = builder.constant(computed.inputs[1]).reshape(-1).astype(np.int64)
    types = builder.dtype(computed.inputs[0]), builder.dtype(operator.outputs[0])
    if types != ("int16", "int16") or len(entries) != _LINES + 1:
        raise RejectedError(f"it makes {types[1]} of {types[0]} with {len(entries)} entries; int16 of int16 fits")
    base, slope = entries[:-1, None], np.diff(entries)[:, None]
    if slope.min() < _INT16.min or slope.max() > _INT16.max:
        raise RejectedError("a line of its table rises by more than 16 bits")
    lines = (base << _STEP_BITS) + slope * np.arange(1 << _STEP_BITS)
    wanted = np.clip(numbers(lines), *clamp)
    if not np.array_equal(lines + (1 << _STEP_BITS - 1) >> _STEP_BITS, wanted):
        raise RejectedError("its RESCALE does more than round 7 bits of fraction")
    words = tuple(int(v) for v in ((slope << 16) | (base & 0xFFFF)).reshape(-1))
    builder.add(
        operator, Interpolation("table", (builder.read(computed.inputs[0], 0),), "", words), numbers.output_zero
    )
