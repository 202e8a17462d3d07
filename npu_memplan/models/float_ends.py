"""A TFLite network without the QUANTIZE of its float inputs and the DEQUANTIZE of its float outputs (`--io int8`).

Invariant: what lies between the ends is the same, operator by operator; an end that stays a float is an error.
"""

from __future__ import annotations

import functools
from pathlib import Path

from ..errors import RefusalError
from .flatbuffer import TableWriter, read_file
from .network import CpuOperator, Network
from .tflite import read_network
from .vela import NpuCall

_WIDE = "float32"


class FloatEndError(RefusalError):
    """A float input or output of a network has no QUANTIZE or DEQUANTIZE that `--io int8` could remove."""


def read_source(path: Path, io: str) -> bytes:
    """The bytes of the model file `path`, with the ends that `--io` asks for: the file's own, or int8."""
    return with_ends(read_file(path), path.name, io)


def with_ends(data: bytes, name: str, io: str) -> bytes:
    """`data`, a model file, with the ends that `--io` asks for."""
    return data if io == "file" else with_stored_ends(data, name)


@functools.lru_cache(maxsize=2)  # each candidate of a compile asks for the same file
def with_stored_ends(data: bytes, name: str) -> bytes:
    """`data`, a TFLite file, whose float inputs and outputs are the int8 tensors behind and before them.

    Raises `FloatEndError` where an input is not read by one QUANTIZE to int8 alone, or an output is not made by a
    DEQUANTIZE of int8.
    """
    network = read_network(data, name)
    inputs = {i: _input_quantise(network, i) for i in network.inputs if network.tensors[i].dtype == _WIDE}
    outputs = {i: _output_dequantise(network, i) for i in network.outputs if network.tensors[i].dtype == _WIDE}
    if not inputs and not outputs:
        return data
    stored = {i: operator.outputs[0] for i, operator in inputs.items()}
    kept = {i: operator.inputs[0] for i, operator in outputs.items()}
    gone = {operator.index for operator in (*inputs.values(), *_unread(network, outputs))}
    return _rewrite_without(
        data, gone, [stored.get(i, i) for i in network.inputs], [kept.get(i, i) for i in network.outputs]
    )


def _input_quantise(network: Network, index: int) -> CpuOperator:
    """The QUANTIZE that alone reads the float input `index`."""
    readers = [o for o in network.operators if index in o.inputs]
    first = readers[0] if len(readers) == 1 and index not in network.outputs else None
    if isinstance(first, CpuOperator) and _operator_form(network, first) == "QUANTIZE to int8":
        return first
    found = ", ".join(_operator_form(network, o) for o in readers) or "nothing"
    raise FloatEndError(
        f"--io int8: float input {network.tensors[index].name!r} of {network.name} is read by {found}, and must be "
        "read by one QUANTIZE to int8 alone; leave out --io"
    )


def _output_dequantise(network: Network, index: int) -> CpuOperator:
    """The DEQUANTIZE that makes the float output `index`."""
    writer = next((o for o in network.operators if index in o.outputs), None)
    found = "nothing" if writer is None else _operator_form(network, writer)
    if isinstance(writer, CpuOperator) and found == "DEQUANTIZE of int8":
        return writer
    raise FloatEndError(
        f"--io int8: float output {network.tensors[index].name!r} of {network.name} is made by {found}, and must be "
        "made by a DEQUANTIZE of int8; leave out --io"
    )


def _operator_form(network: Network, operator: NpuCall | CpuOperator) -> str:
    """The kind of an operator, with the type that it converts to or from."""
    if not isinstance(operator, CpuOperator):
        return "an NPU operator"
    if operator.name == "QUANTIZE":
        return f"QUANTIZE to {network.tensors[operator.outputs[0]].dtype}"
    if operator.name == "DEQUANTIZE":
        return f"DEQUANTIZE of {network.tensors[operator.inputs[0]].dtype}"
    return operator.name


def _unread(network: Network, outputs: dict[int, CpuOperator]) -> list[CpuOperator]:
    """The operators whose float results no operator reads."""
    read = {i for operator in network.operators for i in operator.inputs}
    return [operator for index, operator in outputs.items() if index not in read]


def _rewrite_without(source: bytes, gone: set[int], inputs: list[int], outputs: list[int]) -> bytes:
    """`source` whose first subgraph has no operators `gone` and these ends; its signatures go, which name the old."""
    import tflite

    model = tflite.Model.GetRootAsModel(source, 0)
    graph, write = model.Subgraphs(0), TableWriter(source)
    operators = [
        write.copy("Operator", graph.Operators(i)._tab.Pos) for i in range(graph.OperatorsLength()) if i not in gone
    ]
    fields = {
        "Inputs": write.numbers(inputs),
        "Outputs": write.numbers(outputs),
        "Operators": write.tables(operators),
    }
    graphs = [write.copy("SubGraph", graph._tab.Pos, fields)]
    graphs += [write.copy("SubGraph", model.Subgraphs(i)._tab.Pos) for i in range(1, model.SubgraphsLength())]
    write.builder.Finish(
        write.copy("Model", model._tab.Pos, {"Subgraphs": write.tables(graphs), "SignatureDefs": 0}), b"TFL3"
    )
    return bytes(write.builder.Output())
