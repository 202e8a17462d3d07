"""A network that Vela has compiled, as data: NPU calls, CPU operators, tensors and where they lie.

Invariant: tensors and operators keep the file's indices and order, and everything is checked while
reading, so code behind this module never meets an index out of range. Reads `.tflite` and raw `.npz`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import NpuMemplanError
from .arch import Architecture
from .flatbuffer import FlatbufferError, verify_flatbuffer
from .network_checks import DamagedError, check_network, check_tensor
from .stream.container import Payload, parse_payload
from .stream.groups import REGION_REGISTERS


class NetworkError(NpuMemplanError):
    """A file is not a readable TFLite or Vela raw network."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One tensor of the subgraph."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy name
    scales: tuple[float, ...] = ()  # empty: not quantised; several: per channel
    zero_points: tuple[int, ...] = ()
    quantized_dimension: int = 0
    data: NDArray[np.uint8] | None = field(default=None, repr=False)  # constant bytes
    is_variable: bool = False
    arena_offset: int = -1  # OfflineMemoryAllocation; -1: none

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def scale(self) -> float:
        """The per-tensor scale; 0.0 when not quantised."""
        return self.scales[0] if self.scales else 0.0

    @property
    def zero_point(self) -> int:
        """The per-tensor zero point; 0 when not quantised."""
        return self.zero_points[0] if self.zero_points else 0

    def array(self) -> NDArray[Any]:
        """The constant as an array of `shape` and `dtype`; `NetworkError` when it is no constant."""
        if self.data is None:
            raise NetworkError(f"tensor {self.index} {self.name!r} is no constant")
        return self.data.view(self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class NpuCall:
    """One `ethos-u` operator: a command stream, its constants and its arguments."""

    index: int  # position in the operator list
    payload: Payload = field(repr=False)
    read_only: NDArray[np.uint8] = field(repr=False)  # region 0
    scratch_bytes: int  # region 1
    scratch_fast_bytes: int  # region 2; 0 when it is not a memory of its own
    inputs: tuple[int, ...]  # tensor indices, without the four administrative ones
    outputs: tuple[int, ...]
    scratch_tensor: int = -1  # tensor index; -1 in raw networks
    scratch_fast_tensor: int = -1  # tensor index when it is a tensor of its own, else -1
    # (region, byte address) of inputs and outputs in the stream's address space
    input_addresses: tuple[tuple[int, int], ...] = ()
    output_addresses: tuple[tuple[int, int], ...] = ()

    @property
    def accelerator(self) -> Architecture:
        """The NPU the stream was made for."""
        return self.payload.accelerator

    @property
    def words(self) -> tuple[int, ...]:
        """The command stream."""
        return self.payload.words


_Options = TypeVar("_Options")


@dataclass(frozen=True, slots=True, eq=False)
class CpuOperator:
    """An operator left to the host. -1 in `inputs` is an omitted optional input."""

    index: int
    name: str  # schema name ("SOFTMAX"), or the custom code
    builtin_code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...] = ()
    version: int = 1
    table: Any = field(default=None, repr=False)  # the tflite.Operator

    @property
    def is_custom(self) -> bool:
        """True for operators outside the TFLite schema."""
        return self.builtin_code == 32

    def options(self, kind: type[_Options]) -> _Options | None:
        """The built-in options as `kind` (e.g. `tflite.SoftmaxOptions`), None when the file has none."""
        import tflite

        table = None if self.table is None else self.table.BuiltinOptions()
        if table is None or self.table.BuiltinOptionsType() != getattr(tflite.BuiltinOptions, kind.__name__):
            return None
        view: Any = kind()
        view.Init(table.Bytes, table.Pos)
        result: _Options = view
        return result

    def custom_options(self) -> bytes:
        """The raw custom options (a flexbuffer, as a rule)."""
        return self.table.CustomOptionsAsNumpy().tobytes() if self.table.CustomOptionsLength() else b""


