"""The layers of TOSA's operators that move stored values, and of a CLAMP alone.

Invariant: stored values stay what they are, but for those that a CLAMP limits.
"""

from __future__ import annotations

from ...ethosu.layers.concat import Concat
from ...ethosu.layers.pad import Pad
from ...ethosu.layers.pool import PoolKind, PoolLayer
from ...ethosu.layers.reshape import Reshape
from ...ethosu.layers.slice import Slice
from ...ethosu.layers.transpose import Transpose
from ...ethosu.lower.tensors import Padding
from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import Clamp, Emitter, GraphBuilder
from .operands import clamp_of
from .resizing import nearest_layer


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in four dimensions."""
    return (1,) * (4 - len(shape)) + shape


def _clamp(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """A clamp of a tensor that others read too: a maximum of one element."""
    low, high = clamp_of(builder, operator)
    both = max(low, clamp[0]), min(high, clamp[1])
    shape = builder.shape(operator.outputs[0])
    image = builder.reshaped(builder.moved(operator.inputs[0]), _image_shape(shape))
    builder.add_reshaped(operator, PoolLayer("clamp", (image,), "", PoolKind.MAX, (1, 1), both), _image_shape(shape))


def _reshape(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    builder.add(operator, Reshape("reshape", (builder.moved(operator.inputs[0]),), ""))


def _transpose(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    shape, axes = builder.shape(operator.inputs[0]), operator.numbers(0)
    long = [axis for axis in axes if shape[axis] > 1]
    names = (builder.moved(operator.inputs[0]),)
    if long == sorted(long):
        builder.add(operator, Reshape("reshape", names, ""))
    else:
        builder.add(operator, Transpose("transpose", names, "", axes))


def _slice(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    begin = operator.shapes[0] if operator.shapes else ()
    if len(begin) != len(builder.shape(operator.inputs[0])):
        raise RejectedError("its start is no constant")
    builder.add(operator, Slice("slice", (builder.moved(operator.inputs[0]),), "", begin, (1,) * len(begin)))


def _concat(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    names = tuple(builder.moved(i) for i in operator.inputs)
    axis = operator.number(0) - len(builder.shape(operator.outputs[0]))
    builder.add(operator, Concat("concat", names, "", axis))


def _resize(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    builder.add(operator, nearest_layer(builder, operator))


def _pad(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    stated = operator.shapes[0] if operator.shapes else ()
    widths = (0,) * (8 - len(stated)) + stated
    if len(widths) != 8 or any(widths[:2]) or min(widths) < 0:
        raise RejectedError(f"it pads {list(stated)} in front of and behind each dimension; images fit, not batches")
    padding = Padding(widths[2], widths[4], widths[3], widths[5])
    value = builder.scalar(operator.inputs[1])
    shape, made = (_image_shape(builder.shape(i)) for i in (operator.inputs[0], operator.outputs[0]))
    image = builder.reshaped(builder.moved(operator.inputs[0]), shape)
    builder.add_reshaped(operator, Pad("pad", (image,), "", padding, value, (widths[6], widths[7])), made)


MOVES: dict[str, Emitter] = {
    "CLAMP": _clamp,
    "RESHAPE": _reshape,
    "IDENTITY": _reshape,
    "TRANSPOSE": _transpose,
    "SLICE": _slice,
    "CONCAT": _concat,
    "PAD": _pad,
    "RESIZE": _resize,
}
