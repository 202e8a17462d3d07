"""Builds small TFLite models, tensor by tensor.

Invariant: what is built is a complete flatbuffer that both Vela and tflite-micro accept; nothing is random here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import tflite
from flatbuffers import flexbuffers

_TYPES = {"int8": 9, "uint8": 3, "int16": 7, "int32": 2, "int64": 4, "float32": 0, "bool": 6, "uint32": 15,
          "uint64": 12, "resource": 13, "variant": 14, "string": 5, "int4": 17, "float16": 1}  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """One tensor; `scale` None: not quantised, a sequence: per channel along `axis`."""

    shape: Sequence[int]
    dtype: str = "int8"
    scale: Any = None
    zero_point: int = 0
    axis: int = 0
    data: np.ndarray | None = None
    is_variable: bool = False
    name: str = ""  # empty: after its number
    signature: tuple[int, ...] = ()  # the shape with -1 where it is left to the run time


def constant(values: Any, dtype: str = "int32", scale: Any = None, zero_point: int = 0, axis: int = 0) -> TensorSpec:
    """A constant tensor of these values."""
    data = np.asarray(values, dtype)
    return TensorSpec(data.shape, str(data.dtype), scale, zero_point, axis, data)


class ModelBuilder:
    """Collects tensors and operators of a subgraph; `finish` makes the file, `subgraphs` behind its own."""

    def __init__(self, subgraphs: Sequence[ModelBuilder] = ()) -> None:
        self.subgraphs = list(subgraphs)
        self.tensors: list[TensorSpec] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.operators: list[tuple[str, list[int], list[int], str | None, dict[str, Any], int]] = []
        self.intermediates: dict[int, list[int]] = {}  # number of an operator -> its intermediate tensors

    def tensor(self, shape: Sequence[int], dtype: str, scale: Any = None, zero_point: int = 0, **more: Any) -> int:
        """Add a tensor; its index."""
        self.tensors.append(TensorSpec(tuple(shape), dtype, scale, zero_point, **more))
        return len(self.tensors) - 1

    def constant(self, data: np.ndarray, scale: Any = None, zero_point: int = 0, axis: int = 0) -> int:
        """Add a constant tensor; its index."""
        return self.tensor(data.shape, str(data.dtype), scale, zero_point, axis=axis, data=data)

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str | None = None,
        version: int = 1,
        **fields: Any,
    ) -> None:
        """Add an operator: schema name, tensors, options table (`"Conv2DOptions"`) and its fields.

        A custom one is `custom:NAME`; its fields become a flexbuffer.
        """
        self.operators.append((name, list(inputs), list(outputs), options, fields, version))

    def made(self, inputs: Sequence[int], outputs: Sequence[int]) -> ModelBuilder:
        """Say what the model's inputs and outputs are."""
        self.inputs, self.outputs = list(inputs), list(outputs)
        return self

    def beside(self, other: ModelBuilder) -> ModelBuilder:
        """One model of both, which have nothing to do with each other and no subgraphs."""
        both, first = ModelBuilder(), len(self.tensors)

        def moved(indices: Sequence[int]) -> list[int]:
            return [i + first if i >= 0 else i for i in indices]

        both.tensors = self.tensors + other.tensors
        both.operators = list(self.operators)
        for name, inputs, outputs, options, fields, version in other.operators:
            both.operators.append((name, moved(inputs), moved(outputs), options, fields, version))
        return both.made([*self.inputs, *moved(other.inputs)], [*self.outputs, *moved(other.outputs)])

    def finish(self) -> bytes:
        """The flatbuffer."""
        b = flatbuffers.Builder(4096)
        buffers = [self._buffer(b, None)]
        codes: dict[tuple[str, int], int] = {}
        graphs = [graph._graph(b, buffers, codes) for graph in (self, *self.subgraphs)]
        code_tables = []
        for name, version in codes:
            custom = name.startswith("custom:")
            number = tflite.BuiltinOperator.CUSTOM if custom else getattr(tflite.BuiltinOperator, name)
            values = {"DeprecatedBuiltinCode": min(number, 127), "BuiltinCode": number, "Version": version}
            if custom:
                values["CustomCode"] = b.CreateString(name.removeprefix("custom:"))
            code_tables.append(_table(b, "OperatorCode", values))
        model = {
            "Version": 3,
            "OperatorCodes": _offsets(b, code_tables),
            "Subgraphs": _offsets(b, graphs),
            "Description": b.CreateString("test"),
            "Buffers": _offsets(b, buffers),
        }
        b.Finish(_table(b, "Model", model), b"TFL3")
        return bytes(b.Output())

    def _graph(self, b: flatbuffers.Builder, buffers: list[int], codes: dict[tuple[str, int], int]) -> int:
        """The subgraph; its constants and kinds of operators are added to the model's."""
        tensors = []
        for i, spec in enumerate(self.tensors):
            position = 0
            if spec.data is not None:
                position = len(buffers)
                buffers.append(self._buffer(b, spec.data))
            tensors.append(self._tensor(b, i, spec, position))
        operators = []
        for number, operator in enumerate(self.operators):
            code = codes.setdefault((operator[0], operator[5]), len(codes))
            operators.append(self._operator(b, operator, code, self.intermediates.get(number)))
        fields = {
            "Tensors": _offsets(b, tensors),
            "Inputs": _ints(b, self.inputs),
            "Outputs": _ints(b, self.outputs),
            "Operators": _offsets(b, operators),
        }
        return _table(b, "SubGraph", fields)

    def _buffer(self, b: flatbuffers.Builder, data: np.ndarray | None) -> int:
        if data is None:
            return _table(b, "Buffer", {})
        raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        b.StartVector(1, len(raw), 16)
        b.head = b.Head() - len(raw)
        b.Bytes[b.Head() : b.Head() + len(raw)] = raw.tobytes()
        return _table(b, "Buffer", {"Data": b.EndVector()})

    def _tensor(self, b: flatbuffers.Builder, index: int, spec: TensorSpec, buffer: int) -> int:
        name, shape = b.CreateString(spec.name or f"t{index}"), _ints(b, spec.shape)
        signature = _ints(b, spec.signature) if spec.signature else None
        quantization = None
        if spec.scale is not None:
            scales = np.atleast_1d(np.asarray(spec.scale, np.float32))
            values = {
                "Scale": b.CreateNumpyVector(scales),
                "ZeroPoint": b.CreateNumpyVector(np.full(len(scales), spec.zero_point, np.int64)),
                "QuantizedDimension": spec.axis,
            }
            quantization = _table(b, "QuantizationParameters", values)
        fields = {"Shape": shape, "Type": _TYPES[spec.dtype], "Buffer": buffer, "Name": name}
        if signature is not None:
            fields["ShapeSignature"] = signature
        if quantization is not None:
            fields["Quantization"] = quantization
        if spec.is_variable:
            fields["IsVariable"] = True
        return _table(b, "Tensor", fields)

    def _operator(self, b: flatbuffers.Builder, operator: Any, code: int, intermediates: list[int] | None) -> int:
        name, inputs, outputs, options, values, _ = operator
        fields: dict[str, Any] = {"OpcodeIndex": code, "Inputs": _ints(b, inputs), "Outputs": _ints(b, outputs)}
        if intermediates is not None:
            fields["Intermediates"] = _ints(b, intermediates)
        if options is not None:
            made = {k: _vector(b, v) for k, v in values.items()}
            fields["BuiltinOptions"] = _table(b, options, made)
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, options)
        if name.startswith("custom:"):
            fields["CustomOptions"] = b.CreateByteVector(bytes(flexbuffers.Dumps(values)))
        return _table(b, "Operator", fields)


