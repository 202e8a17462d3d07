"""The operators of a TOSA file with their attributes, and the values of its constants.

Invariant: it is read from a file that `read_tosa` accepted; tensors are referred to by the index that they have there,
shapes by name. A constant has exactly as many bytes as its tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .file import NetworkError
from .flatbuffer import FlatbufferError, FlatTable, number_at
from .network import Network
from .tensor import Tensor
from .tosa import OPERATORS, read_tosa

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
        return _widened(held[:wanted]).reshape(tensor.shape)
    return held[:wanted].view(tensor.dtype).reshape(tensor.shape)


def _widened(held: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Numbers of 48 bits, which are stored in six bytes each."""
    wide = np.zeros((len(held) // _INT48_BYTES, 8), np.uint8)
    wide[:, 2:] = held.reshape(-1, _INT48_BYTES)
    return wide.view("<i8").reshape(-1) >> 16
