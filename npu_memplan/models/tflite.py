"""Read a TFLite file as a `Network`, whatever wrote it: a converter, or Vela with its NPU calls; also Vela's raw
output.

Invariant: everything is checked while reading, so callers of this module never meet an index out of range.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..names import printable_text
from .checks import DamagedError, check_network, check_tensor, with_index_ranges
from .executorch.program import is_program
from .flatbuffer import FlatbufferError, NetworkError, UnsupportedModelError, verify_flatbuffer
from .frameworks import is_onnx, is_torch
from .network import CpuOperator, Network
from .operators import ContradictionError, validate_network
from .subgraphs import with_kept_variables, with_variables
from .tensor import Tensor
from .vela import NpuCall, npu_call
from .vela_file import read_raw

if TYPE_CHECKING:
    from .network import CpuOperator, Network
    from .tensor import Tensor


_BUFFER_DATA = 4  # position of a Buffer's bytes in its table's layout


@functools.lru_cache(maxsize=2)  # networks are immutable, and several stages of one compile ask for the same
def read_network(data: bytes, name: str = "network") -> Network:
    """Read a `.tflite` (compiled by Vela or not) or a raw `.npz`; `NetworkError` says what is wrong with it."""
    if data[:4] == b"PK\x03\x04" and not is_torch(Path(name)):
        if name.endswith((".pt", ".pth")):
            raise NetworkError(f"{name} holds weights of PyTorch; give what torch.export.save writes (.pt2)")
        return read_raw(data, name)
    if len(data) < 8 or data[4:8] != b"TFL3":
        raise NetworkError(
            _describe_other_format(data, name)
            or f"{name} is not a TFLite file: bytes 4 to 8 must be TFL3, but are {bytes(data[4:8])!r} "
            f"({len(data)} bytes in all); give a .tflite flatbuffer"
        )
    try:
        return _read_tflite(data, name)
    except (FlatbufferError, DamagedError, UnicodeDecodeError) as error:
        raise NetworkError(
            f"{name} is a damaged or truncated TFLite file ({len(data)} bytes): {error}; get the file again"
        ) from error
    except ContradictionError as error:
        raise NetworkError(
            f"{name} is no valid TFLite model: {error}; correct what wrote it, or convert the model again"
        ) from error


def _describe_other_format(data: bytes, name: str) -> str:
    """What to do with a model of another format that this package reads; empty for anything else."""
    path = Path(name)
    if is_program(data):
        return (
            f"{name} is an ExecuTorch program, and this is for TFLite files; check, simulate, run, compile, "
            "disassemble, report, explain and diff take a .pte"
        )
    if is_onnx(path) or is_torch(path):
        what = "an ONNX model" if is_onnx(path) else "a PyTorch program"
        return (
            f"{name} is {what}, and this is for TFLite files; compile to C (without --emit vela-tflite), explore and "
            "sweep take it"
        )
    if path.suffix.lower() in (".h5", ".keras", ".pb"):
        return f"{name} is a model of TensorFlow; convert it to an int8 .tflite with tf.lite.TFLiteConverter"
    return ""


def _read_tflite(data: bytes, name: str) -> Network:
    import tflite

    verify_flatbuffer(data)
    model = tflite.Model.GetRootAsModel(data, 0)
    if not model.SubgraphsLength():
        raise NetworkError(f"{name} has no subgraph: there is nothing to run")
    graphs = tuple(_graph(model, number, name) for number in range(model.SubgraphsLength()))
    network = with_kept_variables(with_variables(replace(graphs[0], subgraphs=graphs), graphs))
    check_network(network)
    validate_network(network)
    return with_index_ranges(network)


def _graph(model: Any, number: int, name: str) -> Network:
    graph = model.Subgraphs(number)
    offsets = _arena_offsets(model, name) if number == 0 else None
    used = _used_tensors(graph)
    tensors = tuple(
        _tensor(model, graph.Tensors(i), i, offsets[i] if offsets else -1, name) if i in used else _unread(graph, i)
        for i in range(graph.TensorsLength())
    )
    operators = tuple(_operator(model, graph.Operators(i), i, tensors, name) for i in range(graph.OperatorsLength()))
    inputs = _tensor_indices(graph.InputsAsNumpy(), tensors, f"inputs of {name}")
    outputs = _tensor_indices(graph.OutputsAsNumpy(), tensors, f"outputs of {name}")
    by_vela = (model.Description() or b"").startswith(b"Vela")  # "Vela Optimised", "Vela 5.2.0 Optimised"
    return Network(name, tensors, operators, inputs, outputs, by_vela)


def _used_tensors(graph: Any) -> set[int]:
    """Tensors that an operator or the graph itself names; others are not checked."""
    operators = [graph.Operators(i) for i in range(graph.OperatorsLength())]
    lists = [graph.InputsAsNumpy(), graph.OutputsAsNumpy()]
    for operator in operators:
        lists += [operator.InputsAsNumpy(), operator.OutputsAsNumpy(), operator.IntermediatesAsNumpy()]
    return {int(index) for indices in lists if not isinstance(indices, int) for index in indices}


def _unread(graph: Any, index: int) -> Tensor:
    """An empty tensor in place of one that is never read or written, so that indices stay."""
    name = (graph.Tensors(index).Name() or b"").decode(errors="replace")
    return Tensor(index=index, name=name, shape=(0,), dtype="uint8")


def data_offsets(data: bytes) -> dict[int, int]:
    """The places where each constant tensor's bytes begin in a `.tflite` that was read; nothing of others."""
    import tflite

    if data[4:8] != b"TFL3":
        return {}
    model = tflite.Model.GetRootAsModel(data, 0)
    graph, found = model.Subgraphs(0), {}
    for index in range(graph.TensorsLength()):
        table = model.Buffers(graph.Tensors(index).Buffer())._tab
        field = table.Offset(_BUFFER_DATA)
        if field:
            found[index] = int(table.Vector(field))
    return found


