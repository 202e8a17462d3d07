"""A file again, with constants in place of operators, or with other shapes.

Invariant: everything else is copied field by field; tensors and buffers keep their indices, new buffers come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..flatbuffer_copy import BUFFER_ALIGNMENT, TableWriter

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
