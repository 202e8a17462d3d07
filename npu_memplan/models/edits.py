"""Changed TFLite files: without the conversion of float inputs and outputs (`--io int8`), with other operators, with
more or fewer channels.

Invariant: what is not changed is the same, operator by operator. With `--io int8`, an end that stays a float is an
error. Padded channels are zero, and what reads them has zero weights for them, so results are the same.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RefusalError
from .flatbuffer import BUFFER_ALIGNMENT, TableWriter, read_file, union_members
from .network import CpuOperator, Network
from .tensor import Tensor
from .tflite import read_network
from .vela import NpuCall

_WIDE = "float32"


class FloatEndError(RefusalError):
    """A float input or output of a network has no QUANTIZE or DEQUANTIZE that `--io int8` could remove."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes of the first subgraph of a file; operators and tensors by index."""

    gone: frozenset[int] = frozenset()  # operators
    ends: tuple[Sequence[int], Sequence[int]] | None = None  # other inputs and outputs of the subgraph
    kinds: Mapping[int, str] = field(default_factory=dict)  # of operators, with the options that are the default
    inputs: Mapping[int, Sequence[int]] = field(default_factory=dict)  # of operators
    tensors: Mapping[int, Tensor] = field(default_factory=dict)  # of other shapes, and what follows from them

    def changes(self, operator: NpuCall | CpuOperator) -> bool:
        """Whether an operator goes, or is another one."""
        touched = self.tensors.keys() & {*operator.inputs, *operator.outputs}
        return operator.index in self.gone or operator.index in self.kinds or bool(touched)


def read_source(path: Path, io: str) -> bytes:
    """The bytes of the model file `path`, with the ends that `--io` asks for: the file's own, or int8."""
    return with_ends(read_file(path), path.name, io)


def with_ends(data: bytes, name: str, io: str) -> bytes:
    """`data`, a model file, with the ends that `--io` asks for."""
    return data if io == "file" else with_stored_ends(data, name)


@functools.lru_cache(maxsize=2)  # each candidate of a compile asks for the same file
def with_stored_ends(data: bytes, name: str) -> bytes:
    """`data` with its float inputs and outputs as the int8 tensors behind and before them; `FloatEndError`."""
    edit = stored_ends(read_network(data, name))
    return data if edit.ends is None else with_edit(data, edit)


def stored_ends(network: Network) -> Edit:
    """The edit that makes float inputs and outputs the int8 tensors behind and before them; without any it is empty.

    Raises `FloatEndError` where an input is not read by one QUANTIZE to int8 alone, or an output is not made by a
    DEQUANTIZE of int8.
    """
    inputs = {i: _input_quantise(network, i) for i in network.inputs if network.tensors[i].dtype == _WIDE}
    outputs = {i: _output_dequantise(network, i) for i in network.outputs if network.tensors[i].dtype == _WIDE}
    stored = {i: operator.outputs[0] for i, operator in inputs.items()}
    kept = {i: operator.inputs[0] for i, operator in outputs.items()}
    if not inputs and not outputs:
        return Edit()
    gone = frozenset(operator.index for operator in (*inputs.values(), *_unread(network, outputs)))
    return Edit(gone, ([stored.get(i, i) for i in network.inputs], [kept.get(i, i) for i in network.outputs]))


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


def with_edit(source: bytes, edit: Edit) -> bytes:
    """`source`, a TFLite file, changed; its signatures go where they may name other ends."""
    import tflite

    model = tflite.Model.GetRootAsModel(source, 0)
    graph, write = model.Subgraphs(0), TableWriter(source)
    codes = [write.copy("OperatorCode", model.OperatorCodes(i)._tab.Pos) for i in range(model.OperatorCodesLength())]
    buffers = [write.copy("Buffer", model.Buffers(i)._tab.Pos) for i in range(model.BuffersLength())]
    numbers = {kind: len(codes) + i for i, kind in enumerate(sorted(set(edit.kinds.values())))}
    for kind in numbers:
        code = getattr(tflite.BuiltinOperator, kind)
        codes.append(
            write.table("OperatorCode", {"DeprecatedBuiltinCode": min(code, 127), "BuiltinCode": code, "Version": 1})
        )
    fields = {
        "Operators": write.tables(
            [
                write.copy("Operator", graph.Operators(i)._tab.Pos, _operator_fields(write, edit, numbers, i))
                for i in range(graph.OperatorsLength())
                if i not in edit.gone
            ]
        ),
        "Tensors": write.tables(
            [
                write.copy(
                    "Tensor",
                    graph.Tensors(i)._tab.Pos,
                    _tensor_fields(write, graph.Tensors(i), edit.tensors.get(i), buffers),
                )
                for i in range(graph.TensorsLength())
            ]
        ),
    }
    if edit.ends is not None:
        fields |= {"Inputs": write.numbers(edit.ends[0]), "Outputs": write.numbers(edit.ends[1])}
    graphs = [write.copy("SubGraph", graph._tab.Pos, fields)]
    graphs += [write.copy("SubGraph", model.Subgraphs(i)._tab.Pos) for i in range(1, model.SubgraphsLength())]
    parts = {
        "OperatorCodes": write.tables(codes),
        "Buffers": write.tables(buffers),
        "Subgraphs": write.tables(graphs),
        "SignatureDefs": 0,
    }
    write.builder.Finish(write.copy("Model", model._tab.Pos, parts), b"TFL3")
    return bytes(write.builder.Output())


