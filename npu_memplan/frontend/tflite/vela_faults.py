"""What Vela 5.2 gets wrong, as tables of rules.

Invariant: a rule is the kinds of operators that it is of, a condition on one of them, and the reason that a user reads.
`KEPT` is never Vela's; `DOUBTED` is not where the host has code for it, and unproven elsewhere; networks with one that
is `REFUSED` are not, as what Vela leaves to the host is wrong as well; `LEGACY` is wrong in Vela's legacy core alone,
and refused. Conditions read the source network only: shapes, types, options and who reads what, never a name.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ethosu.arch import Language
from ...exactness import HOST_MOVES
from ...models.network import CpuOperator, Network
from ...models.tensor import Tensor
from ...vocabulary import TFLITE_RESHAPING


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A network and who makes and reads each of its tensors."""

    network: Network
    makers: dict[int, CpuOperator]
    readers: dict[int, list[CpuOperator]]

    def input(self, operator: CpuOperator, place: int = 0) -> Tensor:
        """An input of an operator."""
        return self.network.tensors[operator.inputs[place]]

    def output(self, operator: CpuOperator) -> Tensor:
        """The first output of an operator."""
        return self.network.tensors[operator.outputs[0]]


@functools.lru_cache(maxsize=8)  # networks are immutable and compare by identity
def graph_of(network: Network) -> Graph:
    """The graph of a network's host operators."""
    readers = defaultdict[int, list[CpuOperator]](list)
    for operator in network.cpu_operators:
        for index in {*operator.inputs} - {-1}:
            readers[index].append(operator)
    return Graph(network, {i: o for o in network.cpu_operators for i in o.outputs}, dict(readers))


Condition = Callable[[Graph, CpuOperator], object]  # true where the rule is of this operator


@dataclass(frozen=True, slots=True)
class Rule:
    """Operators of these `kinds` (none: of all) that meet the condition, for this kind of NPU (None: for all)."""

    kinds: Sequence[str]
    condition: Condition
    reason: str
    npu: Language | None = None


def first_reason(rules: Sequence[Rule], network: Network, operator: CpuOperator, npu: Language | None = None) -> str:
    """The reason of the first rule that is of an operator; "" where none is."""
    graph = graph_of(network)
    for rule in rules:
        named = rule.npu in (None, npu) and (not rule.kinds or operator.name in rule.kinds)
        if named and rule.condition(graph, operator):
            return rule.reason
    return ""


SLICING = ("SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE", "UNPACK")
PAIRING = ("ADD", "SUB", "MUL", "DIV", "MINIMUM", "MAXIMUM", "SQUARED_DIFFERENCE", "PRELU")
_POOLS_AND_RESIZES = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
_WINDOWS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", *_POOLS_AND_RESIZES)
_EXTREMES = ("REDUCE_MAX", "REDUCE_MIN")
_JOINING = ("CONCATENATION", "PACK", "PAD", "PADV2", "MIRROR_PAD")
_BIAS = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}  # place among the inputs


# -- types and options ---------------------------------------------------------------------------------------------


def _has_other_type(graph: Graph, operator: CpuOperator) -> bool:
    return graph.output(operator).dtype in ("int16", "uint8")


def _makes_long_indices(graph: Graph, operator: CpuOperator) -> bool:
    """Whether its result has 64 bits, for half of which Vela has space, and is not all that is there at the end; or is
    one index alone, which Vela widens where it lies.
    """
    made = graph.output(operator)
    return made.dtype == "int64" and (graph.network.outputs != operator.outputs or made.size_bytes == 8)


def _has_narrow_bias(graph: Graph, operator: CpuOperator) -> bool:
    bias = operator.inputs[_BIAS[operator.name] :][:1]
    narrow = bool(bias) and bias[0] >= 0 and graph.network.tensors[bias[0]].dtype == "int32"
    return narrow and graph.output(operator).dtype == "int16"


def _groups_of_images(graph: Graph, operator: CpuOperator) -> bool:
    """Whether it is in groups, of several images; as many groups as channels are a depthwise convolution."""
    data, weights, made = graph.input(operator).shape, graph.input(operator, 1).shape, graph.output(operator).shape
    return data[0] > 1 and weights[3] < data[3] and (weights[3] > 1 or made[3] > data[3])


