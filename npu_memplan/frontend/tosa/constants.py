"""What operators of TOSA make of constants.

Invariant: values are the specification's; where it leaves them open, or an operator is not known here, there are none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import GraphBuilder
from .functions import PAIRS
from .operands import clamp_of, rescale_numbers
from .simplify import moved_values

_TYPES = ("int8", "int16", "int32")


def constant_result(builder: GraphBuilder, operator: TosaOperator, given: list[NDArray[Any]]) -> NDArray[Any] | None:
    """What `operator` makes of the constants `given`; None of what is not known here, or does not fit its type."""
    dtype = builder.dtype(operator.outputs[0])
    if dtype not in _TYPES or any(values.dtype.kind != "i" for values in given):
        return None
    try:
        made = _computed(builder, operator, [values.astype(np.int64) for values in given])
    except RejectedError:
        return None
    info = np.iinfo(dtype)
    if made is None or made.shape != builder.shape(operator.outputs[0]):
        return None
    return made.astype(dtype) if info.min <= made.min() and made.max() <= info.max else None


def _computed(builder: GraphBuilder, operator: TosaOperator, given: list[NDArray[np.int64]]) -> NDArray[Any] | None:
    kind, info = operator.kind, np.iinfo(builder.dtype(operator.outputs[0]))
    if kind == "RESCALE":
        made = rescale_numbers(builder, operator).single(given[0])
        return made if info.bits == 32 else np.clip(made, info.min, info.max)
    if kind in PAIRS:
        fits = builder.shape(operator.outputs[0]) in (given[0].shape, given[1].shape)
        shifted = kind == "MUL" and given[2].any()
        return PAIRS[kind](given[0], given[1]) if fits and not shifted else None
    if kind == "ABS":
        return np.abs(given[0])
    if kind == "CLAMP":
        return np.clip(given[0], *clamp_of(builder, operator))
    if kind == "TABLE" and builder.dtype(operator.inputs[0]) == "int8":
        return given[1].reshape(-1)[given[0] + 128]
    return moved_values(operator, given[0], builder.shape(operator.outputs[0]))
