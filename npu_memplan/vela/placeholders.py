"""Operators that Vela is not given: in the file that it gets a custom operator is in the place of each.

Invariant: a placeholder has the operator's inputs and outputs, and in its options the operator's number; Vela leaves
custom operators to the CPU as they are. With the originals back in what Vela made of the file, nothing tells that they
were away.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..models.flatbuffer import TableWriter

PLACEHOLDER = "CUSTOM"  # what Vela calls the kind
_CODE = b"npu_memplan.kept"


def with_placeholders(source: bytes, operators: Collection[int]) -> bytes:
    """The TFLite file `source` with placeholders for these operators of its first subgraph."""
    import tflite

    model, write = tflite.Model.GetRootAsModel(source, 0), TableWriter(source)
    graph, custom = model.Subgraphs(0), int(tflite.BuiltinOperator.CUSTOM)
    codes = [write.copy("OperatorCode", model.OperatorCodes(i)._tab.Pos) for i in range(model.OperatorCodesLength())]
    values = {"DeprecatedBuiltinCode": custom, "BuiltinCode": custom, "Version": 1}
    codes.append(write.table("OperatorCode", values | {"CustomCode": write.text(_CODE.decode())}))
    written = []
    for index in range(graph.OperatorsLength()):
        fields: dict[str, int] = {}
        if index in operators:
            number = write.data_vector(index.to_bytes(4, "little"))
            fields = {"OpcodeIndex": len(codes) - 1, "BuiltinOptionsType": 0, "BuiltinOptions": 0,
                      "BuiltinOptions2Type": 0, "BuiltinOptions2": 0, "CustomOptions": number}  # fmt: skip
        written.append(write.copy("Operator", graph.Operators(index)._tab.Pos, fields))
    return _with_operators(write, model, codes, written)


def with_originals(compiled: bytes, source: bytes) -> bytes:
    """What Vela made of `with_placeholders(source, ...)`, with the operators of `source` in their places."""
    import tflite

    model, origin = tflite.Model.GetRootAsModel(compiled, 0), tflite.Model.GetRootAsModel(source, 0)
    write, copied = TableWriter(compiled), TableWriter(source)
    copied.builder = write.builder  # it writes the same file
    graph, given = model.Subgraphs(0), origin.Subgraphs(0)
    codes = [write.copy("OperatorCode", model.OperatorCodes(i)._tab.Pos) for i in range(model.OperatorCodesLength())]
    known, written = dict[int, int](), []
    for index in range(graph.OperatorsLength()):
        table = graph.Operators(index)
        if model.OperatorCodes(table.OpcodeIndex()).CustomCode() != _CODE:
            written.append(write.copy("Operator", table._tab.Pos))
            continue
        original = given.Operators(int.from_bytes(table.CustomOptionsAsNumpy().tobytes(), "little"))
        code = original.OpcodeIndex()
        if code not in known:
            known[code] = len(codes)
            codes.append(copied.copy("OperatorCode", origin.OperatorCodes(code)._tab.Pos))
        fields = {
            "OpcodeIndex": known[code],
            "Inputs": write.numbers([table.Inputs(i) for i in range(table.InputsLength())]),
            "Outputs": write.numbers([table.Outputs(i) for i in range(table.OutputsLength())]),
        }
        written.append(copied.copy("Operator", original._tab.Pos, fields))
    return _with_operators(write, model, codes, written)


def _with_operators(write: TableWriter, model: Any, codes: list[int], operators: list[int]) -> bytes:
    """The file of `write` with these codes, and these operators in its first subgraph."""
    first, *others = [model.Subgraphs(i)._tab.Pos for i in range(model.SubgraphsLength())]
    graphs = [write.copy("SubGraph", first, {"Operators": write.tables(operators)})]
    graphs += [write.copy("SubGraph", place) for place in others]
    parts = {"OperatorCodes": write.tables(codes), "Subgraphs": write.tables(graphs)}
    write.builder.Finish(write.copy("Model", model._tab.Pos, parts), b"TFL3")
    return bytes(write.builder.Output())
