"""Which values an input may have that a network uses as an index: others make its operators read outside a tensor.

Invariant: a range is half-open and not empty. It is followed backwards from the operator that indexes, through
operators that hand on or shift elements; where two uses contradict each other, the later one's stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .network import CpuOperator, Network
from .tensor import Tensor

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
    """`network`, whose inputs say which values they may have; `indexing`: operators that index, None: TFLite's."""
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


def index_ranges(network: Network, indexing: Indexing | None = None) -> dict[int, Range]:
    """Input tensor -> the values that it may have, of the inputs that are used as an index."""
    ranges: dict[int, Range] = {}
    indexing = _INDEXING if indexing is None else indexing
    for operator in reversed(network.cpu_operators):
        for index, limits in _demands(network, operator, ranges, indexing):
            if index >= 0 and network.tensors[index].data is None:
                low, end = ranges.get(index, limits)
                both = max(low, limits[0]), min(end, limits[1])
                ranges[index] = both if both[0] < both[1] else (low, end)
    return {index: ranges[index] for index in network.inputs if index in ranges}


def _demands(
    network: Network, operator: CpuOperator, made: Mapping[int, Range], indexing: Indexing
) -> list[tuple[int, Range]]:
    """What `operator` demands of its inputs: because it indexes with them, or because its results have ranges."""
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
    """What the other operand of a constant may be."""
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
        found = _before(operator.name, int(low), int(high), limits)
        return [(variable, found)] if found[0] < found[1] else []
    return []


def _before(name: str, low: int, high: int, limits: Range) -> Range:
    """What a number must be for it +, - or * any constant from `low` to `high` to be in `limits`."""
    if name == "MUL":
        return (-(-limits[0] // low), (limits[1] - 1) // high + 1) if low > 0 else (0, 0)
    low, high = (-high, -low) if name == "SUB" else (low, high)
    return limits[0] - low, limits[1] - high


def _of_branches(network: Network, operator: CpuOperator) -> list[tuple[int, Range]]:
    """What the subgraphs of an IF or a WHILE demand of what is handed to them."""
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


def _turned(operator: CpuOperator, inputs: Sequence[Tensor], _: Tensor) -> int:
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
    "REVERSE_SEQUENCE": (1, _turned),
}
