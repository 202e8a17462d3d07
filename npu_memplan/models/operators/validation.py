"""What the TFLite format demands of each operator (operands, types, options, shapes of results), and whether a network
keeps to it.

Invariant: this is the one list of these facts; the validator, the folding of constants and the shapes that files leave
open read it. It says what a file may mean, not what can be compiled: that is the lowerings' to say. What passes has,
for every operator in `FORMS`, operands of the right number, types and ranks, results of the shapes that follow from
them, options of its own kind, and a version that is known; each tensor is read after it was made; and flags say what
tensors are. Whatever fails on such a model later is a fault of this package, or an error that says which limit it
meets. An operator that is not in the list is judged by its tensors alone.

Operands are written as words, results behind `->`. A letter is a type: `T` the operator's own, the same everywhere in
it; `W` weights for it; `K` weights of a convolution, which have no zero point but as uint8; `S` sums of products; `M`
an integer that a value is chosen by; `I` int32 or int64; `B` bool; `F` float32; `A` any. A mark behind it is a number:
`?` may be left out, `+` one or more, `*` any number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import NpuMemplanError
from ...sizes import count_text
from ..network import CpuOperator, Network
from ..tensor import Tensor
from ..vela import NpuCall
from . import shapes
from .shapes import Rule, Shape, ShapeError, UnknownShapeError


@dataclass(frozen=True, slots=True)
class OperandPlace:
    """A place of an operator's tensors; `least` to `most` of them, None: any number."""

    letter: str
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class OperatorForm:
    """One operator of the format."""

    operands: str
    options: str = ""
    shapes: Rule | None = None
    computes: bool = True  # stored int16 have no zero point
    states: tuple[int, ...] = ()  # inputs that are variable tensors
    channel_axis: int = 0  # of weights with several scales

    @property
    def inputs(self) -> tuple[OperandPlace, ...]:
        """The forms of its inputs."""
        return _operands(self.operands.partition("->")[0])

    @property
    def outputs(self) -> tuple[OperandPlace, ...]:
        """The forms of its results."""
        return _operands(self.operands.partition("->")[2])


_NUMBERS = {"": (1, 1), "?": (0, 1), "+": (1, None), "*": (0, None)}


@functools.cache
def _operands(text: str) -> tuple[OperandPlace, ...]:
    return tuple(OperandPlace(word[0], *_NUMBERS[word[1:]]) for word in text.split())


# The type that `T` is -> the types that `W`, `S` and `C` may be. Weights of 4 bits are read as int8.
WEIGHTS: Mapping[str, tuple[str, ...]] = {
    "float32": ("float32", "int8", "uint8", "float16"),
    "int8": ("int8",),
    "uint8": ("uint8", "int8"),
    "int16": ("int8", "int16"),
    "int32": ("int32",),
}
SUMS: Mapping[str, tuple[str, ...]] = {
    "float32": ("float32",),
    "int8": ("int32",),
    "uint8": ("int32",),
    "int16": ("int64", "int32"),
}
CELLS: Mapping[str, tuple[str, ...]] = {"float32": ("float32",), "int8": ("int16",), "int16": ("int16",)}
TYPES: Mapping[str, tuple[str, ...]] = {
    "I": ("int32", "int64"),
    "M": ("int8", "uint8", "int16", "int32", "int64", "uint32"),
    "B": ("bool",),
    "F": ("float32",),
}
LARGEST_RANK = 8  # of LiteRT's kernels
LARGEST_VERSION = 16  # of an operator: LiteRT 2.3 knows 14 of FULLY_CONNECTED, and fewer of all others


def _operator_forms(
    names: str,
    operands: str,
    shapes: Rule | None = None,
    *,
    computes: bool = True,
    states: tuple[int, ...] = (),
    channel_axis: int = 0,
) -> Iterable[tuple[str, OperatorForm]]:
    """Operators of one form."""
    for name in names.split():
        yield name, OperatorForm(operands, _OPTIONS.get(name, ""), shapes, computes, states, channel_axis)