def _moves_zero_points(graph: Graph, operator: CpuOperator) -> bool:
    """Whether it is from zero point 0 to another, between equal scales or types that differ, which Vela lets the
    operator before it do, or between types alone, which it leaves out.
    """
    data, made = graph.input(operator), graph.output(operator)
    retyped, alike = data.dtype != made.dtype, bool(data.scale) and abs(made.scale / data.scale - 1) < 1e-6
    if data.zero_point == made.zero_point:
        return retyped and alike
    return not data.zero_point and (retyped or alike) and data.index in graph.makers


def _widens_a_result(graph: Graph, operator: CpuOperator) -> bool:
    """Whether it makes 32 bits of what an operator made, whose limits hold for the result where Vela joins both."""
    return graph.output(operator).dtype == "int32" and operator.inputs[0] in graph.makers


def _exceeds_differences(graph: Graph, operator: CpuOperator) -> bool:
    """Whether a SOFTMAX of int16 scales differences of 17 bits, in steps of 10/65535, by 2^15 or more."""
    data, options = graph.input(operator), operator.options("SoftmaxOptions")
    beta = 1.0 if options is None else options.Beta()
    return data.dtype == "int16" and data.scale * beta * 65535 / 10 >= 1 << 15


def _has_many_axes(graph: Graph, operator: CpuOperator) -> bool:
    return len(graph.input(operator).shape) > 4


def _broadcasts_far(graph: Graph, operator: CpuOperator) -> bool:
    """Whether a result of five axes or more has an operand with fewer, which is not one row alone."""
    rank = len(graph.output(operator).shape)
    shapes = [graph.network.tensors[i].shape for i in operator.inputs]
    return rank > 4 and any(len(shape) < rank and any(n > 1 for n in shape[:-1]) for shape in shapes)


def _resizes_by_parts(graph: Graph, operator: CpuOperator) -> bool:
    """Whether an extent of the result is no multiple of the input's, and neither corners nor centers are aligned."""
    options = operator.options("ResizeNearestNeighborOptions")
    if options is not None and (options.AlignCorners() or options.HalfPixelCenters()):
        return False
    data, made = graph.input(operator).shape, graph.output(operator).shape
    return any(wide % narrow for narrow, wide in zip(data[1:3], made[1:3], strict=True))


def _strides_over_kernel(graph: Graph, operator: CpuOperator) -> bool:
    """Whether a transposed convolution with SAME padding leaves two or more places between the kernels of an axis."""
    options, (_, height, width, _) = operator.options("TransposeConvOptions"), graph.input(operator, 1).shape
    if options is None or options.Padding():
        return False
    return bool(max(options.StrideH() - height, options.StrideW() - width) >= 2)


def _has_multiplier(graph: Graph, operator: CpuOperator) -> bool:
    """Whether it is a depthwise convolution that makes several channels of each of several."""
    return operator.name == "DEPTHWISE_CONV_2D" and (
        1 < graph.input(operator).shape[-1] < graph.output(operator).shape[-1]
    )


def _clamps_apart(graph: Graph, operator: CpuOperator) -> bool:
    """A depthwise convolution of uint8 with a multiplier, whose fused activation Vela makes a pool of its own."""
    if not _has_multiplier(graph, operator) or graph.output(operator).dtype != "uint8":
        return False
    options = operator.options("DepthwiseConv2DOptions")
    return bool(options and options.FusedActivationFunction())


def _has_new_axis(graph: Graph, operator: CpuOperator) -> bool:
    bounds = operator.options("StridedSliceOptions")
    return bounds is not None and bool(bounds.NewAxisMask())


def _counts_from_begins(graph: Graph, operator: CpuOperator) -> bool:
    bounds = operator.options("StridedSliceOptions")
    return bounds is not None and bool(bounds.Offset())


def _drops_axes(graph: Graph, operator: CpuOperator) -> bool:
    reducer = operator.options("ReducerOptions")
    return reducer is not None and not reducer.KeepDims()


_OUTPUT_SCALES = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}  # of int8, in TFLite's specification


