"""Operators of a TOSA graph in an order that layers have: moves of 32-bit values are moves of stored ones instead, and
what follows from constants alone is a constant.

Invariant: every tensor that the file has keeps its values; tensors are added, none is taken away. What is
computed of constants is the specification's; where it leaves that open, or an operator is not known here, nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.reading.reader import RejectedError
from ...models.tensor import Tensor
from ...models.tosa import TosaGraph, TosaOperator
from .builder import GraphBuilder
from .functions import PAIRS
from .operands import clamp_of, rescale_numbers

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
            index = _added(tensors, result, source.shape)
            after.append(replace(move, inputs=(index, *move.inputs[1:]), outputs=rescale.outputs))
            rescale = replace(rescale, inputs=(source.index, *rescale.inputs[1:]), outputs=(index,))
        operators += [rescale, *reversed(after)]
    return _changed(graph, tensors, operators)


def _move(rescale: TosaOperator, tensors: Sequence[Tensor], made_by: Mapping[int, TosaOperator]) -> TosaOperator | None:
    """The move of 32-bit values that a RESCALE may come before; None: there is none."""
    if rescale.kind != "RESCALE" or len(rescale.inputs) < 2 or tensors[rescale.inputs[0]].dtype != "int32":
        return None
    move = made_by.get(rescale.inputs[0])
    if move is None or move.kind not in _MOVES or not move.inputs:
        return None
    if _widens(made_by.get(move.inputs[0]), tensors):
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
        if operator.kind in _MOVES and _widens(widening, tensors):
            assert widening is not None
            index = _added(tensors, tensors[widening.inputs[0]], tensors[operator.outputs[0]].shape)
            moved = replace(operator, inputs=(widening.inputs[0], *operator.inputs[1:]), outputs=(index,))
            operator = replace(widening, inputs=(index, *widening.inputs[1:]), outputs=operator.outputs)
            made_by |= {index: moved, operator.outputs[0]: operator}
            operators.append(moved)
        operators.append(operator)
    return _changed(graph, tensors, operators)


def _widens(operator: TosaOperator | None, tensors: Sequence[Tensor]) -> bool:
    """Whether it is a RESCALE of one scale from stored values to 32 bits."""
    if operator is None or operator.kind != "RESCALE" or len(operator.inputs) < 2:
        return False
    types = tensors[operator.inputs[0]].dtype, tensors[operator.outputs[0]].dtype
    return types[0] in _STORED and types[1] == "int32" and tensors[operator.inputs[1]].shape == (1,)


def folded_constants(
    graph: TosaGraph, values_of: Callable[[TosaOperator, list[NDArray[Any]]], NDArray[Any] | None]
) -> TosaGraph:
    """`graph` without operators of constants alone, whose result `values_of` says; a RESCALE that widens stays, since
    layers read what is stored.
    """
    constants, operators = dict(graph.constants), []
    values = dict(graph.constants)  # also what a RESCALE makes of constants
    for operator in graph.operators:
        known = [values[index] for index in operator.inputs if index in values]
        made = None
        if operator.inputs and operator.outputs and len(known) == len(operator.inputs):
            made = values_of(operator, known)
        if made is not None:
            values[operator.outputs[0]] = made
            if not _widens(operator, graph.network.tensors):
                constants[operator.outputs[0]] = made
                continue
        operators.append(operator)
    return replace(graph, operators=tuple(operators), constants=constants)


def _added(tensors: list[Tensor], like: Tensor, shape: tuple[int, ...]) -> int:
    index = len(tensors)
    tensors.append(replace(like, index=index, name=f"{like.name}_{index}", shape=shape))
    return index


def _changed(graph: TosaGraph, tensors: Sequence[Tensor], operators: Sequence[TosaOperator]) -> TosaGraph:
    network = replace(graph.network, tensors=tuple(tensors))
    return replace(graph, network=network, operators=tuple(operators))


def moved_values(operator: TosaOperator, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
    """What RESHAPE, TRANSPOSE, IDENTITY and SLICE make of values; None of other operators."""
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