_OPTIONS = {
    "ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions",
    "CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions", "TRANSPOSE_CONV": "TransposeConvOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions", "BATCH_MATMUL": "BatchMatMulOptions",
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"),
                    "ReducerOptions"),
    "RESHAPE": "ReshapeOptions", "SQUEEZE": "SqueezeOptions", "CONCATENATION": "ConcatenationOptions",
    "PACK": "PackOptions", "UNPACK": "UnpackOptions", "SPLIT": "SplitOptions", "SPLIT_V": "SplitVOptions",
    "STRIDED_SLICE": "StridedSliceOptions", "GATHER": "GatherOptions", "ONE_HOT": "OneHotOptions",
    "MIRROR_PAD": "MirrorPadOptions", "SOFTMAX": "SoftmaxOptions", "LEAKY_RELU": "LeakyReluOptions",
    "L2_NORMALIZATION": "L2NormOptions", "ARG_MAX": "ArgMaxOptions", "ARG_MIN": "ArgMinOptions",
    "DEPTH_TO_SPACE": "DepthToSpaceOptions", "SPACE_TO_DEPTH": "SpaceToDepthOptions", "CUMSUM": "CumsumOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions", "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "SVDF": "SVDFOptions", "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "SHAPE": "ShapeOptions", "IF": "IfOptions", "WHILE": "WhileOptions", "REVERSE_SEQUENCE": "ReverseSequenceOptions",
}  # fmt: skip

