"""Operators of constants, computed in numpy when a file is read, and shapes that follow from those of the inputs.

Invariant: an evaluator gives the reference's bits or None; it looks at constants, and at shapes of others. Only what
needs no rounding of a library is here: moves, integers, TFLite's fixed point, and float32 operations that IEEE 754
defines. The folded file has the tensors of the original, at their indices; some that operators made are constants in
it, and these operators are gone; other tensors have the shape that they have when the model runs. Outputs of the
network stay computed, except where compilers round otherwise. Files with NPU calls are not changed. Everything else is
copied field by field, and new buffers come last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NpuMemplanError
from ..fixed_point import (
    LIMITS,
    activation_range,
    divide_scales,
    multiply_by_quantised,
    multiply_scales,
    quantise_multiplier,
)
from .flatbuffer import BUFFER_ALIGNMENT, TableWriter
from .network import CpuOperator, Network
from .operators import Shape, ShapeError, result_shapes
from .operators.shapes import options_of
from .tensor import Tensor
from .tflite import read_network

Arrays = list[NDArray[Any]]
_Tensors = Sequence[Any]  # of Tensor, or None where an input is left out
Evaluator = Callable[[CpuOperator, _Tensors, Sequence[Tensor]], Arrays | None]

_NUMBERS = ("int32", "int64", "float32")


def _constant_list(tensor: Tensor) -> list[int]:
    return [int(v) for v in tensor.array().reshape(-1)]


def _fold_unpack(operator: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    axis = options_of(operator, "UnpackOptions").Axis()
    parts = np.split(inputs[0].array(), len(outputs), axis)
    return [np.squeeze(part, axis) for part in parts]


def _fold_concatenation(operator: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    options = options_of(operator, "ConcatenationOptions")
    alike = all((t.scale, t.zero_point) == (outputs[0].scale, outputs[0].zero_point) for t in inputs)
    if options.FusedActivationFunction() != 0 or not alike:
        return None
    return [np.concatenate([t.array() for t in inputs], options.Axis())]


def _split(operator: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    data, axis = (inputs[1], inputs[0]) if operator.name == "SPLIT" else (inputs[0], inputs[2])
    (along,) = _constant_list(axis)
    ends = np.cumsum([t.shape[along] for t in outputs])
    return np.split(data.array(), ends[:-1], along)


def _gather(operator: CpuOperator, inputs: _Tensors, _: Sequence[Tensor]) -> Arrays | None:
    options, data, indices = options_of(operator, "GatherOptions"), inputs[0].array(), inputs[1].array()
    if options.BatchDims() or indices.min(initial=0) < 0:
        return None
    return [np.take(data, indices, options.Axis())]


def _slice(_: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    begin = _constant_list(inputs[1])
    return [inputs[0].array()[tuple(slice(b, b + n) for b, n in zip(begin, outputs[0].shape, strict=True))]]


def _strided_slice(operator: CpuOperator, inputs: _Tensors, _: Sequence[Tensor]) -> Arrays | None:
    options = options_of(operator, "StridedSliceOptions")
    if options.Offset():  # its ends count from its begins
        return None
    places: list[Any] = []
    for bit, (first, last, step) in enumerate(zip(*map(_constant_list, inputs[1:4]), strict=True)):
        if options.EllipsisMask() >> bit & 1:
            places.append(Ellipsis)
        elif options.NewAxisMask() >> bit & 1:
            places.append(None)
        elif options.ShrinkAxisMask() >> bit & 1:
            places.append(first)
        else:
            begin = None if options.BeginMask() >> bit & 1 else first
            places.append(slice(begin, None if options.EndMask() >> bit & 1 else last, step))
    return [np.asarray(inputs[0].array()[tuple(places)])]


def _fold_range(_: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    if outputs[0].dtype not in ("int32", "int64"):
        return None
    return [np.arange(*(_constant_list(t)[0] for t in inputs), dtype=outputs[0].dtype)]


def _cast(_: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    whole = inputs[0].dtype in ("int32", "int64", "bool") and outputs[0].dtype in _NUMBERS
    narrow = (inputs[0].dtype, outputs[0].dtype) == ("float32", "int32")
    values = inputs[0].array()
    if not whole and not (narrow and np.all(abs(values) < 2**31)):
        return None
    return [values.astype(outputs[0].dtype)]


def _fold_quantize(_: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    """One scale and zero point to another, as the reference rounds; Vela's compilers round otherwise."""
    data, output = inputs[0], outputs[0]
    if max(len(data.scales), len(output.scales)) > 1 or not output.scale or output.dtype not in LIMITS:
        return None
    low, high = LIMITS[output.dtype]
    if data.dtype == "float32":
        ratio = data.array() / np.float32(output.scale)
        if output.dtype == "int32" or not np.all(np.isfinite(ratio)):
            return None
        rounded = np.copysign(np.floor(np.abs(ratio.astype(np.float64)) + 0.5), ratio)
        moved = np.clip(rounded, -1e9, 1e9).astype(np.int64) + output.zero_point
    elif data.dtype in LIMITS and data.scale:
        scale = quantise_multiplier(data.scale / output.scale)
        moved = multiply_by_quantised(data.array().astype(np.int64) - data.zero_point, *scale) + output.zero_point
    else:
        return None
    return [np.clip(moved, low, high).astype(output.dtype)]


