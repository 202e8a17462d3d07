"""What the TFLite format demands of each operator: its operands and their types, its options, its results' shapes.

Invariant: this is the one list of these facts; the validator, the folding of constants and the shapes that files leave
open read it. It says what a file may mean, not what can be compiled: that is the lowerings' to say. An operator that
is not in it is judged by its tensors alone.

Operands are written as words, results behind `->`. A letter is a type: `T` the operator's own, the same everywhere in
it; `W` weights for it; `K` weights of a convolution, which have no zero point but as uint8; `S` sums of products; `M`
an integer that a value is chosen by; `I` int32 or int64; `B` bool; `F` float32; `A` any. A mark behind it is a number:
`?` may be left out, `+` one or more, `*` any number.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import shapes
from .shapes import Rule


@dataclass(frozen=True, slots=True)
class OperandPlace:
    """A place of an operator's tensors; `least` to `most` of them, None: any number."""

    letter: str
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class OperatorForm:
    """One operator of the format.

    `computes`: stored int16 have no zero point. `states` are inputs that are variable tensors.
    """

    operands: str
    options: str = ""
    shapes: Rule | None = None
    computes: bool = True
    states: tuple[int, ...] = ()
    channel_axis: int = 0  # of weights with several scales

    @property
    def inputs(self) -> tuple[OperandPlace, ...]:
        """What it reads."""
        return _operands(self.operands.partition("->")[0])

    @property
    def outputs(self) -> tuple[OperandPlace, ...]:
        """What it makes."""
        return _operands(self.operands.partition("->")[2])


_NUMBERS = {"": (1, 1), "?": (0, 1), "+": (1, None), "*": (0, None)}


@functools.cache
def _operands(text: str) -> tuple[OperandPlace, ...]:
    return tuple(OperandPlace(word[0], *_NUMBERS[word[1:]]) for word in text.split())


# The type that `T` is -> the types that `W` and `S` may be. Weights of 4 bits are read as int8.
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
TYPES: Mapping[str, tuple[str, ...]] = {
    "I": ("int32", "int64"),
    "M": ("int8", "uint8", "int16", "int32", "int64", "uint32"),
    "B": ("bool",),
    "F": ("float32",),
}
LARGEST_RANK = 8  # of LiteRT's kernels
LARGEST_VERSION = 16  # of an operator: LiteRT 2.3 knows 14 of FULLY_CONNECTED, and fewer of all others


