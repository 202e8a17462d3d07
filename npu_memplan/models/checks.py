"""Checks of a network that could be read: shapes, quantisation, writers of tensors, values of indices.

Invariant: a network that passes has tensors of a possible size with all their constant bytes, scales that are finite,
zero points of their type, and operators whose tensors exist. So callers of the reader do not check them again; rules of
one kind of operator (that its shapes fit each other) are in `operators` and in its lowering. A range of an index is
half-open and not empty. It is followed backwards from the operator that indexes, through operators that pass on or
shift elements; of two uses that contradict each other, the later one's counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import NpuMemplanError
from .network import CpuOperator, Network
from .tensor import Tensor

if TYPE_CHECKING:
    from .network import CpuOperator, Network
    from .tensor import Tensor


LARGEST_TENSOR_BYTES = 1 << 31
_ZERO_POINTS = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
}
_LARGEST_SCALE = 2.0**127 / (1 << 16)  # with which differences of 16 bits are numbers of float32
_OTHERS = (-(1 << 31), (1 << 31) - 1)


class DamagedError(NpuMemplanError):
    """A network contradicts itself; `read_network` says of which file."""


def check_tensor(tensor: Tensor) -> None:
    """`DamagedError` at a size that cannot be, constant bytes that are missing, a quantisation that means nothing."""
    what, size = f"tensor {tensor.index} {tensor.name!r}", tensor.size_bytes
    form = f"{tensor.dtype}{list(tensor.shape)}"
    if min(tensor.shape, default=0) < 0:
        raise DamagedError(f"{what} has shape {list(tensor.shape)}; extents are not negative")
    if size > LARGEST_TENSOR_BYTES:
        raise DamagedError(f"{what} is {form}, {size} bytes; at most {LARGEST_TENSOR_BYTES} are possible")
    if tensor.data is not None and tensor.data.nbytes < size:
        raise DamagedError(f"{what} has {tensor.data.nbytes} constant bytes; {form} needs {size}")
    empty = tensor.data is not None and not tensor.data.any()  # some converters write 0.0 where all elements are zero
    for scale in tensor.scales:
        if not 0 <= scale < math.inf or (scale == 0 and not empty):
            raise DamagedError(f"{what} has scale {scale}; scales are finite and positive")
        if tensor.dtype in _ZERO_POINTS and scale > _LARGEST_SCALE:
            raise DamagedError(f"{what} has scale {scale}: the numbers that it stands for are none of float32")
    if tensor.scales and len(tensor.zero_points) not in (1, len(tensor.scales)):  # without any, TFLite takes no scale
        raise DamagedError(f"{what} has {len(tensor.scales)} scales and {len(tensor.zero_points)} zero points")
    low, high = _ZERO_POINTS.get(tensor.dtype, _OTHERS)
    for zero in tensor.zero_points:
        if not low <= zero <= high:
            raise DamagedError(f"{what} of type {tensor.dtype} has zero point {zero}; it must be in {low}..{high}")
    if len(tensor.scales) > 1:
        axis = tensor.quantised_dimension
        # Old converters wrote the weights' dimension on the biases, which have one.
        extent = tensor.shape[axis if 0 <= axis < len(tensor.shape) else 0] if tensor.shape else 1
        if extent != len(tensor.scales):
            raise DamagedError(f"{what} has {len(tensor.scales)} scales for dimension {axis} of {list(tensor.shape)}")


def check_network(network: Network) -> None:
    """`DamagedError` at operators and at inputs and outputs of the network that cannot be."""
    if not network.outputs or -1 in (*network.inputs, *network.outputs):
        raise DamagedError(f"its inputs are {list(network.inputs)} and its outputs {list(network.outputs)}")
    if len(set(network.inputs)) != len(network.inputs):
        raise DamagedError(f"its inputs are {list(network.inputs)}: one stands there twice")
    made: set[int] = set(network.inputs)
    for operator in network.cpu_operators:
        _check_operator(network, operator, made)


def _check_operator(network: Network, operator: CpuOperator, made: set[int]) -> None:
    what = f"operator {operator.index} {operator.name}"
    if -1 in operator.outputs:
        raise DamagedError(f"{what} has outputs {list(operator.outputs)}; none can be left out")
    for index in operator.outputs:
        if index in made or network.tensors[index].data is not None:
            raise DamagedError(f"{what} writes tensor {index}, which is a constant, an input or made already")
        if not network.tensors[index].is_variable:
            made.add(index)
    for index in operator.intermediates:
        if not -1 <= index < len(network.tensors):
            raise DamagedError(f"{what} names tensor {index}; there are {len(network.tensors)}")


Range = tuple[int, int]
# operator -> (position of its indices, what they have to be below)
Indexing = Mapping[str, tuple[int, Callable[[CpuOperator, Sequence[Tensor], Tensor], int]]]
_LARGEST = 1 << 31  # of constants that are added to indices

# Positions of the inputs whose elements an operator hands on; None: all of them.
_HANDS_ON: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(
        ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CAST", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "TILE", "BROADCAST_TO",
         "REVERSE_V2", "UNPACK", "SPLIT_V", "GATHER", "GATHER_ND", "PAD", "MIRROR_PAD", "FLOOR", "CEIL", "ROUND",
         "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "IDENTITY"),
        (0,),
    ),
    "SPLIT": (1,),
    "EMBEDDING_LOOKUP": (1,),
    "DYNAMIC_UPDATE_SLICE": (0, 1),
    **dict.fromkeys(("SELECT", "SELECT_V2"), (1, 2)),
    **dict.fromkeys(("PACK", "CONCATENATION", "MAXIMUM", "MINIMUM"), None),
}  # fmt: skip


def with_index_ranges(network: Network, indexing: Indexing | None = None) -> Network:
    """`network` with the values that its inputs may have; `indexing`: operators that index, None: TFLite's."""
    found = index_ranges(network, indexing)
    if not found:
        return network
    tensors = list(network.tensors)
    for index, limits in found.items():
        tensors[index] = replace(tensors[index], index_range=limits)
    return replace(network, tensors=tuple(tensors))