def single_operator(
    name: str,
    inputs: Sequence[TensorSpec | None],
    outputs: Sequence[TensorSpec],
    options: str | None = None,
    version: int = 1,
    **fields: Any,
) -> ModelBuilder:
    """A model of one operator; None is an omitted input. Constants and variables are no inputs of the model."""
    b = ModelBuilder()
    given = []
    for spec in inputs:
        given.append(-1 if spec is None else len(b.tensors))
        b.tensors += [] if spec is None else [spec]
    results = [*range(len(b.tensors), len(b.tensors) + len(outputs))]
    b.tensors += outputs
    b.operator(name, given, results, options, version, **fields)
    return b.made([i for i in given if i >= 0 and b.tensors[i].data is None and not b.tensors[i].is_variable], results)


def write_model(
    name: str,
    inputs: Sequence[TensorSpec | None],
    outputs: Sequence[TensorSpec],
    options: tuple[str, dict[str, Any]] | None = None,
    version: int = 1,
) -> bytes:
    """The file of a model of one operator."""
    table, fields = options or (None, {})
    return single_operator(name, inputs, outputs, table, version, **fields).finish()


def _table(b: flatbuffers.Builder, name: str, fields: dict[str, Any]) -> int:
    module = importlib.import_module(f"tflite.{name}")
    getattr(module, f"{name}Start")(b)
    for field, value in fields.items():
        getattr(module, f"{name}Add{field}")(b, value)
    return getattr(module, f"{name}End")(b)


def _vector(b: flatbuffers.Builder, value: Any) -> Any:
    if isinstance(value, str):
        return b.CreateString(value)
    return _ints(b, value) if isinstance(value, (list, tuple)) else value


def _ints(b: flatbuffers.Builder, values: Sequence[int]) -> int:
    return b.CreateNumpyVector(np.asarray(values, np.int32))


def _offsets(b: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return b.EndVector()