def _operator_fields(write: TableWriter, edit: Edit, numbers: Mapping[str, int], index: int) -> dict[str, int]:
    """What is other in the operator `index`; `numbers`: of the kinds that are new in the file."""
    fields = {"Inputs": write.numbers(edit.inputs[index])} if index in edit.inputs else {}
    if index not in edit.kinds:
        return fields
    kind = edit.kinds[index]
    options = f"{kind.title().replace('_', '')}Options"
    number = next((n for n, name in union_members("BuiltinOptions").items() if name == options), 0)
    table = write.table(options, {}) if number else 0
    return fields | {"OpcodeIndex": numbers[kind], "BuiltinOptionsType": number, "BuiltinOptions": table}


def _tensor_fields(write: TableWriter, table: Any, changed: Tensor | None, buffers: list[int]) -> dict[str, int]:
    """What is other in a tensor; the bytes of a changed constant are added to `buffers`."""
    if changed is None:
        return {}
    fields = {"Shape": write.numbers(changed.shape), "ShapeSignature": 0}
    if changed.data is not None:
        fields["Buffer"] = len(buffers)
        content = write.data_vector(changed.data.tobytes(), alignment=BUFFER_ALIGNMENT)
        buffers.append(write.table("Buffer", {"Data": content}))
    if len(changed.scales) > 1:
        numbers = {
            "Scale": write.data_vector(np.array(changed.scales, "<f4").tobytes(), 4),
            "ZeroPoint": write.data_vector(np.array(changed.zero_points, "<i8").tobytes(), 8),
        }
        fields["Quantization"] = write.copy("QuantizationParameters", table.Quantization()._tab.Pos, numbers)
    return fields


_WEIGHTED = {"CONV_2D": (0, 3), "FULLY_CONNECTED": (0, 1), "DEPTHWISE_CONV_2D": (3, 3)}  # axes of results, of inputs
# Operators whose results have the channels of their inputs, each computed from its own alone.
_BY_CHANNEL = (
    "ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "AVERAGE_POOL_2D", "MAX_POOL_2D", "RELU", "RELU6", "RELU_N1_TO_1",
    "LEAKY_RELU", "PRELU", "ELU", "GELU", "HARD_SWISH", "LOGISTIC", "TANH", "QUANTIZE",
)  # fmt: skip


def resize_channels(network: Network, result: int, channels: int) -> Edit | None:
    """The edit that gives the tensor `result`, and all that must have as many, so many channels: the last go, or new
    ones are zero. None where a tensor is an input or output of the network, or an operator mixes channels otherwise
    than by weights.
    """
    known = network.tensors[result].shape[-1]
    changed, waiting, constants = dict[int, Tensor](), [result], defaultdict[int, set[int]](set)
    while waiting:
        index = waiting.pop()
        if index in changed:
            continue
        tensor = network.tensors[index]
        if index in (*network.inputs, *network.outputs) or tensor.shape[-1:] != (known,) or tensor.is_variable:
            return None
        changed[index] = replace(tensor, shape=(*tensor.shape[:-1], channels))
        for operator in network.operators:
            if index in (*operator.inputs, *operator.outputs) and not (
                isinstance(operator, CpuOperator) and _follow_channels(network, operator, index, waiting, constants)
            ):
                return None
    for index, axes in constants.items():
        for axis in sorted(axes):
            if network.tensors[index].shape[axis] != known or network.tensors[index].is_packed:
                return None
            changed[index] = _resize_constant(changed.get(index, network.tensors[index]), axis, channels)
    return Edit(tensors=changed)


def _follow_channels(
    network: Network, operator: CpuOperator, index: int, waiting: list[int], constants: dict[int, set[int]]
) -> bool:
    """Add other tensors that have the channels of `index`, and axes of the operator's constants; False: mixed."""
    tensors, result = network.tensors, operator.outputs[0]
    if operator.name in _WEIGHTED:
        weights, is_result = operator.inputs[1], index == result
        if tensors[weights].data is None or not (is_result or index == operator.inputs[0]):
            return False
        constants[weights].add(_WEIGHTED[operator.name][0 if is_result else 1])
        if operator.name == "DEPTHWISE_CONV_2D":
            waiting += (operator.inputs[0], result)
        elif not is_result:
            return True
        for bias in operator.inputs[2:]:
            if bias >= 0:
                constants[bias].add(0)
        return True
    if operator.name in ("MEAN", "PAD", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        waiting += (operator.inputs[0], result)
        rank, numbers = len(tensors[operator.inputs[0]].shape), tensors[operator.inputs[1]]
        if numbers.data is None or (operator.name == "PAD" and numbers.array()[-1].any()):
            return False
        return operator.name != "MEAN" or rank - 1 not in {int(axis) % rank for axis in numbers.array().reshape(-1)}
    waiting.append(result)
    for i in operator.inputs:
        if tensors[i].data is None:
            waiting.append(i)
        elif tensors[i].shape and tensors[i].shape[-1] > 1:
            constants[i].add(len(tensors[i].shape) - 1)
    return operator.name in _BY_CHANNEL


def _resize_constant(tensor: Tensor, axis: int, length: int) -> Tensor:
    """A constant with `length` elements along an axis: the first, or zeros behind them."""
    values, more = tensor.array(), length - tensor.shape[axis]
    scales, zero_points = tensor.scales, tensor.zero_points
    if len(scales) > 1 and tensor.quantised_dimension == axis:
        scales = (scales + scales[-1:] * max(0, more))[:length]
        zero_points = (zero_points + zero_points[-1:] * max(0, more))[:length]
    behind = [(0, max(0, more) if i == axis else 0) for i in range(values.ndim)]
    padded = np.pad(values, behind, constant_values=tensor.zero_point if len(scales) < 2 else 0)
    resized = np.ascontiguousarray(np.take(padded, range(length), axis))
    return replace(
        tensor, shape=resized.shape, data=resized.reshape(-1).view(np.uint8), scales=scales, zero_points=zero_points
    )