def ranged_as(network: Network, source: Network) -> Network:
    """`network`, which was made from `source`, with the ranges of its inputs."""
    tensors = list(network.tensors)
    for index, original in zip(network.inputs, source.inputs, strict=False):
        known = source.tensors[original]
        if known.index_range is not None and known.name == tensors[index].name:
            tensors[index] = replace(tensors[index], index_range=known.index_range)
    return replace(network, tensors=tuple(tensors))


def shaped_as(network: Network, source: Network) -> Network:
    """`network`, which was made from `source`, with the shapes of its outputs: Vela's may have another rank."""
    tensors = list(network.tensors)
    for index, original in zip(network.outputs, source.outputs, strict=False):
        found, known = tensors[index], source.tensors[original]
        if found.name == known.name and math.prod(found.shape) == math.prod(known.shape):
            tensors[index] = replace(found, shape=known.shape)
    return replace(network, tensors=tuple(tensors))


def index_ranges(network: Network, indexing: Indexing | None = None) -> dict[int, Range]:
    """Input tensor -> the values that it may have, of the inputs that are used as an index."""
    ranges: dict[int, Range] = {}
    indexing = _INDEXING if indexing is None else indexing
    for operator in reversed(network.cpu_operators):
        for index, limits in _input_demands(network, operator, ranges, indexing):
            if index >= 0 and network.tensors[index].data is None:
                low, end = ranges.get(index, limits)
                both = max(low, limits[0]), min(end, limits[1])
                ranges[index] = both if both[0] < both[1] else (low, end)
    return {index: ranges[index] for index in network.inputs if index in ranges}


def _input_demands(
    network: Network, operator: CpuOperator, made: Mapping[int, Range], indexing: Indexing
) -> list[tuple[int, Range]]:
    """The demands of `operator` on its inputs: because it indexes with them, or because its results have ranges."""
    inputs = operator.inputs
    demands: list[tuple[int, Range]] = []
    if operator.name in indexing and len(inputs) > 1:
        position, extent = indexing[operator.name]
        tensors = [network.tensors[i] for i in inputs]  # -1 is none of these operators' inputs
        if position < len(inputs) and operator.outputs:
            end = extent(operator, tensors, network.tensors[operator.outputs[0]])
            demands += [(inputs[position], (0, end))] if end > 0 else []
    for limits in (made[index] for index in operator.outputs if index in made):
        if operator.name in _HANDS_ON:
            positions = _HANDS_ON[operator.name]
            taken = inputs if positions is None else [inputs[p] for p in positions if p < len(inputs)]
            demands += [(index, limits) for index in taken]
        elif operator.name in ("ADD", "SUB", "MUL") and len(inputs) == 2:
            demands += _before_arithmetic(network, operator, limits)
    if operator.name in ("IF", "WHILE"):
        demands += _of_branches(network, operator)
    return demands