def _has_other_output_scale(graph: Graph, operator: CpuOperator) -> bool:
    made = graph.output(operator)
    return made.dtype == "int8" and (made.scale, made.zero_point) != _OUTPUT_SCALES[operator.name]


def _exceeds_words(graph: Graph, operator: CpuOperator) -> bool:
    """Whether the EXP of a value that its input can hold is 2**31 steps of its output or more."""
    data, output = graph.input(operator), graph.output(operator)
    if data.dtype != "int8" or not output.scale:
        return False
    return data.scale * (127 - data.zero_point) >= math.log(output.scale) + 31 * math.log(2)


_MOVING = HOST_MOVES | {"FILL", "RANGE", "TILE"}  # what becomes of stored values in them is the same for all


def _is_of_constants(graph: Graph, operator: CpuOperator) -> bool:
    """Whether an operator reads constants alone; those that `models.folding` folds are gone before."""
    read = [graph.network.tensors[i] for i in operator.inputs if i >= 0]
    constant = bool(read) and all(tensor.data is not None and not tensor.is_variable for tensor in read)
    return constant and operator.name not in _MOVING


def _has_vast_scale(graph: Graph, operator: CpuOperator) -> bool:
    vast = any(tensor.scale >= 1 << 31 for tensor in graph.network.tensors_of(operator))
    return vast and operator.name not in _MOVING


# -- who reads, and what is read -----------------------------------------------------------------------------------


def _is_read(graph: Graph, operator: CpuOperator) -> bool:
    return operator.outputs[0] in graph.readers


def _reads_reshaped(graph: Graph, operator: CpuOperator) -> bool:
    """Whether it reads a tensor that is also reshaped, and Vela takes it in that shape: SELECT on Ethos-U85 (others do
    not select at all), and REDUCE_MIN on Ethos-U55 and U65, which is a maximum of differences.
    """
    readers = (other for i in operator.inputs for other in graph.readers.get(i, ()) if other.inputs[0] == i)
    return any(other.name in TFLITE_RESHAPING for other in readers)


def _broadcasts_both_in_other_shapes(graph: Graph, operator: CpuOperator) -> bool:
    """Whether neither operand has the result's shape, and one is also read in another shape: reshaped, or with its
    axes in another order, as one of a matrix product may be.
    """
    made = graph.output(operator).shape
    if any(graph.network.tensors[i].shape == made for i in operator.inputs):
        return False
    found = {*operator.inputs, *(graph.makers[i].inputs[0] for i in operator.inputs if _is_reshaped(graph, i))}
    readers = (other.name for i in found for other in graph.readers.get(i, ()))
    return not _TURNING.isdisjoint(readers)


_TURNING = {*TFLITE_RESHAPING, "TRANSPOSE", "BATCH_MATMUL"}


def _is_reshaped(graph: Graph, index: int) -> bool:
    maker = graph.makers.get(index)
    return maker is not None and maker.name in TFLITE_RESHAPING


def _reads_two_shapes(graph: Graph, operator: CpuOperator) -> bool:
    """Whether its operands are one tensor in several shapes."""
    roots = set[int]()
    for index in operator.inputs:
        while _is_reshaped(graph, index):
            index = graph.makers[index].inputs[0]
        roots.add(index)
    return len(roots) < len({graph.network.tensors[index].shape for index in operator.inputs})


def _spreads_a_shared_operand(graph: Graph, operator: CpuOperator) -> bool:
    """Whether its operands have other shapes than each other, and another operator reads one of them."""
    shapes = {graph.network.tensors[i].shape for i in operator.inputs}
    return len(shapes) > 1 and any(len(graph.readers[i]) > 1 for i in operator.inputs)


def _parts_in_other_shapes(graph: Graph, operator: CpuOperator) -> dict[int, None]:
    """The results of an operator, and what reshapes make of them."""
    found = dict.fromkeys(operator.outputs)
    waiting = list(found)
    while waiting:
        index = waiting.pop()
        for reader in graph.readers.get(index, ()):
            if reader.name in TFLITE_RESHAPING and reader.inputs[0] == index:
                waiting += [i for i in reader.outputs if i not in found]
                found.update(dict.fromkeys(reader.outputs))
    return found