def _divide_truncating(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """C's division of integers."""
    quotient = np.abs(a) // np.abs(b)
    signed: NDArray[Any] = np.where((a < 0) != (b < 0), -quotient, quotient)
    return signed.astype(a.dtype)


_ARITHMETIC: dict[str, tuple[str, Callable[..., NDArray[Any]]]] = {
    "ADD": ("AddOptions", np.add),
    "SUB": ("SubOptions", np.subtract),
    "MUL": ("MulOptions", np.multiply),
    "DIV": ("DivOptions", np.divide),
    "FLOOR_DIV": ("", np.floor_divide),
    "FLOOR_MOD": ("", np.mod),
    "MAXIMUM": ("", np.maximum),
    "MINIMUM": ("", np.minimum),
    **{name: ("", function) for name, function in (
        ("EQUAL", np.equal), ("NOT_EQUAL", np.not_equal), ("LESS", np.less), ("LESS_EQUAL", np.less_equal),
        ("GREATER", np.greater), ("GREATER_EQUAL", np.greater_equal),
    )},
}  # fmt: skip


def _quantized_product(operator: CpuOperator, inputs: _Tensors, output: Tensor) -> Arrays | None:
    """A product of stored values as the reference rounds it; Vela's compilers round products of constants otherwise."""
    a, b = inputs
    if output.dtype not in ("int8", "uint8", "int16") or not output.scale:
        return None
    if any(len(t.scales) != 1 or t.dtype != output.dtype for t in (a, b)):
        return None
    single = output.dtype == "uint8"  # LiteRT's
    factor = multiply_scales(a.scale, b.scale, single=single)
    scale = quantise_multiplier(divide_scales(factor, output.scale, single=single))
    first, second = (t.array().astype(np.int64) - t.zero_point for t in (a, b))
    activation = options_of(operator, "MulOptions").FusedActivationFunction()
    limits = activation_range(activation, output.scale, output.zero_point, output.dtype)
    product = multiply_by_quantised(first * second, *scale) + output.zero_point
    return [np.clip(product, *limits).astype(output.dtype)]


def _fold_arithmetic(operator: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    """Fold plain numbers of one type, without an activation, and without a division by zero."""
    if operator.name == "MUL" and outputs[0].scales:
        return _quantized_product(operator, inputs, outputs[0])
    table, function = _ARITHMETIC[operator.name]
    a, b = (t.array() for t in inputs)
    if a.dtype != b.dtype or a.dtype.name not in _NUMBERS:
        return None
    if table and options_of(operator, table).FusedActivationFunction() != 0:
        return None
    divides = operator.name in ("DIV", "FLOOR_DIV", "FLOOR_MOD")
    if divides and (not np.all(b) or (a.dtype.kind == "f" and operator.name != "DIV")):
        return None
    if operator.name == "DIV" and a.dtype.kind == "i":
        return [_divide_truncating(*np.broadcast_arrays(a, b))]
    with np.errstate(all="ignore"):
        return [np.asarray(function(a, b))]


_REDUCTIONS: dict[str, Callable[..., NDArray[Any]]] = {
    "REDUCE_PROD": np.prod,
    "SUM": np.sum,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
}


def _fold_reduction(operator: CpuOperator, inputs: _Tensors, _: Sequence[Tensor]) -> Arrays | None:
    values = inputs[0].array()
    if values.dtype.name not in ("int32", "int64"):
        return None
    keep = bool(options_of(operator, "ReducerOptions").KeepDims())
    axes = tuple({axis % values.ndim for axis in _constant_list(inputs[1])})
    return [np.asarray(_REDUCTIONS[operator.name](values, axis=axes, keepdims=keep)).astype(values.dtype)]


# (operator, inputs, outputs) -> what is made; a file that leaves shapes to the run time has none.
EVALUATORS: dict[str, Evaluator] = {
    "SHAPE": lambda _, i, o: [np.array(i[0].shape, o[0].dtype)] if i[0].shape else None,
    "RANK": lambda _, i, o: [np.full(o[0].shape, len(i[0].shape), o[0].dtype)] if i[0].shape else None,
    "ZEROS_LIKE": lambda _, __, o: (
        [np.zeros(o[0].shape, o[0].dtype)] if o[0].dtype in _NUMBERS and o[0].shape else None
    ),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), lambda _, i, o: [i[0].array().reshape(o[0].shape)]),
    "TRANSPOSE": lambda _, i, __: [i[0].array().transpose(_constant_list(i[1]))],
    "BROADCAST_TO": lambda _, i, o: [np.broadcast_to(i[0].array(), o[0].shape)],
    "BROADCAST_ARGS": lambda _, i, o: [
        np.array(np.broadcast_shapes(*(tuple(_constant_list(t)) for t in i)), o[0].dtype)
    ],
    "FILL": lambda _, i, o: [np.full(o[0].shape, i[1].array().reshape(-1)[0], o[0].dtype)],
    "TILE": lambda _, i, __: [np.tile(i[0].array(), _constant_list(i[1]))],
    # Halves only: integers are smaller as they are.
    "DEQUANTIZE": lambda _, i, __: [i[0].array().astype(np.float32)] if i[0].dtype == "float16" else None,
    "QUANTIZE": _fold_quantize,
    "PACK": lambda op, i, _: [np.stack([t.array() for t in i], options_of(op, "PackOptions").Axis())],
    "UNPACK": _fold_unpack,
    "CONCATENATION": _fold_concatenation,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "GATHER": _gather,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "RANGE": _fold_range,
    "CAST": _cast,
    **dict.fromkeys(_ARITHMETIC, _fold_arithmetic),
    **dict.fromkeys(_REDUCTIONS, _fold_reduction),
}