def _forms(
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
        *_forms(
            "RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LEAKY_RELU ELU HARD_SWISH LOGISTIC TANH GELU "
            "LOG_SOFTMAX ABS NEG EXP LOG SQRT RSQRT SQUARE SIN COS FLOOR CEIL ROUND SIGN "
            "L2_NORMALIZATION",
            "T -> T",
            shapes.same,
        ),
        *_forms("SOFTMAX", "A -> A", shapes.same, computes=False),  # int16 may be made of int8, from -32768 on
        *_forms("QUANTIZE CAST", "A -> A", shapes.same, computes=False),
        *_forms("DEQUANTIZE", "A -> F", shapes.same, computes=False),
        *_forms("ZEROS_LIKE", "T -> T", shapes.same, computes=False),
        *_forms("CUMSUM", "T I -> T", shapes.same),
        *_forms(
            "ADD SUB MUL DIV SQUARED_DIFFERENCE MAXIMUM MINIMUM POW FLOOR_DIV FLOOR_MOD ATAN2",
            "T T -> T",
            shapes.broadcast,
        ),
        *_forms("PRELU", "T W -> T", shapes.sloped),
        *_forms("ADD_N", "T+ -> T", shapes.alike),
        *_forms("EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL", "T T -> B", shapes.broadcast),
        *_forms("LOGICAL_AND LOGICAL_OR", "B B -> B", shapes.broadcast),
        *_forms("LOGICAL_NOT", "B -> B", shapes.same),
        *_forms("SELECT SELECT_V2", "B T T -> T", shapes.selected, computes=False),
        # windows and products
        *_forms("CONV_2D", "T K S? -> T", shapes.convolution),
        *_forms("DEPTHWISE_CONV_2D", "T K S? -> T", shapes.convolution, channel_axis=3),
        *_forms("TRANSPOSE_CONV", "I K T S? -> T", shapes.transposed_convolution),
        *_forms("AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D", "T -> T", shapes.pool),
        *_forms("FULLY_CONNECTED", "T W S? -> T", shapes.fully_connected),
        *_forms("BATCH_MATMUL", "T W -> T", shapes.matrix_product),
        *_forms("SVDF", "T W A S? A -> T", shapes.filtered_history, states=(4,)),
        *_forms(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            "T W? W W W W? W W W A? A? A? A? S S S A? A? A A A? A? A? A? -> T",
            shapes.memory_cells,
            states=(18, 19),
        ),
        # reductions
        *_forms("MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD", "T I -> T", shapes.reduced),
        *_forms("REDUCE_ANY REDUCE_ALL", "B I -> B", shapes.reduced),
        *_forms("ARG_MAX ARG_MIN", "A I -> I", shapes.without_axis),
        *_forms("TOPK_V2", "T I -> T I", shapes.largest),
        # moves
        *_forms("RESHAPE", "T I? -> T", shapes.reshaped, computes=False),
        *_forms("SQUEEZE", "T -> T", shapes.squeezed, computes=False),
        *_forms("EXPAND_DIMS", "T I -> T", shapes.expanded, computes=False),
        *_forms("CONCATENATION", "T+ -> T", shapes.joined, computes=False),
        *_forms("PACK", "T+ -> T", shapes.packed, computes=False),
        *_forms("UNPACK", "T -> T+", shapes.unpacked, computes=False),
        *_forms("SPLIT", "I T -> T+", shapes.split, computes=False),
        *_forms("SPLIT_V", "T I I -> T+", shapes.split_by_sizes, computes=False),
        *_forms("SLICE", "T I I -> T", shapes.sliced, computes=False),
        *_forms("STRIDED_SLICE", "T I I I -> T", shapes.strided, computes=False),
        *_forms("TRANSPOSE", "T I -> T", shapes.transposed, computes=False),
        *_forms("PAD", "T I -> T", shapes.padded, computes=False),
        *_forms("PADV2", "T I T -> T", shapes.padded, computes=False),
        *_forms("MIRROR_PAD", "T I -> T", shapes.padded, computes=False),
        *_forms("TILE", "T I -> T", shapes.tiled, computes=False),
        *_forms("BROADCAST_TO", "T I -> T", shapes.broadcast_to, computes=False),
        *_forms("GATHER", "T M -> T", shapes.gathered, computes=False),
        *_forms("GATHER_ND", "T M -> T", shapes.gathered_slices, computes=False),
        *_forms("EMBEDDING_LOOKUP", "I A -> A", shapes.looked_up, computes=False),
        *_forms("REVERSE_V2", "T I -> T", shapes.same, computes=False),
        *_forms("REVERSE_SEQUENCE", "T I -> T", shapes.same, computes=False),
        *_forms("DYNAMIC_UPDATE_SLICE", "T T I -> T", shapes.updated, computes=False),
        *_forms("SCATTER_ND", "I T I -> T", shapes.scattered, computes=False),
        *_forms("ONE_HOT", "I I T T -> T", shapes.one_hot, computes=False),
        *_forms("FILL", "I T -> T", shapes.given_shape, computes=False),
        *_forms("DEPTH_TO_SPACE SPACE_TO_DEPTH", "T -> T", shapes.of_depth, computes=False),
        *_forms("SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND", "T I I -> T", shapes.of_batches, computes=False),
        *_forms("RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR", "T I -> T", shapes.resized),
        # shapes as values
        *_forms("SHAPE", "A -> I", shapes.rank_of),
        *_forms("RANK", "A -> I", shapes.scalar),
        *_forms("RANGE", "T T T -> T", shapes.counted_up),
        *_forms("BROADCAST_ARGS", "I I -> I", shapes.broadcast_arguments),
        # control flow and variables
        *_forms("IF:1", "B A* -> A+", computes=False),
        *_forms("WHILE", "A+ -> A+", computes=False),
        *_forms("READ_VARIABLE", "A -> A"),
        *_forms("ASSIGN_VARIABLE", "A A ->"),
    )
)