def _is_read_by(kind: str, place: int) -> Condition:
    """Whether a part, reshaped or not, is that input of such an operator."""

    def condition(graph: Graph, operator: CpuOperator) -> bool:
        parts = _parts_in_other_shapes(graph, operator)
        return any(o.name == kind and o.inputs[place] == i for i in parts for o in graph.readers.get(i, ()))

    return condition


def _is_joined(graph: Graph, operator: CpuOperator) -> bool:
    """Whether its result, reshaped or not, becomes a part of another tensor."""
    parts = _parts_in_other_shapes(graph, operator)
    return any(o.name in _JOINING for i in parts for o in graph.readers.get(i, ()))


def _is_joined_by_rows(graph: Graph, operator: CpuOperator) -> bool:
    """Whether its result becomes a part of another tensor other than by its channels, at once or later."""
    result, axes = operator.outputs[0], len(graph.output(operator).shape)
    for index in _parts_in_other_shapes(graph, operator):
        for reader in graph.readers.get(index, ()):
            options = reader.options("ConcatenationOptions") if reader.name == "CONCATENATION" else None
            if options is not None and index == result and options.Axis() % axes == axes - 1:
                if _is_joined_by_rows(graph, reader):
                    return True
            elif reader.name in _JOINING:
                return True
    return False


def _is_joined_in_more_axes(graph: Graph, operator: CpuOperator) -> bool:
    """Whether its result becomes a part of a tensor of five axes or more, which has more than the result itself."""
    least = max(4, len(graph.output(operator).shape))
    parts = _parts_in_other_shapes(graph, operator)
    joining = (o for i in parts for o in graph.readers.get(i, ()) if o.name in _JOINING)
    return any(len(graph.output(o).shape) > least for o in joining)


def _is_multiplied(graph: Graph, operator: CpuOperator) -> bool:
    """Whether a depthwise convolution with a multiplier reads a part, reshaped or not."""
    parts = _parts_in_other_shapes(graph, operator)
    return any(o.inputs[0] == i and _has_multiplier(graph, o) for i in parts for o in graph.readers.get(i, ()))


def _windowed_images(graph: Graph, operator: CpuOperator) -> bool:
    """Whether a window operator reads a part of several images, which Vela runs image by image where the part lies."""
    data = graph.input(operator, 1 if operator.name == "SPLIT" else 0).shape
    shapes = ((part, graph.network.tensors[part].shape) for part in operator.outputs)
    several = (part for part, shape in shapes if len(shape) == 4 and shape[0] > 1 and shape[1:] != data[1:])
    return any(not _readers_of_part(graph, part).isdisjoint(_WINDOWS) for part in several)


def _is_reduced(graph: Graph, operator: CpuOperator) -> bool:
    return any(not _readers_of_part(graph, part).isdisjoint(_EXTREMES) for part in operator.outputs)


def _readers_of_part(graph: Graph, part: int) -> set[str]:
    """Kinds of operators that read a part, also behind parts of it and paddings."""
    found, seen, waiting = set[str](), {part}, [part]
    while waiting:
        for reader in graph.readers.get(waiting.pop(), ()):
            found.add(reader.name)
            if reader.name in (*SLICING, "PAD", "PADV2"):
                waiting += [index for index in reader.outputs if index not in seen]
                seen.update(reader.outputs)
    return found


_LSTM_WEIGHTS = [(place, 11 + place) for place in range(1, 5)] + [(place, -1) for place in range(5, 9)]


@functools.lru_cache(maxsize=8)
def _equal_weights(network: Network) -> frozenset[int]:
    """Operators some of whose weights, of all or of a group, are stored twice with other biases: Vela encodes weights
    and their biases once for all equal weights of equal scales.
    """
    biases, users = defaultdict[bytes, set[bytes]](set), defaultdict[bytes, set[int]](set)
    for operator in network.cpu_operators:
        places = [(1, _BIAS[operator.name])] if operator.name in _BIAS else []
        for place, bias_place in _LSTM_WEIGHTS if operator.name == "UNIDIRECTIONAL_SEQUENCE_LSTM" else places:
            weights, bias = _constant_at(network, operator, place), _constant_at(network, operator, bias_place)
            if not len(weights):
                continue
            groups = _group_count(network, operator)
            for part, others in zip(np.split(weights, groups), np.split(bias, groups), strict=True):
                key = hashlib.blake2b(part.tobytes()).digest()
                biases[key].add(others.tobytes())
                users[key].add(operator.index)
    return frozenset().union(*(users[key] for key, found in biases.items() if len(found) > 1))