def _tensor_indices(values: Any, tensors: tuple[Tensor, ...], where: str) -> tuple[int, ...]:
    indices = () if isinstance(values, int) else tuple(int(v) for v in values)
    for index in indices:
        if not -1 <= index < len(tensors):
            raise NetworkError(f"{where}: tensor {index} does not exist, there are {len(tensors)}: the file is damaged")
    return indices


def _arena_offsets(model: Any, name: str) -> list[int] | None:
    """Offsets of the first subgraph's tensors; Vela and tflite-micro list those of all subgraphs, one after another."""
    counts = [model.Subgraphs(i).TensorsLength() for i in range(model.SubgraphsLength())]
    count = counts[0]
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        if entry.Name() == b"OfflineMemoryAllocation":
            known = 0 <= entry.Buffer() < model.BuffersLength()
            words = model.Buffers(entry.Buffer()).DataAsNumpy() if known else 0
            values: list[int] = [] if isinstance(words, int) else words[: len(words) // 4 * 4].view("<i4").tolist()
            if len(values) < 3 + count or values[2] not in (count, sum(counts)):
                raise NetworkError(
                    f"{name}: OfflineMemoryAllocation does not list {count} tensors: the file is damaged"
                )
            return list(values[3 : 3 + count])
    return None


@functools.cache
def _dtypes() -> dict[int, str]:
    import tflite

    names: tuple[str, ...] = ("float32", "float16", "int32", "uint8", "int64", "bool", "int16", "complex64")
    names += ("int8", "float64", "uint64", "uint32", "uint16")
    handle = {tflite.TensorType.RESOURCE: "int32"}  # as tflite-micro numbers them
    handle[tflite.TensorType.INT4] = "int8"  # weights of 4 bits are unpacked while they are read
    return handle | {getattr(tflite.TensorType, name.upper()): name for name in names}


def _type_name(number: int) -> str:
    """The name of a type of the schema, such as VARIANT; the number where it has none."""
    import tflite

    names = {value: name for name, value in vars(tflite.TensorType).items() if isinstance(value, int)}
    return str(names.get(number, number))


def _tensor(model: Any, table: Any, index: int, offset: int, name: str) -> Tensor:
    label = printable_text(table.Name() or b"")
    dtype = _dtypes().get(table.Type())
    if dtype is None:
        raise NetworkError(
            f"{name}: tensor {index} {label!r} has element type {_type_name(table.Type())}, which is not supported"
        )
    if not 0 <= table.Buffer() < model.BuffersLength():
        raise NetworkError(f"{name}: tensor {index} {label!r} uses buffer {table.Buffer()}, which does not exist")
    buffer = model.Buffers(table.Buffer())
    quantisation = table.Quantization()
    scaled = quantisation is not None and quantisation.ScaleLength()
    shifted = scaled and quantisation.ZeroPointLength()
    tensor = Tensor(
        index=index,
        name=label,
        shape=tuple(int(d) for d in table.ShapeAsNumpy()) if table.ShapeLength() else (),
        dtype=dtype,
        scales=tuple(quantisation.ScaleAsNumpy().tolist()) if scaled else (),
        zero_points=tuple(quantisation.ZeroPointAsNumpy().tolist()) if shifted else (),
        quantised_dimension=quantisation.QuantizedDimension() if quantisation is not None else 0,
        data=_bytes(buffer, table, f"{name}: tensor {index} {label!r}"),
        is_variable=bool(table.IsVariable()),
        has_open_shape=_has_open_shape(table, buffer),
        is_packed=_is_packed(table),
        arena_offset=offset,
    )
    if table.Sparsity() is not None:
        raise NetworkError(f"{name}: tensor {index} {label!r} is stored sparse; convert the model without sparsity")
    check_tensor(tensor)
    if tensor.data is None:
        return tensor
    return replace(tensor, data=tensor.data[: tensor.size_bytes])  # constants may be padded


def _has_open_shape(table: Any, buffer: Any) -> bool:
    """Whether a tensor that is no constant has no shape, or -1 in its signature."""
    if buffer.DataLength():
        return False
    return not table.ShapeLength() or any(table.ShapeSignature(i) < 0 for i in range(table.ShapeSignatureLength()))


def _is_packed(table: Any) -> bool:
    import tflite

    return bool(table.Type() == tflite.TensorType.INT4)


def _bytes(buffer: Any, table: Any, what: str) -> npt.NDArray[np.uint8] | None:
    """The bytes of a constant, None of what is none; two numbers of 4 bits become two of 8, the lower half first."""
    data: npt.NDArray[np.uint8] | None = buffer.DataAsNumpy() if buffer.DataLength() else None
    if data is None and buffer.Offset() > 1:  # 1 stands for none
        raise UnsupportedModelError(
            f"{what} is stored outside of the flatbuffer, as TensorFlow writes models above 2 GB, which "
            "tflite-micro does not read: convert the model without _experimental_use_buffer_offset"
        )
    if not _is_packed(table):
        return data
    if data is None:
        raise NetworkError(f"{what} is computed in 4 bits; only constants of 4 bits are read: quantise it to int8")
    halves = np.stack([data << 4, data & 0xF0], axis=-1).reshape(-1).view(np.int8) >> 4
    return halves.view(np.uint8)


@functools.cache
def _builtin_names() -> dict[int, str]:
    import tflite

    return {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int) and not k.startswith("_")}


