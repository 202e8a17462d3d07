"""A file again, with constants in place of operators.

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
