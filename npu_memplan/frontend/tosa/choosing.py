"""The layers of TOSA's comparisons of widened int8 values, and of SELECT.

Invariant: flags are 0 and 1 as TOSA has them; what is compared are the 32-bit numbers of the file.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...ethosu.layers.comparison import ComparedMaps, Numbers, compared
from ...ethosu.layers.select import Select
from ...ethosu.lower.tensors import INT8
from ...ethosu.reading.reader import RejectedError
from ...ethosu.stream.isa import ElementwiseMode
from ...models.tosa_graph import TosaOperator
from .builder import Clamp, Emitter, GraphBuilder
from .functions import byte_function, constant_values

_MODES = {
    "EQUAL": ElementwiseMode.CMP_EQ,
    "GREATER": ElementwiseMode.CMP_GT,
    "GREATER_EQUAL": ElementwiseMode.CMP_GE,
}


def _compared(mode: ElementwiseMode, builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    names, numbers = zip(*(_operand(builder, operator, index) for index in operator.inputs), strict=True)
    both = compared((numbers[0], numbers[1]))
    builder.add(operator, ComparedMaps(operator.kind.lower(), (names[0], names[1]), "", mode, both))


def _operand(builder: GraphBuilder, operator: TosaOperator, index: int) -> tuple[str, Numbers]:
    """The name of an int8 tensor, and the 32-bit number that each of its values stands for in tensor `index`."""
    constant = constant_values(builder, index)
    if constant is not None:
        values, places = np.unique(constant.reshape(-1), return_inverse=True)
        if len(values) > 1 << 8:
            raise RejectedError(f"it compares with {len(values)} constants; at most 256 are told apart")
        numbers = tuple(int(v) for v in values) + (int(values[-1]),) * (256 - len(values))
        return builder.tensor_like(index, 0, places + INT8[0]), numbers
    known = byte_function(builder, index, operator.index)
    if known is None or builder.shape(known.source) != builder.shape(index):
        raise RejectedError(f"its operand {builder.graph.tensor(index).name!r} is no function of one int8 tensor")
    return builder.read(known.source), tuple(int(v) for v in known.values)


def _select(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    flags, yes, no = (builder.read(index) for index in operator.inputs)
    builder.add(operator, Select("select", (flags, yes, no), ""))


CHOOSING: dict[str, Emitter] = {
    **{kind: partial(_compared, mode) for kind, mode in _MODES.items()},
    "SELECT": _select,
}