FORMS: Mapping[str, OperatorForm] = dict(
    (
        # element by element
        *_operator_forms(
            "RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LEAKY_RELU ELU HARD_SWISH LOGISTIC TANH GELU "
            "LOG_SOFTMAX ABS NEG EXP LOG SQRT RSQRT SQUARE SIN COS FLOOR CEIL ROUND SIGN "
            "L2_NORMALIZATION",
            "T -> T",
            shapes.input_shape,
        ),
        *_operator_forms(
            "SOFTMAX", "A -> A", shapes.input_shape, computes=False
        ),  # int16 may be made of int8, from -32768 on
        *_operator_forms("QUANTIZE CAST", "A -> A", shapes.input_shape, computes=False),
        *_operator_forms("DEQUANTIZE", "A -> F", shapes.input_shape, computes=False),
        *_operator_forms("ZEROS_LIKE", "T -> T", shapes.input_shape, computes=False),
        *_operator_forms("CUMSUM", "T I -> T", shapes.input_shape),
        *_operator_forms(
            "ADD SUB MUL DIV SQUARED_DIFFERENCE MAXIMUM MINIMUM POW FLOOR_DIV FLOOR_MOD ATAN2",
            "T T -> T",
            shapes.broadcast_inputs,
        ),
        *_operator_forms("PRELU", "T W -> T", shapes.prelu_shape),
        *_operator_forms("ADD_N", "T+ -> T", shapes.equal_shape),
        *_operator_forms("EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL", "T T -> B", shapes.broadcast_inputs),
        *_operator_forms("LOGICAL_AND LOGICAL_OR", "B B -> B", shapes.broadcast_inputs),
        *_operator_forms("LOGICAL_NOT", "B -> B", shapes.input_shape),
        *_operator_forms("SELECT SELECT_V2", "B T T -> T", shapes.select_shape, computes=False),
        # windows and products
        *_operator_forms("CONV_2D", "T K S? -> T", shapes.convolution_shape),
        *_operator_forms("DEPTHWISE_CONV_2D", "T K S? -> T", shapes.convolution_shape, channel_axis=3),
        *_operator_forms("TRANSPOSE_CONV", "I K T S? -> T", shapes.transposed_convolution),
        *_operator_forms("AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D", "T -> T", shapes.pool_shape),
        *_operator_forms("FULLY_CONNECTED", "T W S? -> T", shapes.fully_connected),
        *_operator_forms("BATCH_MATMUL", "T W -> T", shapes.matrix_product),
        *_operator_forms("SVDF", "T W A S? A -> T", shapes.filtered_history, states=(4,)),
        *_operator_forms(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            "T W? W W W W? W W W A? A? A? A? S S S A? A? T C A? A? A? A? -> T",
            shapes.memory_cells,
            states=(18, 19),
        ),
        # reductions
        *_operator_forms("MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD", "T I -> T", shapes.reduction_shape),
        *_operator_forms("REDUCE_ANY REDUCE_ALL", "B I -> B", shapes.reduction_shape),
        *_operator_forms("ARG_MAX ARG_MIN", "A I -> I", shapes.without_axis),
        *_operator_forms("TOPK_V2", "T I -> T I", shapes.top_k_shapes),
        # moves
        *_operator_forms("RESHAPE", "T I? -> T", shapes.reshape_shape, computes=False),
        *_operator_forms("SQUEEZE", "T -> T", shapes.squeeze_shape, computes=False),
        *_operator_forms("EXPAND_DIMS", "T I -> T", shapes.expand_dims_shape, computes=False),
        *_operator_forms("CONCATENATION", "T+ -> T", shapes.concatenation_shape, computes=False),
        *_operator_forms("PACK", "T+ -> T", shapes.pack_shape, computes=False),
        *_operator_forms("UNPACK", "T -> T+", shapes.unpack_shape, computes=False),
        *_operator_forms("SPLIT", "I T -> T+", shapes.split_shapes, computes=False),
        *_operator_forms("SPLIT_V", "T I I -> T+", shapes.split_by_sizes, computes=False),
        *_operator_forms("SLICE", "T I I -> T", shapes.slice_shape, computes=False),
        *_operator_forms("STRIDED_SLICE", "T I I I -> T", shapes.strided_slice_shape, computes=False),
        *_operator_forms("TRANSPOSE", "T I -> T", shapes.transpose_shape, computes=False),
        *_operator_forms("PAD", "T I -> T", shapes.pad_shape, computes=False),
        *_operator_forms("PADV2", "T I T -> T", shapes.pad_shape, computes=False),
        *_operator_forms("MIRROR_PAD", "T I -> T", shapes.pad_shape, computes=False),
        *_operator_forms("TILE", "T I -> T", shapes.tile_shape, computes=False),
        *_operator_forms("BROADCAST_TO", "T I -> T", shapes.broadcast_to, computes=False),
        *_operator_forms("GATHER", "T M -> T", shapes.gather_shape, computes=False),
        *_operator_forms("GATHER_ND", "T M -> T", shapes.gathered_slices, computes=False),
        *_operator_forms("EMBEDDING_LOOKUP", "I A -> A", shapes.looked_up, computes=False),
        *_operator_forms("REVERSE_V2", "T I -> T", shapes.input_shape, computes=False),
        *_operator_forms("REVERSE_SEQUENCE", "T I -> T", shapes.input_shape, computes=False),
        *_operator_forms("DYNAMIC_UPDATE_SLICE", "T T I -> T", shapes.update_shape, computes=False),
        *_operator_forms("SCATTER_ND", "I T I -> T", shapes.scatter_shape, computes=False),
        *_operator_forms("ONE_HOT", "I I T T -> T", shapes.one_hot, computes=False),
        *_operator_forms("FILL", "I T -> T", shapes.given_shape, computes=False),
        *_operator_forms("DEPTH_TO_SPACE SPACE_TO_DEPTH", "T -> T", shapes.of_depth, computes=False),
        *_operator_forms("SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND", "T I I -> T", shapes.of_batches, computes=False),
        *_operator_forms("RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR", "T I -> T", shapes.resize_shape),
        # shapes as values
        *_operator_forms("SHAPE", "A -> I", shapes.rank_of),
        *_operator_forms("RANK", "A -> I", shapes.scalar_shape),
        *_operator_forms("RANGE", "T T T -> T", shapes.counted_up),
        *_operator_forms("BROADCAST_ARGS", "I I -> I", shapes.broadcast_arguments),
        # control flow and variables
        *_operator_forms("IF:1", "B A* -> A+", computes=False),
        *_operator_forms("WHILE", "A+ -> A+", computes=False),
        *_operator_forms("READ_VARIABLE", "A -> A"),
        *_operator_forms("ASSIGN_VARIABLE", "A A ->"),
    )
)


LARGEST_STEP = 1 << 16  # of a window; a map of that many rows fits no memory
_STEPS = ("StrideH", "StrideW", "DilationHFactor", "DilationWFactor", "FilterHeight", "FilterWidth")
# Values that the format defines, of options in any table.
_ENUMERATIONS = {"Padding": 2, "Mode": 2, "FusedActivationFunction": 6}
_RECURRENT = ("LSTM", "RNN")  # ends of names of operators that fuse TANH
_REALS = ("Alpha", "Beta", "CellClip", "ProjClip")  # options that are real numbers
_RESULT_TYPES = ("OutType", "OutputType")  # options that say an integer type
_STORED = ("int8", "uint8", "int16")  # types of elements that stand for real numbers
_HANDLES = frozenset(("IF", "WHILE", "READ_VARIABLE", "ASSIGN_VARIABLE"))  # whose operands may be variables themselves


