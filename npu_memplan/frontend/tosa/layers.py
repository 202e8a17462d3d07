"""A TOSA graph as layers: sums and their RESCALE and CLAMP are one layer again, as the NPU computes them.

Invariant: 32-bit values exist inside of a layer only; a graph with an operator of which no layer computes the same is
refused as a whole, with the operator's name and the reason.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...errors import RefusalError
from ...ethosu.arch import Architecture
from ...ethosu.lower.layer import LayerGraph
from ...ethosu.lower.operands import Arithmetic
from ...ethosu.reading.reader import RejectedError
from ...models.flatbuffer import FlatbufferError, NetworkError
from ...models.tosa import TosaGraph, TosaOperator
from .builder import STORED, GraphBuilder
from .emitters import EMITTERS, LIMITED, PLACES
from .operands import clamp_of, rounds_twice, zero_points_of
from .shapes import check_shape
from .simplify import constant_result, folded_constants, moved_before_rescales, moved_behind_rescales


class TosaLayersError(RefusalError):
    """A TOSA graph has an operator that native lowering does not compute."""


def build_layers(graph: TosaGraph, target: Architecture, name: str) -> tuple[LayerGraph, dict[str, int]]:
    """The layers of `graph` for `target`, and which operator of the file makes each one's output.

    Raises `TosaLayersError`, and `NetworkError` for operators that are not as the specification has them.
    """
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
            _emit(builder, operator, clamps, made_by)
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


def _emit(
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
