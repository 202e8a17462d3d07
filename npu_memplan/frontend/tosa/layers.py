"""A TOSA graph as layers, its operators in an order that layers have, their shapes by the specification.

Invariant: 32-bit values exist inside of a layer only; a graph with an operator of which no layer computes the same is
refused as a whole, with the operator's name and the reason. Every tensor that the file has keeps its values; tensors
are added, none is taken away. Operators of constants are folded by the specification; where it leaves the result open,
or an operator is not known here, they are not. `check_shape` compares the shapes in the file with those of the
specification, so that no layer reads or writes beyond a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RefusalError
from ...ethosu.arch import Architecture
from ...ethosu.lower.layer import LayerGraph
from ...ethosu.lower.operands import Arithmetic
from ...ethosu.reading.reader import RejectedError
from ...models.flatbuffer import FlatbufferError, NetworkError
from ...models.tensor import Tensor
from ...models.tosa import TosaGraph, TosaOperator
from .builder import STORED, GraphBuilder, Shape, clamp_of, rescale_numbers, rounds_twice, zero_points_of
from .emitters import EMITTERS, LIMITED, PLACES
from .moves import PAIRS, resized_shape

_MOVES = frozenset(("RESHAPE", "TRANSPOSE", "IDENTITY"))
_STORED = frozenset(("int8", "int16"))


def moved_behind_rescales(graph: TosaGraph) -> TosaGraph:
    """`graph` with a RESCALE of moved sums before the move, where each element keeps its scale."""
    made_by = {index: operator for operator in graph.operators for index in operator.outputs}
    tensors, operators = list(graph.network.tensors), []
    for operator in graph.operators:
        rescale, after = operator, []
        while (move := _move(rescale, tensors, made_by)) is not None:
            source, result = tensors[move.inputs[0]], tensors[rescale.outputs[0]]
            index = _add_tensor(tensors, result, source.shape)
            after.append(replace(move, inputs=(index, *move.inputs[1:]), outputs=rescale.outputs))
            rescale = replace(rescale, inputs=(source.index, *rescale.inputs[1:]), outputs=(index,))
        operators += [rescale, *reversed(after)]
    return _change_graph(graph, tensors, operators)


def _move(rescale: TosaOperator, tensors: Sequence[Tensor], made_by: Mapping[int, TosaOperator]) -> TosaOperator | None:
    """The move of 32-bit values that a RESCALE may come before; None: there is none."""
    if rescale.kind != "RESCALE" or len(rescale.inputs) < 2 or tensors[rescale.inputs[0]].dtype != "int32":
        return None
    move = made_by.get(rescale.inputs[0])
    if move is None or move.kind not in _MOVES or not move.inputs:
        return None
    if _is_widening(made_by.get(move.inputs[0]), tensors):
        return None  # the move comes before that one
    channels = tensors[rescale.inputs[1]].shape
    same = tensors[move.inputs[0]].shape[-1:] == tensors[move.outputs[0]].shape[-1:]
    return move if channels == (1,) or (same and move.kind != "TRANSPOSE") else None


def moved_before_rescales(graph: TosaGraph) -> TosaGraph:
    """`graph` with a move of stored values that are widened for it before that RESCALE, which has one scale."""
    made_by = {index: operator for operator in graph.operators for index in operator.outputs}
    tensors, operators = list(graph.network.tensors), []
    for operator in graph.operators:
        widening = made_by.get(operator.inputs[0]) if operator.inputs else None
        if operator.kind in _MOVES and _is_widening(widening, tensors):
            assert widening is not None
            index = _add_tensor(tensors, tensors[widening.inputs[0]], tensors[operator.outputs[0]].shape)
            moved = replace(operator, inputs=(widening.inputs[0], *operator.inputs[1:]), outputs=(index,))
            operator = replace(widening, inputs=(index, *widening.inputs[1:]), outputs=operator.outputs)
            made_by |= {index: moved, operator.outputs[0]: operator}
            operators.append(moved)
        operators.append(operator)
    return _change_graph(graph, tensors, operators)


def _is_widening(operator: TosaOperator | None, tensors: Sequence[Tensor]) -> bool:
    """Whether it is a RESCALE of one scale from stored values to 32 bits."""
    if operator is None or operator.kind != "RESCALE" or len(operator.inputs) < 2:
        return False
    types = tensors[operator.inputs[0]].dtype, tensors[operator.outputs[0]].dtype
    return types[0] in _STORED and types[1] == "int32" and tensors[operator.inputs[1]].shape == (1,)


def folded_constants(
    graph: TosaGraph, values_of: Callable[[TosaOperator, list[NDArray[Any]]], NDArray[Any] | None]
) -> TosaGraph:
    """`graph` without operators of constants alone, whose result `values_of` says; widening RESCALEs stay."""
    constants, operators = dict(graph.constants), []
    values = dict(graph.constants)  # also what a RESCALE makes of constants
    for operator in graph.operators:
        known = [values[index] for index in operator.inputs if index in values]
        made = None
        if operator.inputs and operator.outputs and len(known) == len(operator.inputs):
            made = values_of(operator, known)
        if made is not None:
            values[operator.outputs[0]] = made
            if not _is_widening(operator, graph.network.tensors):
                constants[operator.outputs[0]] = made
                continue
        operators.append(operator)
    return replace(graph, operators=tuple(operators), constants=constants)


def _add_tensor(tensors: list[Tensor], like: Tensor, shape: tuple[int, ...]) -> int:
    index = len(tensors)
    tensors.append(replace(like, index=index, name=f"{like.name}_{index}", shape=shape))
    return index


def _change_graph(graph: TosaGraph, tensors: Sequence[Tensor], operators: Sequence[TosaOperator]) -> TosaGraph:
    network = replace(graph.network, tensors=tuple(tensors))
    return replace(graph, network=network, operators=tuple(operators))


def moved_values(operator: TosaOperator, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """The values that RESHAPE, TRANSPOSE, IDENTITY and SLICE move; None of other operators."""
    if operator.kind in ("RESHAPE", "IDENTITY"):
        return values.reshape(shape)
    if operator.kind == "TRANSPOSE":
        return np.ascontiguousarray(values.transpose(operator.numbers(0)))
    if operator.kind == "SLICE" and len(operator.shapes) == 2:
        begin, size = operator.shapes
        return values[tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))]
    return None


_TYPES = ("int8", "int16", "int32")


def constant_result(builder: GraphBuilder, operator: TosaOperator, given: list[NDArray[Any]]) -> NDArray[Any] | None:
    """The result of `operator` on the constants `given`; None of what is not known here, or does not fit its type."""
    dtype = builder.dtype(operator.outputs[0])
    if dtype not in _TYPES or any(values.dtype.kind != "i" for values in given):
        return None
    try:
        made = _compute(builder, operator, [values.astype(np.int64) for values in given])
    except RejectedError:
        return None
    info = np.iinfo(dtype)
    if made is None or made.shape != builder.shape(operator.outputs[0]):
        return None
    return made.astype(dtype) if info.min <= made.min() and made.max() <= info.max else None


def _compute(builder: GraphBuilder, operator: TosaOperator, given: list[NDArray[np.int64]]) -> NDArray[Any] | None:
    kind, info = operator.kind, np.iinfo(builder.dtype(operator.outputs[0]))
    if kind == "RESCALE":
        made = rescale_numbers(builder, operator)(given[0])
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
        return _convolution_shape(operator, shapes)
    if kind in _POOLS:
        kernel, stride, padding = (operator.numbers(slot) for slot in range(3))
        return _window_shape(shapes[0], kernel, stride, padding, (1, 1), shapes[0][3])
    if kind in ("RESCALE", "CLAMP", "TABLE", "IDENTITY", "ABS", "NEGATE"):
        if kind == "RESCALE" and any(len(s) != 1 or s[0] not in (1, *shapes[0][-1:]) for s in shapes[1:3]):
            raise RejectedError("its scales are neither one nor one for each channel")
        return shapes[0]
    if kind in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "EQUAL", "GREATER", "GREATER_EQUAL"):
        return _broadcast_shape(shapes[:2])
    if kind == "SELECT":
        return _broadcast_shape(shapes)
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
    return _move_shape(builder, operator, shapes)


def _broadcast_shape(shapes: list[Shape]) -> Shape:
    """The common shape of operands that are broadcast."""
    axes = list(zip(*shapes, strict=True))
    if any(len({1, *extents}) > 2 for extents in axes):
        raise RejectedError(f"its operands have the shapes {' and '.join(str(list(shape)) for shape in shapes)}")
    return tuple(max(extents) for extents in axes)


def _move_shape(builder: GraphBuilder, operator: TosaOperator, shapes: list[Shape]) -> Shape | None:
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


def _convolution_shape(operator: TosaOperator, shapes: list[Shape]) -> Shape:
    source, weights, bias = shapes[:3]
    if operator.kind == "DEPTHWISE_CONV2D":
        kernel, channels, inner = weights[:2], weights[2] * weights[3], weights[2]
    else:
        kernel, channels, inner = weights[1:3], weights[0], weights[3]
    if inner != source[3] or bias not in ((1,), (channels,)):
        raise RejectedError(f"weights of {list(weights)} and a bias of {list(bias)} do not fit {list(source)}")
    if operator.kind != "TRANSPOSE_CONV2D":
        padding, stride, dilation = (operator.numbers(slot) for slot in range(3))
        return _window_shape(source, kernel, stride, padding, dilation, channels)
    top, bottom, left, right = operator.numbers(0)
    step_y, step_x = operator.numbers(1)
    height = (source[1] - 1) * step_y + top + bottom + kernel[0]
    return source[0], height, (source[2] - 1) * step_x + left + right + kernel[1], channels


def _window_shape(source: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, channels: int) -> Shape:
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


class TosaLayersError(RefusalError):
    """A TOSA graph has an operator that native lowering does not compute."""


def build_layers(graph: TosaGraph, target: Architecture, name: str) -> tuple[LayerGraph, dict[str, int]]:
    """The layers of `graph` for `target`, and the operator of each output; raises `TosaLayersError`."""
    what = "its numbers"
    try:
        graph = moved_behind_rescales(moved_before_rescales(graph))
        graph = folded_constants(graph, partial(constant_result, GraphBuilder(graph, target, {}, {})))
        made_by = {index: operator for operator in graph.operators for index in operator.outputs}
        builder = GraphBuilder(graph, target, made_by, {})
        arithmetic = Arithmetic.TFLITE if rounds_twice(builder) else Arithmetic.REAL
        builder.zero_points = zero_points_of(builder)
        inputs = tuple(builder.read(i) for i in graph.network.inputs)
        needed, clamps = _needed_tensors(graph, made_by), _clamps(graph)
        for operator in graph.operators:
            index = operator.outputs[0] if operator.outputs else -1
            if index not in needed:
                continue
            what = f"operator {operator.index} ({operator.kind})"
            check_shape(builder, operator)
            if operator.index in clamps.values():
                continue
            if graph.tensor(index).dtype not in STORED and operator.kind not in PLACES:
                continue
            _emit_layer(builder, operator, clamps, made_by)
        what = "its outputs"
        _check_outputs(graph, builder)
        outputs = tuple(builder.read(i) for i in graph.network.outputs)
    except RejectedError as reason:
        raise TosaLayersError(
            f"{graph.network.name} has no native lowering: {what}: {reason}; --npu-compiler vela compiles it"
        ) from None
    except (ValueError, IndexError, FlatbufferError) as error:  # too few operands or numbers
        raise NetworkError(
            f"{graph.network.name}: {what} has not the operands or numbers that TOSA gives it ({error}); get the "
            "file again"
        ) from None
    return LayerGraph(name, builder.tensors, inputs, outputs, tuple(builder.layers), arithmetic), builder.operator_of


def _emit_layer(
    builder: GraphBuilder, operator: TosaOperator, clamps: dict[int, int], made_by: dict[int, TosaOperator]
) -> None:
    emit = EMITTERS.get(operator.kind)
    if emit is None:
        raise RejectedError("there is no layer for it")
    limits = builder.limits(operator.outputs[0])
    if operator.index in clamps:
        last = next(o for o in builder.graph.operators if o.index == clamps[operator.index])
        low, high = clamp_of(builder, last)
        operator = replace(operator, outputs=last.outputs)
        limits = max(low, limits[0]), min(high, limits[1])
    emit(builder, operator, limits)


def _needed_tensors(graph: TosaGraph, made_by: dict[int, TosaOperator]) -> set[int]:
    """Tensors that an output is made of."""
    found: set[int] = set()
    waiting = list(graph.network.outputs)
    while waiting:
        index = waiting.pop()
        if index not in found:
            found.add(index)
            waiting += made_by[index].inputs if index in made_by else ()
    return found


def _clamps(graph: TosaGraph) -> dict[int, int]:
    """Operators whose layer limits its results, and the CLAMP, which is all that reads them."""
    readers: dict[int, list[TosaOperator]] = {}
    for operator in graph.operators:
        for index in operator.inputs:
            readers.setdefault(index, []).append(operator)
    found = {}
    for operator in graph.operators:
        if operator.kind in LIMITED and operator.outputs and operator.outputs[0] not in graph.network.outputs:
            read = readers.get(operator.outputs[0], [])
            if len(read) == 1 and read[0].kind == "CLAMP" and graph.tensor(operator.outputs[0]).dtype in STORED:
                found[operator.index] = read[0].index
    return found


def _check_outputs(graph: TosaGraph, builder: GraphBuilder) -> None:
    """`RejectedError` for outputs that no layer makes, or that are stated twice."""
    outputs = graph.network.outputs
    places = {operator.outputs[0] for operator in graph.operators if operator.kind in PLACES}
    if len(set(outputs)) < len(outputs):
        raise RejectedError("a tensor is listed twice")
    for index in outputs:
        if index in graph.network.inputs or index in graph.constants:
            raise RejectedError(f"{graph.tensor(index).name!r} is an input or a constant")
        if graph.tensor(index).dtype not in STORED and index not in places:
            raise RejectedError(f"{graph.tensor(index).name!r} is {graph.tensor(index).dtype}, not int8 or int16")