def _constant_at(network: Network, operator: CpuOperator, place: int) -> Any:
    """The bytes of the constant that is an operator's input at a place; none where there is no such constant."""
    index = operator.inputs[place] if 0 <= place < len(operator.inputs) else -1
    data = network.tensors[index].data if index >= 0 else None
    return np.zeros(0, np.uint8) if data is None else data


def _group_count(network: Network, operator: CpuOperator) -> int:
    if operator.name != "CONV_2D":
        return 1
    data, weights = (network.tensors[i].shape for i in operator.inputs[:2])
    return data[3] // weights[3]


# -- the tables ----------------------------------------------------------------------------------------------------

_SMALL, _U85 = Language.U55_U65, Language.U85
_NOT_UNPACKED = tuple(kind for kind in SLICING if kind != "UNPACK")  # whose parts are right

KEPT = (
    Rule(
        (*_BIAS, "UNIDIRECTIONAL_SEQUENCE_LSTM"),
        lambda graph, operator: operator.index in _equal_weights(graph.network),
        "Vela's stream for it takes the biases of other weights that are equal",
    ),
    Rule(("PRELU",), _has_other_type, "Vela's compiler refuses networks that have it, for Ethos-U85", _U85),
    Rule(
        tuple(_BIAS),
        _has_narrow_bias,
        "Vela's stream for it on Ethos-U85 cuts multipliers to 15 bits where int16 data have biases of 32 bits",
        _U85,
    ),
    Rule(
        ("CONV_2D",),
        _groups_of_images,
        "Vela's stream for it reads wrong elements of all images but one, as it is in groups",
    ),
    Rule(
        ("QUANTIZE",),
        _moves_zero_points,
        "Vela makes it part of another operator, without its zero point or limits",
    ),
    Rule(
        ("QUANTIZE",),
        _widens_a_result,
        "Vela makes it part of another operator, with the limits of that one's type",
        _U85,
    ),
    Rule(
        _NOT_UNPACKED,
        _is_read_by("TRANSPOSE_CONV", 2),
        "Vela's stream for it has wrong elements where TRANSPOSE_CONV follows",
        _U85,
    ),
    Rule(
        _NOT_UNPACKED,
        _is_read_by("BATCH_MATMUL", 0),
        "Vela's stream for it has wrong elements where BATCH_MATMUL follows",
        _SMALL,
    ),
    Rule(
        _NOT_UNPACKED,
        _is_joined_in_more_axes,
        "Vela's stream for it writes elsewhere where its result becomes a part of a tensor of five axes or more",
    ),
    Rule(
        SLICING,
        _is_multiplied,
        "Vela's stream for it has wrong elements where DEPTHWISE_CONV_2D with a multiplier follows",
    ),
    Rule(
        ("SOFTMAX",),
        _exceeds_differences,
        "Vela's stream for it saturates differences of its inputs that have more than 32 bits",
    ),
    Rule(("MEAN",), _has_many_axes, "Vela's stream for it takes other elements of five axes or more"),
    Rule(
        ("REDUCE_MIN",),
        _is_read,
        "Vela's stream for it, a maximum of differences, is wrong where an operator reads its result",
        _SMALL,
    ),
    Rule(PAIRING, _broadcasts_far, "Vela's stream for it takes other axes of the operand that has fewer"),
    Rule(
        ("RESIZE_NEAREST_NEIGHBOR",),
        _resizes_by_parts,
        "Vela's stream for it on Ethos-U85 takes other elements where extents are no multiples",
        _U85,
    ),
    Rule(
        ("TRANSPOSE_CONV",),
        _strides_over_kernel,
        "Vela's stream for it moves results where its stride is longer than its kernel by two or more",
    ),
    Rule(
        ("BATCH_MATMUL",),
        _is_joined,
        "Vela's stream for it writes wrong elements where its result becomes a part of another tensor",
        _SMALL,
    ),
    Rule(
        ("TRANSPOSE_CONV",),
        _is_joined_by_rows,
        "Vela's stream for it leaves elements out where its result becomes rows or columns of another tensor",
        _U85,
    ),
    Rule(
        ("SQUARED_DIFFERENCE",),
        _spreads_a_shared_operand,
        "Vela's stream for it has wrong elements where operands of several shapes are read by others too",
        _SMALL,
    ),
    Rule(
        ("ARG_MAX",),
        _makes_long_indices,
        "Vela's stream for it writes indices of 64 bits into space for half of them",
        _SMALL,
    ),
    Rule(
        ("DEPTHWISE_CONV_2D",),
        _clamps_apart,
        "Vela's stream for it clamps uint8 results of several channels from each as if they were int8",
        _SMALL,
    ),
)