class ContradictionError(NpuMemplanError):
    """A network contradicts itself or the format; `read_network` says of which file."""


def validate_network(network: Network) -> None:
    """`ContradictionError` at the first thing that cannot be of any of its graphs."""
    for number, graph in enumerate(network.subgraphs or (network,)):
        where = f"subgraph {number}: " if number else ""
        try:
            _validate_graph(graph if number else network)
        except ContradictionError as error:
            raise ContradictionError(f"{where}{error}") from None


def _validate_graph(graph: Network) -> None:
    _validate_tensors(graph)
    known: dict[int, Shape | None] = {
        t.index: None if t.has_open_shape and not (t.shape and t.index in graph.inputs) else t.shape
        for t in graph.tensors
    }
    writers = {index: o for o in graph.operators for index in o.outputs}
    made = set(graph.inputs)
    for operator in graph.operators:
        if isinstance(operator, CpuOperator):
            for index in operator.inputs:
                if index >= 0 and index not in made and not _has_content(graph.tensors[index]):
                    raise ContradictionError(
                        f"{_operator_text(operator)} reads {_unmade_reason(graph, index, writers)}"
                    )
            _validate_operator(graph, operator, known)
        made.update(operator.outputs)
    for index in () if graph.by_vela else graph.outputs:  # Vela leaves constant outputs without their bytes
        if index not in made and not _has_content(graph.tensors[index]):
            raise ContradictionError(f"its output is {_unmade_reason(graph, index, writers)}")


def _has_content(tensor: Tensor) -> bool:
    """Whether a tensor has content before any operator runs."""
    return tensor.data is not None or tensor.is_variable or 0 in tensor.shape


def _unmade_reason(graph: Network, index: int, writers: dict[int, NpuCall | CpuOperator]) -> str:
    writer = writers.get(index)
    by = "no operator makes" if writer is None else f"operator {writer.index} makes, which does not run before"
    return f"{_label(graph.tensors[index])}, which {by}"


def _validate_tensors(graph: Network) -> None:
    """Ranks that the format has; tensors marked as variables are neither constants nor inputs, and nothing but
    operators with states uses them."""
    for tensor in graph.tensors:
        if len(tensor.shape) > LARGEST_RANK:
            raise ContradictionError(f"{_tensor_text(tensor)} has more than {LARGEST_RANK} dimensions")
        roles = {
            "a constant": tensor.data is not None,
            "an input": tensor.index in graph.inputs,
            "marked as a variable": tensor.is_variable,
        }
        found = [role for role, holds in roles.items() if holds]
        if len(found) > 1:
            raise ContradictionError(f"{_label(tensor)} is {' and '.join(found)}")
    for operator in graph.cpu_operators:
        form = FORMS.get(operator.name)
        if form is None or operator.name in _HANDLES or _is_shortened(graph, operator, form):
            continue
        for place, index in enumerate(operator.inputs):
            if index < 0 or graph.tensors[index].is_variable == (place in form.states):
                continue
            what = f"{_operator_text(operator)} has {_label(graph.tensors[index])} as input {place}"
            raise ContradictionError(
                f"{what}, its state, which is not marked as a variable"
                if place in form.states
                else f"{what}, which is marked as a variable, and it keeps no state there"
            )
        for index in operator.outputs:
            if graph.tensors[index].is_variable:
                what = f"{_operator_text(operator)} makes {_label(graph.tensors[index])}"
                raise ContradictionError(f"{what}, which is marked as a variable, and results are none")


def _operator_text(operator: CpuOperator) -> str:
    return f"operator {operator.index} {operator.name}"


def _label(tensor: Tensor) -> str:
    return f"tensor {tensor.index} {tensor.name!r}"


def _tensor_text(tensor: Tensor) -> str:
    return f"{_label(tensor)} {tensor.dtype}{list(tensor.shape)}"


