"""The shape that an operator's result has by the specification, from its inputs and attributes.

Invariant: `check_shape` passes where the file's shape is that, so that no layer reads or writes beyond a tensor.
"""

from __future__ import annotations

from ...ethosu.reading.reader import RejectedError
from ...models.tosa import TosaOperator
from .builder import GraphBuilder, Shape
from .moves import resized_shape

_CONVOLUTIONS = frozenset(("CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D"))
_POOLS = frozenset(("AVG_POOL2D", "MAX_POOL2D"))


def check_shape(builder: GraphBuilder, operator: TosaOperator) -> None:
    """`RejectedError` where the file gives an operator's result another shape than its inputs make."""
    wanted = _shape(builder, operator)
    stated = builder.shape(operator.outputs[0])
    if wanted is not None and wanted != stated:
        raise RejectedError(f"its result has the shape {list(stated)} in the file, its inputs make {list(wanted)}")


def _shape(builder: GraphBuilder, operator: TosaOperator) -> Shape | None:
    """None for operators without a layer, and for RESHAPE of as many elements."""
    shapes, kind = [builder.shape(i) for i in operator.inputs], operator.kind
    if kind in _CONVOLUTIONS:
        return _convolved(operator, shapes)
    if kind in _POOLS:
        kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
        return _windows(shapes[0], kernel, stride, padding, (1, 1), shapes[0][3])
    if kind in ("RESCALE", "CLAMP", "TABLE", "IDENTITY", "ABS", "NEGATE"):
        if kind == "RESCALE" and any(len(s) != 1 or s[0] not in (1, *shapes[0][-1:]) for s in shapes[1:3]):
            raise RejectedError("its scales are neither one nor one for each channel")
        return shapes[0]
    if kind in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "EQUAL", "GREATER", "GREATER_EQUAL"):
        return _joined(shapes[:2])
    if kind == "SELECT":
        return _joined(shapes)
    if kind == "RESIZE":
        return resized_shape(operator, shapes[0])
    if kind == "REVERSE":
        _axis(operator.number(0), shapes[0])
        return shapes[0]
    if kind == "ARGMAX":
        axis = _axis(operator.number(0), shapes[0])
        return shapes[0][:axis] + shapes[0][axis + 1 :]
    if kind in ("REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN"):
        axis = _axis(operator.number(0), shapes[0])
        return tuple(1 if i == axis else extent for i, extent in enumerate(shapes[0]))
    if kind == "MATMUL":
        (n, rows, depth), (batch, inner, columns) = shapes[:2]
        if batch != n or inner != depth:
            raise RejectedError(f"it multiplies {list(shapes[0])} by {list(shapes[1])}")
        return n, rows, columns
    return _moved(builder, operator, shapes)


def _joined(shapes: list[Shape]) -> Shape:
    """Of operands that are broadcast."""
    axes = list(zip(*shapes, strict=True))
    if any(len({1, *extents}) > 2 for extents in axes):
        raise RejectedError(f"its operands have the shapes {' and '.join(str(list(shape)) for shape in shapes)}")
    return tuple(max(extents) for extents in axes)


def _moved(builder: GraphBuilder, operator: TosaOperator, shapes: list[Shape]) -> Shape | None:
    stated = builder.shape(operator.outputs[0])
    if operator.kind == "RESHAPE":
        return None if _count(shapes[0]) == _count(stated) else shapes[0]
    if operator.kind == "TRANSPOSE":
        axes = operator.numbers(0)
        if sorted(axes) != list(range(len(shapes[0]))):
            raise RejectedError(f"its axes are {list(axes)}")
        return tuple(shapes[0][axis] for axis in axes)
    if operator.kind == "SLICE":
        begin, size = operator.shapes
        if any(b < 0 or s < 1 or b + s > e for b, s, e in zip(begin, size, shapes[0], strict=True)):
            raise RejectedError(f"it takes {list(size)} from {list(begin)} on of {list(shapes[0])}")
        return size
    if operator.kind == "CONCAT":
        axis = _axis(operator.number(0), stated)
        if any(s[:axis] + s[axis + 1 :] != stated[:axis] + stated[axis + 1 :] for s in shapes):
            raise RejectedError("its inputs have shapes that do not go together")
        return (*stated[:axis], sum(s[axis] for s in shapes), *stated[axis + 1 :])
    if operator.kind == "GATHER":
        (n, _, channels), (images, count) = shapes
        if images != n:
            raise RejectedError(f"it takes rows of {list(shapes[0])} by indices of {list(shapes[1])}")
        return n, count, channels
    if operator.kind == "SCATTER":
        (n, extent, channels), (images, count), given = shapes
        if images != n or given != (n, count, channels):
            raise RejectedError(f"it places rows of {list(given)} in {list(shapes[0])} by {list(shapes[1])}")
        return n, extent, channels
    if operator.kind == "TILE":
        (times,) = operator.shapes
        return tuple(extent * count for extent, count in zip(shapes[0], times, strict=True))
    if operator.kind == "PAD":
        (widths,) = operator.shapes
        pairs = zip(shapes[0], widths[::2], widths[1::2], strict=True)
        return tuple(extent + before + after for extent, before, after in pairs)
    return None


def _convolved(operator: TosaOperator, shapes: list[Shape]) -> Shape:
    source, weights, bias = shapes[:3]
    if operator.kind == "DEPTHWISE_CONV2D":
        kernel, channels, inner = weights[:2], weights[2] * weights[3], weights[2]
    else:
        kernel, channels, inner = weights[1:3], weights[0], weights[3]
    if inner != source[3] or bias not in ((1,), (channels,)):
        raise RejectedError(f"weights of {list(weights)} and a bias of {list(bias)} do not fit {list(source)}")
    if operator.kind != "TRANSPOSE_CONV2D":
        padding, stride, dilation = (operator.numbers(slot) for slot in range(3))
        return _windows(source, kernel, stride, padding, dilation, channels)
    top, bottom, left, right = operator.numbers(0)
    step_y, step_x = operator.numbers(1)
    height = (source[1] - 1) * step_y + top + bottom + kernel[0]
    return source[0], height, (source[2] - 1) * step_x + left + right + kernel[1], channels


def _windows(source: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, channels: int) -> Shape:
    if min((*kernel, *stride, *dilation)) < 1 or min(padding) < 0:
        raise RejectedError("its window has extents, steps or padding that are too small")
    made = []
    for axis in range(2):
        extent = source[1 + axis] + sum(padding[2 * axis : 2 * axis + 2]) - (kernel[axis] - 1) * dilation[axis] - 1
        if extent < 0 or extent % stride[axis]:
            raise RejectedError(f"its windows do not cover {source[1 + axis]} rows or columns")
        made.append(extent // stride[axis] + 1)
    return source[0], made[0], made[1], channels


def _axis(axis: int, shape: Shape) -> int:
    if not 0 <= axis < len(shape):
        raise RejectedError(f"its axis is {axis} of {len(shape)}")
    return axis


def _count(shape: Shape) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
