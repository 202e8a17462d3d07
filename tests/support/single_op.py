"""One-operator TFLite models: written here, run by TFLite Micro's reference kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import tflite

_TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}


@dataclass
class TensorSpec:
    """A tensor of the model; `data` makes it a constant."""

    shape: Sequence[int]
    dtype: str = "int8"
    scale: float | Sequence[float] = 0.0
    zero_point: int = 0
    data: np.ndarray | None = None
    is_variable: bool = False
    axis: int = 0


def constant(values: Any, dtype: str = "int32", scale: Any = 0.0, zero_point: int = 0, axis: int = 0) -> TensorSpec:
    data = np.asarray(values, dtype)
    return TensorSpec(data.shape, dtype, scale, zero_point, data, axis=axis)


def option_table(kind: str, **fields: Any) -> Callable[[flatbuffers.Builder], int]:
    """`option_table("AddOptions", FusedActivationFunction=1)`: writes the table, returns its offset."""

    def write(builder: flatbuffers.Builder) -> int:
        vectors = {}
        for name, value in fields.items():
            if isinstance(value, (list, tuple)):
                vectors[name] = builder.CreateNumpyVector(np.asarray(value, np.int32))
        getattr(tflite, f"{kind}Start")(builder)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(builder, vectors.get(name, value))
        return int(getattr(tflite, f"{kind}End")(builder))

    return write


def write_model(
    name: str,
    inputs: Sequence[TensorSpec | None],
    outputs: Sequence[TensorSpec],
    options: tuple[str, dict[str, Any]] | None = None,
    version: int = 1,
) -> bytes:
    """A model with one operator `name`; None is an omitted optional input."""
    builder = flatbuffers.Builder(1024)
    specs = [s for s in inputs if s is not None] + list(outputs)
    buffers = [b""]
    buffer_of = []
    for spec in specs:
        if spec.data is None:
            buffer_of.append(0)
        else:
            buffer_of.append(len(buffers))
            buffers.append(np.ascontiguousarray(spec.data).tobytes())
    buffer_tables = []
    for data in buffers:
        vector = builder.CreateNumpyVector(np.frombuffer(data, np.uint8)) if data else None
        tflite.BufferStart(builder)
        if vector is not None:
            tflite.BufferAddData(builder, vector)
        buffer_tables.append(tflite.BufferEnd(builder))
    tensors = [_tensor(builder, f"t{i}", s, b) for i, (s, b) in enumerate(zip(specs, buffer_of, strict=True))]
    tensor_vector = _offsets(builder, tensors)
    numbers = iter(range(len(specs)))
    input_ids = [-1 if s is None else next(numbers) for s in inputs]
    output_ids = [next(numbers) for _ in outputs]
    op_inputs = builder.CreateNumpyVector(np.asarray(input_ids, np.int32))
    op_outputs = builder.CreateNumpyVector(np.asarray(output_ids, np.int32))
    graph_inputs = [i for i, s in zip(input_ids, inputs, strict=True) if s and s.data is None and not s.is_variable]
    graph_in = builder.CreateNumpyVector(np.asarray(graph_inputs, np.int32))
    graph_out = builder.CreateNumpyVector(np.asarray(output_ids, np.int32))
    table = option_table(options[0], **options[1])(builder) if options else None
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, 0)
    tflite.OperatorAddInputs(builder, op_inputs)
    tflite.OperatorAddOutputs(builder, op_outputs)
    if table is not None:
        assert options is not None
        tflite.OperatorAddBuiltinOptionsType(builder, getattr(tflite.BuiltinOptions, options[0]))
        tflite.OperatorAddBuiltinOptions(builder, table)
    operators = _offsets(builder, [tflite.OperatorEnd(builder)])
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensor_vector)
    tflite.SubGraphAddInputs(builder, graph_in)
    tflite.SubGraphAddOutputs(builder, graph_out)
    tflite.SubGraphAddOperators(builder, operators)
    graphs = _offsets(builder, [tflite.SubGraphEnd(builder)])
    code = getattr(tflite.BuiltinOperator, name)
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(code, 127))
    tflite.OperatorCodeAddBuiltinCode(builder, code)
    tflite.OperatorCodeAddVersion(builder, version)
    codes = _offsets(builder, [tflite.OperatorCodeEnd(builder)])
    buffer_vector = _offsets(builder, buffer_tables)
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, codes)
    tflite.ModelAddSubgraphs(builder, graphs)
    tflite.ModelAddBuffers(builder, buffer_vector)
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    return bytes(builder.Output())


def _offsets(builder: flatbuffers.Builder, items: Sequence[int]) -> int:
    builder.StartVector(4, len(items), 4)
    for item in reversed(items):
        builder.PrependUOffsetTRelative(item)
    return int(builder.EndVector())


def _tensor(builder: flatbuffers.Builder, label: str, spec: TensorSpec, buffer: int) -> int:
    name = builder.CreateString(label)
    shape = builder.CreateNumpyVector(np.asarray(spec.shape, np.int32))
    scales = list(spec.scale) if isinstance(spec.scale, (list, tuple, np.ndarray)) else [spec.scale]
    quantization = None
    if any(scales):
        scale_vector = builder.CreateNumpyVector(np.asarray(scales, np.float32))
        zeros = builder.CreateNumpyVector(np.full(len(scales), spec.zero_point, np.int64))
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scale_vector)
        tflite.QuantizationParametersAddZeroPoint(builder, zeros)
        tflite.QuantizationParametersAddQuantizedDimension(builder, spec.axis)
        quantization = tflite.QuantizationParametersEnd(builder)
    tflite.TensorStart(builder)
    tflite.TensorAddName(builder, name)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddType(builder, _TYPES[spec.dtype])
    tflite.TensorAddBuffer(builder, buffer)
    tflite.TensorAddIsVariable(builder, spec.is_variable)
    if quantization is not None:
        tflite.TensorAddQuantization(builder, quantization)
    return int(tflite.TensorEnd(builder))


def reference(model: bytes, runs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """TFLite Micro's outputs of consecutive inferences (states are kept between them)."""
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 22)
    results = []
    for inputs in runs:
        for index, value in enumerate(inputs):
            interpreter.set_input(value, index)
        interpreter.invoke()
        count = tflite.Model.GetRootAsModel(model, 0).Subgraphs(0).OutputsLength()
        results.append([np.array(interpreter.get_output(i)) for i in range(count)])
    return results
