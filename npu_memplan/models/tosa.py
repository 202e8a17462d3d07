"""A TOSA file (`.tosa`, version 1): its main block as a `Network`, and its operators' attributes and constants.

Invariant: every offset, vector and string that is followed is inside the file. Tensors are referred to by the index
that they have there, shapes by name; a constant has exactly as many bytes as its tensor. Tables and slots are those of
`tosa.fbs` of tosa-tools 2026.8, which keeps them for all of version 1; attributes of operators are left to Vela.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import DamagedError, Indexing, check_tensor, with_index_ranges
from .flatbuffer import FlatbufferError, FlatTable, NetworkError, UnsupportedModelError, number_at
from .network import CpuOperator, Network
from .tensor import Tensor

SUFFIX = ".tosa"
_MAGIC = b"TOSA"

# enum Op, from 1 on.
OPERATORS = (
    "ARGMAX", "AVG_POOL2D", "CONV2D", "CONV3D", "DEPTHWISE_CONV2D", "FFT2D", "MATMUL", "MAX_POOL2D", "RFFT2D",
    "TRANSPOSE_CONV2D", "CLAMP", "ERF", "SIGMOID", "TANH", "ADD", "ARITHMETIC_RIGHT_SHIFT", "BITWISE_AND",
    "BITWISE_OR", "BITWISE_XOR", "INTDIV", "LOGICAL_AND", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT", "LOGICAL_OR",
    "LOGICAL_XOR", "MAXIMUM", "MINIMUM", "MUL", "POW", "SUB", "TABLE", "ABS", "BITWISE_NOT", "CEIL", "CLZ", "COS",
    "EXP", "FLOOR", "LOG", "LOGICAL_NOT", "NEGATE", "RECIPROCAL", "RSQRT", "SIN", "SELECT", "EQUAL", "GREATER",
    "GREATER_EQUAL", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PRODUCT", "REDUCE_SUM", "CONCAT",
    "PAD", "RESHAPE", "REVERSE", "SLICE", "TILE", "TRANSPOSE", "GATHER", "SCATTER", "RESIZE", "CAST", "RESCALE",
    "CONST", "IDENTITY", "CUSTOM", "COND_IF", "WHILE_LOOP", "VARIABLE", "VARIABLE_WRITE", "VARIABLE_READ",
    "CONST_SHAPE",
)  # fmt: skip
# enum DType -> numpy's name. 48 bits are stored in 64 (as in the reference model's .npy files), 4 bits in 8.
_TYPES = {1: "bool", 2: "int8", 3: "int8", 4: "int16", 5: "int32", 6: "int64", 7: "float32", 8: "float16",
          17: "int64"}  # fmt: skip
# Both index the rows of [images, rows, channels].
_INDEXING: Indexing = dict.fromkeys(("GATHER", "SCATTER"), (1, lambda _, inputs, __: (*inputs[0].shape, 0, 0)[1]))
_CONSTANTS = frozenset(("CONST", "CONST_SHAPE"))  # operators that compute nothing


def is_tosa(data: bytes) -> bool:
    """Whether the bytes of a file say that they are TOSA."""
    return data[4:8] == _MAGIC


def read_tosa(data: bytes, name: str) -> Network:
    """The graph that runs, without constants' data; `NetworkError`, `UnsupportedModelError` for other types."""
    if not is_tosa(data):
        raise NetworkError(f"{name} is not a TOSA file: bytes 4 to 8 must be TOSA, but are {bytes(data[4:8])!r}")
    try:
        graph = FlatTable(data, number_at(data, "<I", 0))
        regions = list(graph.tables(1))
        blocks = list(regions[0].tables(1)) if regions else []
        if not blocks:
            raise NetworkError(f"{name} has no block: there is nothing to run")
        return with_index_ranges(_network(blocks[0], name), _INDEXING)
    except (FlatbufferError, DamagedError, UnicodeDecodeError) as error:
        raise NetworkError(
            f"{name} is a damaged or truncated TOSA file ({len(data)} bytes): {error}; get the file again"
        ) from error