def _validate_operator(graph: Network, operator: CpuOperator, known: dict[int, Shape | None]) -> None:
    """Refuse what does not fit `operator`; `known` gets the shapes of its results."""
    form = FORMS.get(operator.name)
    tensors = [graph.tensors[i] if i >= 0 else None for i in operator.inputs]
    results = [graph.tensors[i] for i in operator.outputs]
    if form is None or operator.is_custom:
        return
    try:
        if _is_shortened(graph, operator, form):
            return
        _validate_places(form, tensors, results)
        if not 1 <= operator.version <= LARGEST_VERSION:
            raise ShapeError(f"has version {operator.version}; no operator has more than {LARGEST_VERSION}")
        _validate_options(operator, form.options, results)
        letters = _tensor_letters(form, tensors, results)
        _validate_types(letters)
        _validate_quantisation(form, letters)
        if graph.by_vela:
            return  # Vela gives tensors that its calls reshape one shape
        inputs = _known_inputs(tensors, known)
        found = None if inputs is None else result_shapes(operator, inputs)
        for tensor, shape in zip(results, found or (), strict=False):
            if known[tensor.index] is None:
                known[tensor.index] = shape
            elif (shape or (1,)) != (tensor.shape or (1,)):
                given = ", ".join(_tensor_text(t) for t in tensors if t is not None)
                raise ShapeError(f"makes {list(shape)} of {given}, and its result is {_tensor_text(tensor)}")
    except ShapeError as error:
        text = str(error)
        link = ":" if text.startswith("its ") else ""
        raise ContradictionError(f"{_operator_text(operator)}{link} {text}") from None


def _is_shortened(graph: Network, operator: CpuOperator, form: OperatorForm) -> bool:
    """Whether operands may stand at other places: Vela's compiled core drops those that are left out."""
    return graph.by_vela and len(operator.inputs) < _most(form.inputs) and any(not o.least for o in form.inputs)


def _most(operands: Sequence[OperandPlace]) -> float:
    return sum(math.inf if o.most is None else o.most for o in operands)


def _validate_places(form: OperatorForm, tensors: Sequence[Tensor | None], results: Sequence[Tensor]) -> None:
    """The numbers of operands and results, and which of them may be left out."""
    for what, operands, given in (("input", form.inputs, tensors), ("output", form.outputs, results)):
        required = [place for place, operand in enumerate(operands) if operand.least]
        least, most = (required[-1] + 1 if required else 0), _most(operands)
        if not least <= len(given) <= most:
            wanted = f"{least} or more" if most == math.inf else f"{least}" if least == most else f"{least} to {most:g}"
            raise ShapeError(f"has {count_text(len(given), what)}; it takes {wanted}")
        for place, tensor in enumerate(given):
            if tensor is None and operands[min(place, len(operands) - 1)].most == 1 and place in required:
                raise ShapeError(f"has no {what} {place}, which it cannot be without")
            if tensor is None and operands[min(place, len(operands) - 1)].most is None:
                raise ShapeError(f"has no {what} {place}, which stands between others")


def _tensor_letters(
    form: OperatorForm, tensors: Sequence[Tensor | None], results: Sequence[Tensor]
) -> list[tuple[str, Any]]:
    """The letters that the format calls each tensor, of those that are there."""
    found = []
    for operands, given in ((form.inputs, tensors), (form.outputs, results)):
        found += [(operands[min(place, len(operands) - 1)].letter, tensor) for place, tensor in enumerate(given)]
    return [(letter, tensor) for letter, tensor in found if tensor is not None]


def _validate_types(letters: Sequence[tuple[str, Tensor]]) -> None:
    """The types of operands and results, which follow from the one that stands for `T`."""
    of_operator = next((t for letter, t in letters if letter == "T"), None)
    kind = "" if of_operator is None else of_operator.dtype
    by_kind = {"T": {kind: (kind,)}, "W": WEIGHTS, "K": WEIGHTS, "S": SUMS, "C": CELLS}
    for letter, tensor in letters:
        allowed = by_kind[letter].get(kind) if letter in by_kind else TYPES.get(letter)
        if allowed is not None and tensor.dtype not in allowed:
            beside = f" beside {_tensor_text(of_operator)}" if letter in by_kind and of_operator is not None else ""
            raise ShapeError(f"takes {' or '.join(allowed)}{beside}, and {_label(tensor)} is {tensor.dtype}")


