"""Operators of constants, computed when a file is read: shapes that a network computes for itself, and halves; and
shapes that a file leaves to the run time, though they follow from those of its inputs.

Invariant: the folded file has the tensors of the original, at their indices; some that operators made are constants in
it, with the bytes that the reference would make, and these operators are gone, others have the shape that they have
when it runs. What is returned by the network itself stays computed, but for what compilers round otherwise. Files with
NPU calls are as they were. Everything else is copied field by field, and new buffers come last.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...errors import NpuMemplanError
from ..flatbuffer_copy import BUFFER_ALIGNMENT, TableWriter
from ..network import CpuOperator, Network
from ..operators import Shape, ShapeError, result_shapes
from ..tensor import Tensor
from ..tflite import read_network
from .values import EVALUATORS, Arrays

_MOST_GROWTH_BYTES = 1 << 16  # of constants that are larger than what they are made of
_ROUNDED = ("QUANTIZE", "MUL")  # Vela rounds what it makes of constants otherwise than the reference
_ALWAYS_FOLDED = ("DEQUANTIZE", *_ROUNDED)  # whatever their size: halves have no code, so they become float32


@functools.lru_cache(maxsize=2)  # several stages ask for the same file
def folded(data: bytes, name: str = "network") -> bytes:
    """`data`, a file that `read_network` reads, with operators of constants folded; itself where there are none."""
    if data[4:8] != b"TFL3":
        return data
    data = with_static_shapes(data, name)
    network = read_network(data, name)
    if network.npu_calls:
        return data
    made = [_made(graph) for graph in network.subgraphs]
    return with_constants(data, made) if any(made) else data


@functools.lru_cache(maxsize=2)
def with_static_shapes(data: bytes, name: str = "network") -> bytes:
    """`data`, a TFLite file, with the shapes that tensors have when it runs, where the file leaves them open and they
    follow from what it says; itself where there are none."""
    network = read_network(data, name)
    if network.npu_calls:
        return data
    unsaid = [{t.index for t in g.tensors if t.has_open_shape} - set(g.inputs) for g in network.subgraphs]
    found = [_shapes(graph, left) if left else {} for graph, left in zip(network.subgraphs, unsaid, strict=True)]
    return with_shapes(data, found) if any(found) else data


def _shapes(graph: Network, unsaid: set[int]) -> dict[int, Shape]:
    """Shapes of tensors, of those whose shape is left open, as far as they are known before it runs."""
    tensors = list(graph.tensors)
    found: dict[int, Shape] = {}
    for operator in graph.operators:
        if not isinstance(operator, CpuOperator):
            continue
        inputs = [tensors[i] if i >= 0 else None for i in operator.inputs]
        shapes = _results_of(operator, inputs) if set(operator.outputs) & unsaid else ()
        for index, shape in zip(operator.outputs, shapes, strict=False):
            if index in unsaid and 0 not in shape:
                tensors[index], found[index] = replace(tensors[index], shape=shape), shape
        results = _results(replace(graph, tensors=tuple(tensors)), operator, unsaid - set(found))
        for index, value in zip(operator.outputs, results or (), strict=False):
            content = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
            tensors[index] = replace(tensors[index], shape=value.shape, data=content)
            if index in unsaid:
                found[index] = value.shape
    return {index: shape for index, shape in found.items() if shape != graph.tensors[index].shape}


def _results_of(operator: CpuOperator, inputs: Sequence[Tensor | None]) -> Sequence[Shape]:
    """The shapes of results; none where they are not known, or where what is not known yet contradicts them."""
    try:
        return result_shapes(operator, inputs) or ()
    except ShapeError:
        return ()


def _made(graph: Network) -> dict[int, dict[int, bytes]]:
    """Operator -> the constants that it makes, by tensor."""
    tensors = list(graph.tensors)
    found: dict[int, dict[int, bytes]] = {}
    for operator in graph.operators:
        if not isinstance(operator, CpuOperator):
            continue
        if operator.name not in _ROUNDED and set(operator.outputs) & set(graph.outputs):
            continue
        results = _results(replace(graph, tensors=tuple(tensors)), operator)
        if results is None:
            continue
        found[operator.index] = {}
        for index, value in zip(operator.outputs, results, strict=True):
            content = np.ascontiguousarray(value).tobytes()
            found[operator.index][index] = content
            tensors[index] = replace(tensors[index], data=np.frombuffer(content, np.uint8))
    return found


def _results(graph: Network, operator: CpuOperator, unsaid: Collection[int] = ()) -> Arrays | None:
    """What `operator` makes; None where that is known only when it runs, or where the file contradicts it. Tensors of
    `unsaid` may have any shape."""
    if operator.name not in EVALUATORS or not operator.outputs:
        return None
    outputs = [graph.tensors[i] for i in operator.outputs]
    inputs = [graph.tensors[i] if i >= 0 else None for i in operator.inputs]
    by_shape = operator.name in ("SHAPE", "RANK", "ZEROS_LIKE")
    if not inputs or any(_unknown(tensor) and not by_shape for tensor in inputs):
        return None
    try:
        results = EVALUATORS[operator.name](operator, inputs, outputs)
    except (NpuMemplanError, ArithmeticError, IndexError, TypeError, ValueError):
        return None  # its lowering says what is wrong
    if results is None or len(results) != len(outputs):
        return None
    for tensor, value in zip(outputs, results, strict=True):
        fits = value.shape == tensor.shape or tensor.index in unsaid
        if tensor.is_variable or not fits or value.dtype.name != tensor.dtype:
            return None
    grown = sum(t.size_bytes for t in outputs) - sum(t.size_bytes for t in inputs if t is not None)
    return results if operator.name in _ALWAYS_FOLDED or grown <= _MOST_GROWTH_BYTES else None


def _unknown(tensor: Tensor | None) -> bool:
    return tensor is not None and (tensor.data is None or tensor.is_variable)


Made = Mapping[int, Mapping[int, bytes]]  # operator -> tensor -> its bytes


def with_constants(source: bytes, made: Sequence[Made]) -> bytes:
    """`source` without the operators in `made`, one mapping a subgraph, whose outputs are these constants."""
    import tflite

    model = tflite.Model.GetRootAsModel(source, 0)
    write = TableWriter(source)
    buffers = [write.copy("Buffer", model.Buffers(i)._tab.Pos) for i in range(model.BuffersLength())]
    graphs = []
    for number, gone in enumerate(made):
        graph = model.Subgraphs(number)
        if not gone:
            graphs.append(write.copy("SubGraph", graph._tab.Pos))
            continue
        contents = {tensor: content for constants in gone.values() for tensor, content in constants.items()}
        tensors = []
        for index in range(graph.TensorsLength()):
            replaced = {}
            if index in contents:
                replaced = {"Buffer": len(buffers)}
                vector = write.data_vector(contents[index], alignment=BUFFER_ALIGNMENT)
                buffers.append(write.table("Buffer", {"Data": vector}))
            tensors.append(write.copy("Tensor", graph.Tensors(index)._tab.Pos, replaced))
        kept = [i for i in range(graph.OperatorsLength()) if i not in gone]
        operators = [write.copy("Operator", graph.Operators(i)._tab.Pos) for i in kept]
        fields = {"Tensors": write.tables(tensors), "Operators": write.tables(operators)}
        graphs.append(write.copy("SubGraph", graph._tab.Pos, fields))
    fields = {"Subgraphs": write.tables(graphs), "Buffers": write.tables(buffers)}
    write.builder.Finish(write.copy("Model", model._tab.Pos, fields), b"TFL3")
    return bytes(write.builder.Output())


def with_shapes(source: bytes, found: Sequence[Mapping[int, Sequence[int]]]) -> bytes:
    """`source` whose tensors have these shapes, one mapping a subgraph, and no signature that leaves them open."""
    import tflite

    model = tflite.Model.GetRootAsModel(source, 0)
    write = TableWriter(source)
    graphs = []
    for number, shapes in enumerate(found):
        graph = model.Subgraphs(number)
        tensors = []
        for index in range(graph.TensorsLength()):
            replaced = {"Shape": write.numbers(shapes[index]), "ShapeSignature": 0} if index in shapes else {}
            tensors.append(write.copy("Tensor", graph.Tensors(index)._tab.Pos, replaced))
        graphs.append(write.copy("SubGraph", graph._tab.Pos, {"Tensors": write.tables(tensors)}))
    write.builder.Finish(write.copy("Model", model._tab.Pos, {"Subgraphs": write.tables(graphs)}), b"TFL3")
    return bytes(write.builder.Output())