def named_as(raw: Network, source: Network) -> Network:
    """`raw`, which Vela made of `source`, with the source's inputs and outputs; `NetworkError`: no agreement."""
    tensors = list(raw.tensors)
    for what in ("inputs", "outputs"):
        made, wanted = getattr(raw, what), getattr(source, what)
        if len(made) != len(wanted):
            raise NetworkError(f"{source.name} has {len(wanted)} {what}, but Vela's stream of it {len(made)}")
        for index, other in zip(made, wanted, strict=True):
            tensor, known = raw.tensors[index], source.tensors[other]
            if tensor.size_bytes != known.size_bytes:
                raise NetworkError(
                    f"{known.name!r} of {source.name} is {known.dtype}{list(known.shape)}, but has "
                    f"{tensor.size_bytes} bytes in Vela's stream"
                )
            stated = {"dtype": known.dtype, "shape": known.shape, "index_range": known.index_range}
            tensors[index] = replace(tensor, name=known.name, **stated)
    return replace(raw, name=source.name, tensors=tuple(tensors))


def _network(block: FlatTable, name: str) -> Network:
    tensors = tuple(_tensor(table, index, name) for index, table in enumerate(block.tables(2)))
    index_of = {tensor.name: tensor.index for tensor in tensors}

    def tensor_indices(names: Iterator[str], what: str) -> tuple[int, ...]:
        given = list(names)
        unknown = [n for n in given if n not in index_of]
        if unknown:
            raise DamagedError(f"{what} names {unknown[0]!r}, which is no tensor")
        return tuple(index_of[n] for n in given)

    operators = []
    for position, table in enumerate(block.tables(1)):
        code = table.number("<I", 0)
        if not 1 <= code <= len(OPERATORS):
            raise UnsupportedModelError(f"{name}: operator {position} has the code {code}; TOSA 1.0 ends at "
                                        f"{len(OPERATORS)} ({OPERATORS[-1]})")  # fmt: skip
        kind = OPERATORS[code - 1]
        if kind not in _CONSTANTS:
            made = tensor_indices(table.texts(4), f"operator {position} {kind}")
            # shapes are no tensors; an input may be one
            taken = tuple(index_of[n] for n in table.texts(3) if n in index_of)
            operators.append(CpuOperator(position, kind, code, taken, made))
    return Network(name, tensors, tuple(operators), tensor_indices(block.texts(3), "the graph's inputs"),
                   tensor_indices(block.texts(4), "the graph's outputs"))  # fmt: skip


def _tensor(table: FlatTable, index: int, name: str) -> Tensor:
    label, kind = table.text(0), table.number("<I", 2)
    if kind not in _TYPES:
        raise UnsupportedModelError(f"{name}: tensor {label!r} is of TOSA type {kind}; integers of 4 to 64 bits, "
                                    "booleans and floats of 16 and 32 are known")  # fmt: skip
    tensor = Tensor(index, label, tuple(table.numbers("<i", 1)), _TYPES[kind])
    check_tensor(tensor)
    return tensor


_INT4, _INT48 = 2, 6  # types whose numbers are not stored as numpy has them
_INT48_BYTES = 6


@dataclass(frozen=True, slots=True, eq=False)
class TosaOperator:
    """One operator; `inputs` and `outputs` are tensors by index, `shapes` the values of its inputs that are shapes."""

    index: int  # among the file's operators
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    attribute: FlatTable | None = field(default=None, repr=False)

    def numbers(self, slot: int) -> tuple[int, ...]:
        """A vector of 32-bit numbers of its attribute."""
        return tuple(self.attribute.numbers("<i", slot)) if self.attribute else ()

    def number(self, slot: int) -> int:
        """A 32-bit number of its attribute."""
        return self.attribute.number("<i", slot) if self.attribute else 0

    def flag(self, slot: int) -> bool:
        """A boolean of its attribute."""
        return bool(self.attribute.number("<B", slot)) if self.attribute else False

    def bytes_of(self, slot: int) -> bytes:
        """A vector of bytes of its attribute."""
        if self.attribute is None:
            return b""
        span = self.attribute.byte_span(slot)
        return bytes(self.attribute.data[span.start : span.stop])