DOUBTED = (
    Rule(("STRIDED_SLICE",), _has_new_axis, "Vela's stream for it takes a new axis for one of the input's"),
    Rule(
        ("STRIDED_SLICE",),
        _counts_from_begins,
        "Vela's stream for it takes ends that count from its begins for places",
    ),
    Rule(_EXTREMES, _drops_axes, "Vela's stream for it takes the axes that are left for others"),
    Rule(
        tuple(_OUTPUT_SCALES),
        _has_other_output_scale,
        "the reference computes it at its own output scale, Vela's stream at the file's",
    ),
    Rule(
        SLICING,
        _windowed_images,
        "Vela's stream for it reads wrong elements of all images but one where a window operator follows",
    ),
    Rule(
        SLICING,
        _is_reduced,
        "Vela's stream for it reads wrong elements where REDUCE_MAX or REDUCE_MIN follows",
    ),
    Rule(
        ("SELECT", "SELECT_V2", "REDUCE_MIN"),
        _reads_reshaped,
        "Vela's stream for it reads an input in the shape that a reshape gives it",
    ),
    Rule(("EXP",), _exceeds_words, "Vela's table for it wraps where a result has more than 31 bits"),
    Rule(
        (),
        _is_of_constants,
        "all its inputs are constants, of which Vela computes it, or a part of it, by arithmetic of its own",
    ),
    Rule((), _has_vast_scale, "Vela's stream for it takes other scales for those of 2**31 or more"),
)


def _spreads_by_one(graph: Graph, operator: CpuOperator) -> bool:
    """Whether its stride is 1: the legacy core reads columns and rows outside the input as others. It is right for odd
    kernels with SAME padding, which are not told apart here: native lowering has all of them.
    """
    options = operator.options("TransposeConvOptions")
    return options is not None and 1 in (options.StrideH(), options.StrideW())


def _begins_outside(graph: Graph, operator: CpuOperator) -> bool:
    """Whether a bound lies outside of the input: a part that begins before the first element begins elsewhere."""
    extents = graph.input(operator).shape
    constants = [tensor for i in operator.inputs[1:3] if (tensor := graph.network.tensors[i]).data is not None]
    rows = [tensor.array().reshape(-1).tolist() for tensor in constants]
    return any(abs(bound) > extent for row in rows for bound, extent in zip(row, extents, strict=False))


def _keeps_axes_of_images(graph: Graph, operator: CpuOperator) -> bool:
    """Whether a fully connected layer keeps four axes, of several images with several rows each: the legacy core
    computes as many rows as there are images.
    """
    *axes, _ = graph.output(operator).shape
    return len(axes) == 3 and axes[0] > 1 and axes[1] * axes[2] > 1


REFUSED = (
    Rule(PAIRING, _reads_two_shapes, "of one tensor in two shapes"),
    Rule(PAIRING, _broadcasts_both_in_other_shapes, "of a tensor that is read in another shape, too", _SMALL),
)

LEGACY = (
    Rule(("TRANSPOSE_CONV",), _spreads_by_one, "TRANSPOSE_CONV with stride 1"),
    Rule(("STRIDED_SLICE",), _begins_outside, "STRIDED_SLICE with bounds outside of its input"),
    Rule(("FULLY_CONNECTED",), _keeps_axes_of_images, "FULLY_CONNECTED that keeps four axes of several images"),
    Rule(("CONV_2D",), _has_narrow_bias, "CONV_2D of int16 with biases of 32 bits, whose multipliers have 31 bits"),
)