def _operator(model: Any, table: Any, index: int, tensors: tuple[Tensor, ...], name: str) -> NpuCall | CpuOperator:
    if table.OpcodeIndex() >= model.OperatorCodesLength():
        raise DamagedError(
            f"operator {index} is of kind {table.OpcodeIndex()}; there are {model.OperatorCodesLength()}"
        )
    code = model.OperatorCodes(table.OpcodeIndex())
    inputs = _tensor_indices(table.InputsAsNumpy(), tensors, f"inputs of operator {index} of {name}")
    outputs = _tensor_indices(table.OutputsAsNumpy(), tensors, f"outputs of operator {index} of {name}")
    builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    known = _builtin_names().get(builtin, f"operator {builtin}")
    custom = printable_text(code.CustomCode() or b"") if known == "CUSTOM" else ""  # of others nothing reads it
    if custom in _builtin_names().values():
        raise UnsupportedModelError(
            f"operator {index} of {name} is a custom operator with a built-in one's name, {custom}; give it another"
        )
    if custom == "ethos-u":
        return npu_call(index, inputs, outputs, tensors, name)
    intermediates = table.IntermediatesAsNumpy() if table.IntermediatesLength() else ()
    return CpuOperator(
        index=index,
        name=custom or known,
        builtin_code=builtin,
        inputs=inputs,
        outputs=outputs,
        intermediates=tuple(int(i) for i in intermediates),
        version=code.Version(),
        table=table,
    )
