"""Operators of a TOSA graph in an order that layers have: what moves 32-bit sums moves the 8-bit results instead.

Invariant: every tensor that the file has keeps its values; tensors are added, none is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...models.tensor import Tensor
from ...models.tosa_graph import TosaGraph, TosaOperator

_MOVES = frozenset(("RESHAPE", "TRANSPOSE", "IDENTITY"))


def moved_behind_rescales(graph: TosaGraph) -> TosaGraph:
    """`graph` with a RESCALE of moved sums in front of the move, where each element keeps its scale."""
    made_by = {index: operator for operator in graph.operators for index in operator.outputs}
    tensors, operators = list(graph.network.tensors), []
    for operator in graph.operators:
        rescale, behind = operator, []
        while (move := _move(rescale, tensors, made_by)) is not None:
            source, result = tensors[move.inputs[0]], tensors[rescale.outputs[0]]
            index = len(tensors)
            tensors.append(replace(result, index=index, name=f"{result.name}_{index}", shape=source.shape))
            behind.append(replace(move, inputs=(index, *move.inputs[1:]), outputs=rescale.outputs))
            rescale = replace(rescale, inputs=(source.index, *rescale.inputs[1:]), outputs=(index,))
        operators += [rescale, *reversed(behind)]
    return replace(graph, network=replace(graph.network, tensors=tuple(tensors)), operators=tuple(operators))


def _move(rescale: TosaOperator, tensors: Sequence[Tensor], made_by: Mapping[int, TosaOperator]) -> TosaOperator | None:
    """The move of 32-bit values that a RESCALE may come before; None: there is none."""
    if rescale.kind != "RESCALE" or len(rescale.inputs) < 2 or tensors[rescale.inputs[0]].dtype != "int32":
        return None
    move = made_by.get(rescale.inputs[0])
    if move is None or move.kind not in _MOVES or not move.inputs:
        return None
    channels = tensors[rescale.inputs[1]].shape
    same = tensors[move.inputs[0]].shape[-1:] == tensors[move.outputs[0]].shape[-1:]
    return move if channels == (1,) or (same and move.kind != "TRANSPOSE") else None
