"""The layers of TOSA's operators of windows and of whole axes, which make stored values of stored values.

Invariant: as that of `emitters`.
"""

from __future__ import annotations

from ...ethosu.arch import Language
from ...ethosu.layers.activation import Lookup
from ...ethosu.layers.argmax import ArgMax
from ...ethosu.layers.pool import PoolKind, PoolLayer
from ...ethosu.lower.scaling import Scale
from ...ethosu.lower.tensors import NO_PADDING
from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import Clamp, Emitter, GraphBuilder
from .dimensions import MOST, around
from .operands import stride_of, window_padding
from .strides import add_pool


def reduced(
    builder: GraphBuilder, name: str, shape: tuple[int, ...], axes: set[int]
) -> tuple[str, tuple[int, ...], tuple[int, int], bool]:
    """A tensor of `shape` as a window reduces it along `axes`: its name, the result's shape, the window, and whether
    that is the channels. Other axes than height, width and channels of one image are seen as a width.
    """
    rank = len(shape)
    known = axes == {rank - 1} or (rank in (3, 4) and axes <= {rank - 3, rank - 2})
    if not known or rank > MOST or (rank == MOST and shape[0] != 1):
        if max(axes) - min(axes) >= len(axes):
            raise RejectedError(f"it reduces axes {sorted(axes)} of {list(shape)}, which are no neighbours")
        shape = around(shape, sorted(axes))
        shape, axes = (shape, {1}) if shape[2] > 1 else (shape[:2], {1})
        name, rank = builder.reshaped(name, shape), len(shape)
    across = axes == {rank - 1}
    height, width = (shape[axis] if axis in axes else 1 for axis in (rank - 3, rank - 2))
    made = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return name, made, (1, shape[-1]) if across else (height, width), across


def _max_pool(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
    layer = PoolLayer(
        "max", (builder.moved(operator.inputs[0]),), "", PoolKind.MAX, (kernel[0], kernel[1]), clamp,
        stride_of(builder, operator, stride), window_padding(padding),
    )  # fmt: skip
    add_pool(builder, operator, layer)


def _maximum(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """REDUCE_MAX."""
    index = operator.inputs[0]
    name, made, kernel, across = reduced(builder, builder.moved(index), builder.shape(index), {operator.number(0)})
    layer = PoolLayer("max", (name,), "", PoolKind.MAX, kernel, clamp, reduces=True, across=across)
    builder.add_reshaped(operator, layer, made)


def _minimum(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """REDUCE_MIN: one pool on Ethos-U85; else the largest of the values with all bits turned, turned back."""
    index, turned = operator.inputs[0], tuple(range(127, -129, -1))
    if builder.target.language is Language.U85:
        name, made, kernel, across = reduced(builder, builder.moved(index), builder.shape(index), {operator.number(0)})
        layer = PoolLayer("min", (name,), "", PoolKind.MIN, kernel, clamp, reduces=True, across=across)
        builder.add_reshaped(operator, layer, made)
        return
    if builder.dtype(index) != "int8":
        raise RejectedError(f"it looks for the least of {builder.dtype(index)}, not int8")
    zero = builder.zero_points.get(operator.outputs[0], 0)
    other = builder.between(operator, Lookup("turn", (builder.moved(index),), "", turned), zero, builder.shape(index))
    name, made, kernel, across = reduced(builder, other, builder.shape(index), {operator.number(0)})
    layer = PoolLayer("max", (name,), "", PoolKind.MAX, kernel, clamp, reduces=True, across=across)
    most = builder.between(operator, layer, zero, made)
    builder.add_reshaped(operator, Lookup("turn", (most,), "", turned), made)


def _places(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """ARGMAX; of two equal maxima the first."""
    name, shape = builder.moved(operator.inputs[0]), builder.shape(operator.inputs[0])
    axis = operator.number(0)
    if len(shape) > MOST:
        name, axis = builder.reshaped(name, around(shape, (axis,))), 1
    builder.add(operator, ArgMax("arg_max", (name,), "", axis))


def _average_pool(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Stored values are averaged; with zero points, which halves are rounded away from, it is a sum with a scale."""
    kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
    before, after = (builder.scalar(operator.inputs[i]) for i in (1, 2))
    window, step, pads = (kernel[0], kernel[1]), stride_of(builder, operator, stride), window_padding(padding)
    if not before and not after:
        names = (builder.moved(operator.inputs[0]),)
        add_pool(builder, operator, PoolLayer("average", names, "", PoolKind.AVERAGE, window, clamp, step, pads))
        return
    if pads.any:
        names = (builder.read(operator.inputs[0], before),)
        layer = PoolLayer("average", names, "", PoolKind.VALID, window, clamp, step, pads)
        add_pool(builder, operator, layer, after)
        return
    count = kernel[0] * kernel[1]
    bits = (count - 1).bit_length()
    scale = Scale((((1 << 30) + 1) << bits) // count, 30 + bits)  # as the specification has it
    names = (builder.read(operator.inputs[0], before),)
    layer = PoolLayer("average", names, "", PoolKind.SUM, window, clamp, step, NO_PADDING, stated=scale)
    add_pool(builder, operator, layer, after)


POOLS: dict[str, Emitter] = {
    "AVG_POOL2D": _average_pool,
    "MAX_POOL2D": _max_pool,
    "REDUCE_MAX": _maximum,
    "REDUCE_MIN": _minimum,
    "ARGMAX": _places,
}
