"""The layers of TOSA's operators that move stored values, and of a CLAMP alone.

Invariant: stored values stay what they are, but for those that a CLAMP limits.
"""

from __future__ import annotations

from dataclasses import replace

from ...ethosu.layers.concat import Concat
from ...ethosu.layers.indexed import PlacedRows, TakenRows
from ...ethosu.layers.pad import Pad
from ...ethosu.layers.pool import PoolKind, PoolLayer
from ...ethosu.layers.reshape import Reshape
from ...ethosu.layers.reverse import Reverse
from ...ethosu.layers.slice import Slice
from ...ethosu.layers.transpose import Transpose
from ...ethosu.lower.tensors import Padding
from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import Clamp, Emitter, GraphBuilder
from .dimensions import MOST, around, image_shape, joined, swaps
from .operands import clamp_of
from .resizing import nearest_layer


def _clamp(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """A clamp of a tensor that others read too: a maximum of one element."""
    low, high = clamp_of(builder, operator)
    both = max(low, clamp[0]), min(high, clamp[1])
    shape = image_shape(builder.shape(operator.outputs[0]))
    image = builder.reshaped(builder.moved(operator.inputs[0]), shape)
    builder.add_reshaped(operator, PoolLayer("clamp", (image,), "", PoolKind.MAX, (1, 1), both), shape)


def _reshape(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    builder.add(operator, Reshape("reshape", (builder.moved(operator.inputs[0]),), ""))


def _transpose(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Where no layer does it at once, neighbours change places, one pair after the other."""
    stated, name = (builder.shape(operator.inputs[0]), operator.numbers(0)), builder.moved(operator.inputs[0])
    shape, axes = joined(*stated)
    if len(axes) < 2:
        builder.add(operator, Reshape("reshape", (name,), ""))
        return
    zero = builder.zero_points.get(operator.outputs[0], 0)
    at_once = next((step for step in (stated, (shape, axes)) if _fits(builder, name, *step)), None)
    steps = [at_once] if at_once else swaps(shape, axes)
    for place, (shape, axes) in enumerate(steps, 1):
        layer = Transpose("transpose", (builder.reshaped(name, shape),), "", axes)
        made = tuple(shape[axis] for axis in axes)
        if place == len(steps):
            builder.add_reshaped(operator, layer, made)
        else:
            name = builder.between(operator, layer, zero, made)


def _fits(builder: GraphBuilder, name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    seen = replace(builder.tensors[name], shape=shape)
    return len(axes) <= MOST and Transpose("", (name,), "", axes).unsupported_by(builder.target, (seen,)) is None


def _slice(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    begin, shape = operator.shapes[0] if operator.shapes else (), builder.shape(operator.inputs[0])
    if len(begin) != len(shape):
        raise RejectedError("its start is no constant")
    name, made = builder.moved(operator.inputs[0]), builder.shape(operator.outputs[0])
    if len(begin) <= MOST:
        builder.add(operator, Slice("slice", (name,), "", begin, (1,) * len(begin)))
        return
    zero = builder.zero_points.get(operator.outputs[0], 0)
    for axis, extent in enumerate(made):  # one after the other
        if extent < shape[axis]:
            whole = around(shape, (axis,))
            shape = (*shape[:axis], extent, *shape[axis + 1 :])
            layer = Slice("slice", (builder.reshaped(name, whole),), "", (0, begin[axis], 0), (1, 1, 1))
            name = builder.between(operator, layer, zero, around(shape, (axis,)))
    builder.add(operator, Reshape("reshape", (name,), ""))


def _concat(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    names, made = [builder.moved(i) for i in operator.inputs], builder.shape(operator.outputs[0])
    axis = operator.number(0)
    if len(made) > MOST:
        seen = [around(builder.shape(i), (axis,)) for i in operator.inputs]
        names = [builder.reshaped(name, shape) for name, shape in zip(names, seen, strict=True)]
        made, axis = around(made, (axis,)), 1
    builder.add_reshaped(operator, Concat("concat", tuple(names), "", axis - len(made)), made)


def _tile(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Repeated along one axis after the other."""
    name, shape = builder.moved(operator.inputs[0]), builder.shape(operator.inputs[0])
    zero = builder.zero_points.get(operator.outputs[0], 0)
    for axis, count in enumerate(operator.shapes[0]):
        if count > 1:
            seen = builder.reshaped(name, around(shape, (axis,)))
            shape = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
            name = builder.between(operator, Concat("tile", (seen,) * count, "", -2), zero, around(shape, (axis,)))
    builder.add(operator, Reshape("reshape", (name,), ""))


def _resize(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    builder.add(operator, nearest_layer(builder, operator))


def _pad(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    stated = operator.shapes[0] if operator.shapes else ()
    widths = (0,) * (8 - len(stated)) + stated
    if len(widths) != 8 or any(widths[:2]) or min(widths) < 0:
        raise RejectedError(f"it pads {list(stated)} in front of and behind each dimension; images fit, not batches")
    padding = Padding(widths[2], widths[4], widths[3], widths[5])
    value = builder.scalar(operator.inputs[1])
    shape, made = (
        shape if len(shape) == MOST else image_shape(shape)
        for shape in (builder.shape(i) for i in (operator.inputs[0], operator.outputs[0]))
    )
    image = builder.reshaped(builder.moved(operator.inputs[0]), shape)
    builder.add_reshaped(operator, Pad("pad", (image,), "", padding, value, (widths[6], widths[7])), made)


def _reverse(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """Backwards along one axis, with what is before and after it as one axis each."""
    shape, axis = around(builder.shape(operator.inputs[0]), (operator.number(0),)), 1
    name = builder.reshaped(builder.moved(operator.inputs[0]), shape)
    builder.add_reshaped(operator, Reverse("reverse", (name,), "", axis, axis), shape)


def _taken_rows(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """GATHER of each image's rows, which also are of a constant."""
    values, indices = operator.inputs
    chosen = builder.reshaped(_indices(builder, indices), builder.shape(indices))
    builder.add(operator, TakenRows("gather", (builder.read(values), chosen), "", axis=1, shared=1))


def _placed_rows(builder: GraphBuilder, operator: TosaOperator, clamp: Clamp) -> None:
    """SCATTER; its indices do not repeat."""
    values, indices, rows = operator.inputs
    chosen = builder.reshaped(_indices(builder, indices), builder.shape(indices))
    builder.add(operator, PlacedRows("scatter", (builder.read(values), chosen, builder.read(rows)), ""))


def _indices(builder: GraphBuilder, index: int) -> str:
    """The name of a tensor with the indices in their order, before it got its shape."""
    made = builder.made_by.get(index)
    while made is not None and made.kind in ("RESHAPE", "IDENTITY"):
        index = made.inputs[0]
        made = builder.made_by.get(index)
    return builder.read(index)


MOVES: dict[str, Emitter] = {
    "CLAMP": _clamp,
    "RESHAPE": _reshape,
    "IDENTITY": _reshape,
    "TRANSPOSE": _transpose,
    "SLICE": _slice,
    "CONCAT": _concat,
    "PAD": _pad,
    "TILE": _tile,
    "RESIZE": _resize,
    "REVERSE": _reverse,
    "GATHER": _taken_rows,
    "SCATTER": _placed_rows,
}