@dataclass(frozen=True, slots=True, eq=False)
class VelaNetwork:
    """The (only) subgraph of a network."""

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[NpuCall | CpuOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    by_vela: bool = False  # whether Vela wrote the file, whatever it gave the NPU

    @property
    def npu_calls(self) -> tuple[NpuCall, ...]:
        """The NPU calls in order."""
        return tuple(o for o in self.operators if isinstance(o, NpuCall))

    @property
    def cpu_operators(self) -> tuple[CpuOperator, ...]:
        """The host operators in order."""
        return tuple(o for o in self.operators if isinstance(o, CpuOperator))

    @property
    def states(self) -> tuple[int, ...]:
        """Variable tensors that operators read: they outlive an inference and start at their zero point."""
        read = dict.fromkeys(i for o in self.operators for i in o.inputs if i >= 0)
        return tuple(i for i in sorted(read) if self.tensors[i].is_variable)

    def why_nothing_runs_on_the_npu(self) -> str:
        """For messages about a network without NPU calls."""
        if not self.by_vela:
            return f"{self.name} has no ethos-u operator: it was not compiled by Vela; run vela on it first"
        names = ", ".join(sorted({o.name for o in self.cpu_operators}))
        return (
            f"{self.name} has no ethos-u operator: Vela compiled it, but left all {len(self.operators)} operators "
            f"to the CPU ({names}); nothing of it runs on an NPU"
        )


@functools.lru_cache(maxsize=2)  # networks are immutable, and several stages of one compile ask for the same
def read_network(data: bytes, name: str = "network") -> VelaNetwork:
    """Read a `.tflite` (compiled by Vela or not) or a raw `.npz`; `NetworkError` says what is wrong with it."""
    if data[:4] == b"PK\x03\x04":
        from .raw_network import read_raw

        return read_raw(data, name)
    if len(data) < 8 or data[4:8] != b"TFL3":
        raise NetworkError(
            f"{name} is not a TFLite file: bytes 4 to 8 must be TFL3, but are {bytes(data[4:8])!r} "
            f"({len(data)} bytes in all); give a .tflite flatbuffer"
        )
    try:
        return _read_tflite(data, name)
    except (FlatbufferError, DamagedError, UnicodeDecodeError) as error:
        raise NetworkError(
            f"{name} is a damaged or truncated TFLite file ({len(data)} bytes): {error}; get the file again"
        ) from error


def _read_tflite(data: bytes, name: str) -> VelaNetwork:
    import tflite

    verify_flatbuffer(data)
    model = tflite.Model.GetRootAsModel(data, 0)
    if model.SubgraphsLength() != 1:
        raise NetworkError(f"{name} has {model.SubgraphsLength()} subgraphs; exactly one is supported")
    graph = model.Subgraphs(0)
    offsets = _arena_offsets(model, graph.TensorsLength(), name)
    tensors = tuple(
        _tensor(model, graph.Tensors(i), i, offsets[i] if offsets else -1, name) for i in range(graph.TensorsLength())
    )
    operators = tuple(_operator(model, graph.Operators(i), i, tensors, name) for i in range(graph.OperatorsLength()))
    inputs = _indices(graph.InputsAsNumpy(), tensors, f"inputs of {name}")
    outputs = _indices(graph.OutputsAsNumpy(), tensors, f"outputs of {name}")
    by_vela = (model.Description() or b"").startswith(b"Vela")  # "Vela Optimised", "Vela 5.2.0 Optimised"
    network = VelaNetwork(name, tensors, operators, inputs, outputs, by_vela)
    check_network(network)
    return network


def _indices(values: Any, tensors: tuple[Tensor, ...], where: str) -> tuple[int, ...]:
    indices = () if isinstance(values, int) else tuple(int(v) for v in values)
    for index in indices:
        if not -1 <= index < len(tensors):
            raise NetworkError(f"{where}: tensor {index} does not exist, there are {len(tensors)}: the file is damaged")
    return indices


def _arena_offsets(model: Any, count: int, name: str) -> list[int] | None:
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        if entry.Name() == b"OfflineMemoryAllocation":
            known = 0 <= entry.Buffer() < model.BuffersLength()
            words = model.Buffers(entry.Buffer()).DataAsNumpy() if known else 0
            values: list[int] = [] if isinstance(words, int) else words[: len(words) // 4 * 4].view("<i4").tolist()
            if len(values) < 3 + count or values[2] != count:
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
    return {getattr(tflite.TensorType, name.upper()): name for name in names}


def _tensor(model: Any, table: Any, index: int, offset: int, name: str) -> Tensor:
    label = (table.Name() or b"").decode()
    dtype = _dtypes().get(table.Type())
    if dtype is None:
        raise NetworkError(f"{name}: tensor {index} {label!r} has element type {table.Type()}, which is not supported")
    if not 0 <= table.Buffer() < model.BuffersLength():
        raise NetworkError(f"{name}: tensor {index} {label!r} uses buffer {table.Buffer()}, which does not exist")
    buffer = model.Buffers(table.Buffer())
    quantization = table.Quantization()
    scales: tuple[float, ...] = ()
    zeros: tuple[int, ...] = ()
    if quantization is not None and quantization.ScaleLength():
        scales = tuple(quantization.ScaleAsNumpy().tolist())
        if quantization.ZeroPointLength():
            zeros = tuple(quantization.ZeroPointAsNumpy().tolist())
    tensor = Tensor(
        index=index,
        name=label,
        shape=tuple(int(d) for d in table.ShapeAsNumpy()) if table.ShapeLength() else (),
        dtype=dtype,
        scales=scales,
        zero_points=zeros,
        quantized_dimension=quantization.QuantizedDimension() if quantization is not None else 0,
        data=buffer.DataAsNumpy() if buffer.DataLength() else None,
        is_variable=bool(table.IsVariable()),
        arena_offset=offset,
    )
    if table.Sparsity() is not None:
        raise NetworkError(f"{name}: tensor {index} {label!r} is stored sparse; convert the model without sparsity")
    check_tensor(tensor)
    if tensor.data is None:
        return tensor
    return replace(tensor, data=tensor.data[: tensor.size_bytes])  # constants may be padded


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
    inputs = _indices(table.InputsAsNumpy(), tensors, f"inputs of operator {index} of {name}")
    outputs = _indices(table.OutputsAsNumpy(), tensors, f"outputs of operator {index} of {name}")
    builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    custom = (code.CustomCode() or b"").decode()
    if custom == "ethos-u":
        return _npu_call(index, inputs, outputs, tensors, name)
    intermediates = table.IntermediatesAsNumpy() if table.IntermediatesLength() else ()
    return CpuOperator(
        index=index,
        name=custom or _builtin_names().get(builtin, f"operator {builtin}"),
        builtin_code=builtin,
        inputs=inputs,
        outputs=outputs,
        intermediates=tuple(int(i) for i in intermediates),
        version=code.Version(),
        table=table,
    )


def _npu_call(
    index: int, inputs: tuple[int, ...], outputs: tuple[int, ...], tensors: tuple[Tensor, ...], name: str
) -> NpuCall:
    where = f"ethos-u operator {index} of {name}"
    if len(inputs) < 4 or -1 in inputs:
        raise NetworkError(f"{where} has {len(inputs)} inputs; stream, constants and two scratch tensors are needed")
    stream, constants, scratch, fast = (tensors[i] for i in inputs[:4])
    if stream.data is None:
        raise NetworkError(f"{where} has no command stream in tensor {stream.index} {stream.name!r}")
    payload = parse_payload(stream.data.tobytes())
    arguments = inputs[4:]
    separate = payload.container.value == b"COP2"  # inputs and outputs then are regions of their own
    first_output = 3 + len(arguments)

    def address(position: int, tensor: int) -> tuple[int, int]:
        # Without a place in the arena (the runtime chooses one) only the argument's base pointer can reach it.
        offset = tensors[tensor].arena_offset
        return (position, 0) if separate or offset < 0 else (1, offset)

    return NpuCall(
        index=index,
        payload=payload,
        read_only=np.zeros(0, np.uint8) if constants.data is None else constants.data,
        scratch_bytes=scratch.size_bytes,
        # Without spilling the same memory is passed twice, and the stream never names region 2.
        scratch_fast_bytes=fast.size_bytes if fast.index != scratch.index and uses_region(payload.words, 2) else 0,
        inputs=arguments,
        outputs=outputs,
        scratch_tensor=scratch.index,
        scratch_fast_tensor=-1 if fast.index == scratch.index else fast.index,
        input_addresses=tuple(address(3 + i, t) for i, t in enumerate(arguments)),
        output_addresses=tuple(address(first_output + i, t) for i, t in enumerate(outputs)),
    )


_REGION_OPCODES = frozenset(register.opcode for register in REGION_REGISTERS)


def uses_region(words: tuple[int, ...], region: int) -> bool:
    """Whether a stream sets any region register to `region`; decoding proper comes later."""
    position = 0
    while position < len(words):
        word = words[position]
        if word >> 16 == region and not word & 0xFC00 and word & 0x3FF in _REGION_OPCODES:
            return True
        position += 2 if word & 0x4000 else 1
    return False
