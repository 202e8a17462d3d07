"""The layers of TOSA's TABLE and NEGATE: of int8 256 results, of int16 the ends of 512 lines with a RESCALE after.

Invariant: results of int16 are those of TOSA's TABLE and RESCALE for every one of 65,536 values, which are all tried.
"""

from __future__ import annotations

import numpy as np

from ...ethosu.layers.activation import Interpolation, Lookup
from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import EVERY_BYTE, Clamp, GraphBuilder
from .rescaling import Rescaling

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