_MOST_GROWTH_BYTES = 1 << 16  # of constants that are larger than what they are made of
_ROUNDED = ("QUANTIZE", "MUL")  # Vela rounds what it makes of constants otherwise than the reference
_ALWAYS_FOLDED = ("DEQUANTIZE", *_ROUNDED)  # whatever their size: halves have no code, so they become float32


@functools.lru_cache(maxsize=2)  # several stages ask for the same file
def fold_constants(data: bytes, name: str = "network") -> bytes:
    """`data`, a file that `read_network` reads, with operators of constants folded; itself where there are none."""
    if data[4:8] != b"TFL3":
        return data
    data = with_static_shapes(data, name)
    network = read_network(data, name)
    if network.npu_calls:
        return data
    made = [_constant_results(graph) for graph in network.subgraphs]
    return with_constants(data, made) if any(made) else data


@functools.lru_cache(maxsize=2)
def with_static_shapes(data: bytes, name: str = "network") -> bytes:
    """`data`, a TFLite file, with the shapes that tensors have when the model runs, where the file leaves them open and
    they can be inferred; itself where there are none.
    """
    network = read_network(data, name)
    if network.npu_calls:
        return data
    unsaid = [{t.index for t in g.tensors if t.has_open_shape} - set(g.inputs) for g in network.subgraphs]
    found = [_known_shapes(graph, left) if left else {} for graph, left in zip(network.subgraphs, unsaid, strict=True)]
    return with_shapes(data, found) if any(found) else data


def _known_shapes(graph: Network, unsaid: set[int]) -> dict[int, Shape]:
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


def _constant_results(graph: Network) -> dict[int, dict[int, bytes]]:
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
    """The results of `operator`; None where they are known only when the model runs, or where the file contradicts
    them. Tensors in `unsaid` may have any shape.
    """
    if operator.name not in EVALUATORS or not operator.outputs:
        return None
    outputs = [graph.tensors[i] for i in operator.outputs]
    inputs = [graph.tensors[i] if i >= 0 else None for i in operator.inputs]
    by_shape = operator.name in ("SHAPE", "RANK", "ZEROS_LIKE")
    if not inputs or any(_has_no_constant(tensor) and not by_shape for tensor in inputs):
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


def _has_no_constant(tensor: Tensor | None) -> bool:
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
