"""A TOSA file (`.tosa`, version 1): the tensors and operators of its main block as a `Network`.

Invariant: every offset, vector and string that is followed is inside the file. Tables and slots are those of
`tosa.fbs` of tosa-tools 2026.8, which keeps them for all of version 1; attributes of operators are left to Vela.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .file import NetworkError, UnsupportedModelError
from .flatbuffer import FlatbufferError, FlatTable, number_at
from .index_ranges import Indexing, with_index_ranges
from .network import CpuOperator, Network
from .tensor import Tensor
from .tflite_checks import DamagedError, check_tensor

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
    """The graph that runs; `NetworkError` for what is no sound TOSA file, `UnsupportedModelError` for types of others.

    Constants keep no data here: Vela alone needs them, and reads them from the file.
    """
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
    """`raw`, which Vela made of `source`, with names, types and shapes of the source's inputs and outputs.

    `NetworkError` when the two do not agree.
    """
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

    def indices(names: Iterator[str], what: str) -> tuple[int, ...]:
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
            made = indices(table.texts(4), f"operator {position} {kind}")
            # shapes are no tensors; an input may be one
            taken = tuple(index_of[n] for n in table.texts(3) if n in index_of)
            operators.append(CpuOperator(position, kind, code, taken, made))
    return Network(name, tensors, tuple(operators), indices(block.texts(3), "the graph's inputs"),
                   indices(block.texts(4), "the graph's outputs"))  # fmt: skip


def _tensor(table: FlatTable, index: int, name: str) -> Tensor:
    label, kind = table.text(0), table.number("<I", 2)
    if kind not in _TYPES:
        raise UnsupportedModelError(f"{name}: tensor {label!r} is of TOSA type {kind}; integers of 4 to 64 bits, "
                                    "booleans and floats of 16 and 32 are known")  # fmt: skip
    tensor = Tensor(index, label, tuple(table.numbers("<i", 1)), _TYPES[kind])
    check_tensor(tensor)
    return tensor
