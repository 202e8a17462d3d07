"""The layers of TOSA's operators of windows, of whole axes and of tables, which make stored values of stored values.

Invariant: as that of `emitters`.
"""

from __future__ import annotations

import numpy as np

from ...ethosu.layers.activation import Lookup
from ...ethosu.layers.argmax import ArgMax
from ...ethosu.layers.pool import PoolKind, PoolLayer
from ...ethosu.lower.scaling import Scale
from ...ethosu.lower.tensors import NO_PADDING
from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import Clamp, Emitter, GraphBuilder
from .operands import stride_of, window_padding


def reduced_window(shape: tuple[int, ...], axes: set[int]) -> tuple[tuple[int, int], bool]:
    """The window of a reduction along `axes`, and whether it is the channels."""
    rank = len(shape)
    across = axes == {rank - 1}
    if not across and (rank not in (3, 4) or not axes <= {rank - 3, rank - 2} or (rank == 4 and shape[0] != 1)):
        raise RejectedError(f"it reduces axes {sorted(axes)} of {list(shape)}; height, width or channels of one "
                            "image fit the NPU")  # fmt: skip
    height, width = (shape[axis] if axis in axes else 1 for axis in (rank - 3, rank - 2))
    return (1, shape[-1]) if across else (height, width), across


def _max_pool(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
    layer = PoolLayer(
        "max", (builder.moved(operator.inputs[0]),), "", PoolKind.MAX, (kernel[0], kernel[1]), clamp,
        stride_of(builder, operator, stride), window_padding(padding),
    )  # fmt: skip
    builder.add(operator, layer)


def _maximum(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """REDUCE_MAX."""
    kernel, across = reduced_window(builder.shape(operator.inputs[0]), {operator.number(0)})
    names = (builder.moved(operator.inputs[0]),)
    builder.add(operator, PoolLayer("max", names, "", PoolKind.MAX, kernel, clamp, reduces=True, across=across))


def _places(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """ARGMAX; of two equal maxima the first."""
    builder.add(operator, ArgMax("arg_max", (builder.moved(operator.inputs[0]),), "", operator.number(0)))


def _average_pool(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Stored values are averaged; with zero points, which halves are rounded away from, it is a sum with a scale."""
    kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
    before, behind = (builder.scalar(operator.inputs[i]) for i in (1, 2))
    window, step, pads = (kernel[0], kernel[1]), stride_of(builder, operator, stride), window_padding(padding)
    if not before and not behind:
        names = (builder.moved(operator.inputs[0]),)
        builder.add(operator, PoolLayer("average", names, "", PoolKind.AVERAGE, window, clamp, step, pads))
        return
    if pads.any:
        raise RejectedError("it is padded and has zero points")
    count = kernel[0] * kernel[1]
    bits = (count - 1).bit_length()
    scale = Scale((((1 << 30) + 1) << bits) // count, 30 + bits)  # as the specification has it
    names = (builder.read(operator.inputs[0], before),)
    layer = PoolLayer("average", names, "", PoolKind.SUM, window, clamp, step, NO_PADDING, stated=scale)
    builder.add(operator, layer, behind)


def _table(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    if builder.dtype(operator.inputs[0]) != "int8":
        raise RejectedError(f"its input is {builder.dtype(operator.inputs[0])}, not int8")
    entries = builder.constant(operator.inputs[1]).reshape(-1).astype(np.int64)
    table = tuple(int(v) for v in np.clip(entries, *clamp))
    builder.add(operator, Lookup("table", (builder.moved(operator.inputs[0]),), "", table))


POOLS: dict[str, Emitter] = {
    "AVG_POOL2D": _average_pool,
    "MAX_POOL2D": _max_pool,
    "REDUCE_MAX": _maximum,
    "ARGMAX": _places,
    "TABLE": _table,
}