def _before_arithmetic(network: Network, operator: CpuOperator, limits: Range) -> list[tuple[int, Range]]:
    """The range that the other operand of a constant may be in."""
    first, second = operator.inputs
    orders = ((first, second),) if operator.name == "SUB" else ((first, second), (second, first))
    for variable, other in orders:
        constant = network.tensors[other]
        if constant.data is None or not constant.data.nbytes or constant.dtype not in ("int32", "int64", "float32"):
            continue
        values = constant.array().astype("float64")
        low, high = float(values.min()), float(values.max())
        if not -_LARGEST < low <= high < _LARGEST:
            return []
        found = _range_before(operator.name, int(low), int(high), limits)
        return [(variable, found)] if found[0] < found[1] else []
    return []


def _range_before(name: str, low: int, high: int, limits: Range) -> Range:
    """The range of a number for which +, - or * any constant from `low` to `high` is in `limits`."""
    if name == "MUL":
        return (-(-limits[0] // low), (limits[1] - 1) // high + 1) if low > 0 else (0, 0)
    low, high = (-high, -low) if name == "SUB" else (low, high)
    return limits[0] - low, limits[1] - high


def _of_branches(network: Network, operator: CpuOperator) -> list[tuple[int, Range]]:
    """The demands of the subgraphs of an IF or a WHILE on what is handed to them."""
    kind, names = ("IfOptions", ("ThenSubgraphIndex", "ElseSubgraphIndex"))
    given = operator.inputs[1:]
    if operator.name == "WHILE":
        kind, names, given = "WhileOptions", ("CondSubgraphIndex", "BodySubgraphIndex"), operator.inputs
    options, demands = operator.options(kind), []
    for name in names if options is not None else ():
        number = getattr(options, name)()
        if 0 < number < len(network.subgraphs):
            graph = network.subgraphs[number]
            found = index_ranges(graph)
            demands += [(o, found[i]) for o, i in zip(given, graph.inputs, strict=False) if i in found]
    return demands


def _along_axis(operator: CpuOperator, inputs: Sequence[Tensor], _: Tensor) -> int:
    options, shape = operator.options("GatherOptions"), inputs[0].shape
    axis = 0 if options is None else options.Axis()
    return shape[axis] if -len(shape) <= axis < len(shape) else 0


def _smallest(shape: Sequence[int], indices: Tensor) -> int:
    """The smallest extent that a tuple of the last axis of `indices` indexes."""
    return min(shape[: indices.shape[-1]], default=0) if indices.shape else 0


def _room(_: CpuOperator, inputs: Sequence[Tensor], __: Tensor) -> int:
    """How many places an update may begin at without being moved."""
    data, update = inputs[0].shape, inputs[1].shape
    return min((n - m + 1 for n, m in zip(data, update, strict=False)), default=0)


def _flip_range(operator: CpuOperator, inputs: Sequence[Tensor], _: Tensor) -> int:
    options = operator.options("ReverseSequenceOptions")
    axis = 0 if options is None else options.SeqDim()
    return inputs[0].shape[axis] + 1 if 0 <= axis < len(inputs[0].shape) else 0


def _depth(_: CpuOperator, inputs: Sequence[Tensor], __: Tensor) -> int:
    return int(inputs[1].array().reshape(-1)[0]) if inputs[1].data is not None and inputs[1].data.nbytes else 0


_INDEXING: Indexing = {
    "GATHER": (1, _along_axis),
    "GATHER_ND": (1, lambda _, inputs, __: _smallest(inputs[0].shape, inputs[1])),
    "SCATTER_ND": (0, lambda _, inputs, made: _smallest(made.shape, inputs[0])),
    "EMBEDDING_LOOKUP": (0, lambda _, inputs, __: inputs[1].shape[0] if inputs[1].shape else 0),
    "ONE_HOT": (0, _depth),
    "DYNAMIC_UPDATE_SLICE": (2, _room),
    "REVERSE_SEQUENCE": (1, _flip_range),
}