def _validate_quantisation(form: OperatorForm, letters: Sequence[tuple[str, Tensor]]) -> None:
    """Zero points and scales, of the tensors that are of the operator's own type, and of its weights."""
    values = [tensor for letter, tensor in letters if letter == "T" and tensor.dtype in _STORED]
    for tensor in values:
        if form.computes and tensor.dtype == "int16" and any(tensor.zero_points):
            raise ShapeError(f"takes int16 without a zero point, and {_label(tensor)} has {tensor.zero_point}")
    unscaled = next((t for t in values if not t.scales), None)
    scaled = next((t for t in values if t.scales), None)
    if scaled is not None and unscaled is not None:
        raise ShapeError(f"has {_tensor_text(unscaled)} without a scale beside {_tensor_text(scaled)} with one")
    for letter, tensor in letters:
        if letter == "K" and tensor.dtype == "int8" and any(tensor.zero_points):
            raise ShapeError(f"takes a filter without a zero point, and {_label(tensor)} has {tensor.zero_point}")
        if letter in "KW" and len(tensor.scales) > 1 and tensor.quantised_dimension != form.channel_axis:
            has = f"and {_label(tensor)} has them along {tensor.quantised_dimension}"
            raise ShapeError(f"takes scales along axis {form.channel_axis} of its weights, {has}")


def _validate_options(operator: CpuOperator, kind: str, results: Sequence[Tensor]) -> None:
    """The options of an operator are a table of its own `kind` ("": any), with values that the format defines."""
    import tflite

    table = operator.table
    found = 0 if table is None or table.BuiltinOptions() is None else table.BuiltinOptionsType()
    if not kind or not found:
        return
    options = operator.options(kind)
    if options is None:
        names = {v: k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int)}
        raise ShapeError(f"has {names.get(found, found)}; it takes {kind}")
    for name in _STEPS:
        step = getattr(options, name)() if hasattr(options, name) else 1
        if not 1 <= step <= LARGEST_STEP:
            raise ShapeError(f"has {name} {step}; it must be in 1..{LARGEST_STEP}")
    for name in _REALS:
        real = getattr(options, name)() if hasattr(options, name) else 0.0
        if not math.isfinite(real):
            raise ShapeError(f"has {name} {real}; it must be finite")
    if operator.name == "SOFTMAX" and results[0].dtype in _STORED and not options.Beta() > 0:
        raise ShapeError(f"has Beta {options.Beta()}; it must be positive")
    for name in _RESULT_TYPES:
        number = getattr(options, name)() if hasattr(options, name) else -1
        wanted = {tflite.TensorType.INT32: "int32", tflite.TensorType.INT64: "int64"}.get(number)
        if number >= 0 and results[0].dtype != wanted:
            raise ShapeError(f"has {name} {wanted or number}, and its result is {_tensor_text(results[0])}")
    for name, values in _ENUMERATIONS.items():
        value = getattr(options, name)() if hasattr(options, name) else 0
        if not 0 <= value < values:
            raise ShapeError(f"has {name} {value}, which the format does not define")
    fused = getattr(options, "FusedActivationFunction", int)()
    if fused > tflite.ActivationFunctionType.RELU6 and not operator.name.endswith(_RECURRENT):
        raise ShapeError(f"has FusedActivationFunction {fused}; TFLite fuses TANH and SIGN_BIT into no such operator")


def _known_inputs(tensors: Sequence[Tensor | None], known: Mapping[int, Shape | None]) -> list[Tensor | None] | None:
    """Operands with the shapes that they have when it runs; None where one is not known."""
    found = [t if t is None or known[t.index] == t.shape else _tensor_of_shape(t, known[t.index]) for t in tensors]
    unknown = any(t is not None and known[t.index] is None for t in tensors)
    return None if unknown else found


def _tensor_of_shape(tensor: Tensor, shape: Shape | None) -> Tensor | None:
    return None if shape is None else replace(tensor, shape=shape)


def result_shapes(operator: CpuOperator, inputs: Sequence[Tensor | None]) -> Sequence[Shape] | None:
    """The shapes of the results of `operator`; None: known only when it runs. `ShapeError`: contradictions."""
    form = FORMS.get(operator.name)
    if form is None or form.shapes is None:
        return None
    try:
        return form.shapes(operator, inputs)
    except UnknownShapeError:
        return None