@dataclass(frozen=True, slots=True, eq=False)
class TosaGraph:
    """The main block of a file: what `network` has, with attributes and constants."""

    network: Network
    operators: tuple[TosaOperator, ...]  # without constants
    constants: dict[int, NDArray[Any]]  # tensor -> values in its shape

    def tensor(self, index: int) -> Tensor:
        return self.network.tensors[index]


def read_tosa_graph(data: bytes, name: str) -> TosaGraph:
    """The graph of the TOSA file `data`; `NetworkError` for what is no sound file."""
    network = read_tosa(data, name)
    try:
        block = next(iter(next(iter(FlatTable(data, number_at(data, "<I", 0)).tables(1))).tables(1)))
        return _graph(block, network)
    except FlatbufferError as error:
        raise NetworkError(
            f"{name} is a damaged or truncated TOSA file ({len(data)} bytes): {error}; get the file again"
        ) from error


def _graph(block: FlatTable, network: Network) -> TosaGraph:
    index_of = {tensor.name: tensor.index for tensor in network.tensors}
    shapes = {table.text(0): _shape(table) for table in block.tables(5)}
    constants = {}
    for index, table in enumerate(block.tables(2)):
        values = _values(table, network, index)
        if values is not None:
            constants[index] = values
    operators = []
    for position, table in enumerate(block.tables(1)):
        kind = OPERATORS[table.number("<I", 0) - 1]
        if kind not in ("CONST", "CONST_SHAPE"):
            names = list(table.texts(3))
            taken = tuple(index_of[n] for n in names if n in index_of)
            made = tuple(index_of[n] for n in table.texts(4) if n in index_of)
            stated = tuple(shapes[n] for n in names if n not in index_of and n in shapes)
            operators.append(TosaOperator(position, kind, taken, made, stated, table.table(2)))
    return TosaGraph(network, tuple(operators), constants)


def _shape(table: FlatTable) -> tuple[int, ...]:
    span = table.byte_span(2)
    held = table.data[span.start : span.stop]
    return tuple(int(v) for v in np.frombuffer(held[: len(held) // 8 * 8], "<i8"))[: table.number("<I", 1)]


def _values(table: FlatTable, network: Network, index: int) -> NDArray[Any] | None:
    """The values of a constant tensor; None of one that is computed or given."""
    span, tensor, kind = table.byte_span(3), network.tensors[index], table.number("<I", 2)
    if not span or index in network.inputs:
        return None
    held = np.frombuffer(table.data[span.start : span.stop], np.uint8)
    count = int(np.prod(tensor.shape, dtype=np.int64))
    if kind == _INT4:
        return None  # no layer of the NPU's takes them
    wanted = count * (_INT48_BYTES if kind == _INT48 else np.dtype(tensor.dtype).itemsize)
    if len(held) < wanted:
        raise FlatbufferError(f"constant {tensor.name!r} has {len(held)} bytes, but its shape {list(tensor.shape)} "
                              f"of {tensor.dtype} has {wanted}")  # fmt: skip
    if kind == _INT48:
        return _widen_numbers(held[:wanted]).reshape(tensor.shape)
    return held[:wanted].view(tensor.dtype).reshape(tensor.shape)


def _widen_numbers(held: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Numbers of 48 bits, which are stored in six bytes each."""
    wide = np.zeros((len(held) // _INT48_BYTES, 8), np.uint8)
    wide[:, 2:] = held.reshape(-1, _INT48_BYTES)
    return wide.view("<i8").reshape(-1) >> 16
