"""Shapes that a file leaves to the run time, though they follow from its inputs' and its constants.

Invariant: a rule gives the shape that the reference would give an output, or None; it looks at shapes of inputs, at
constants and at options. A shape that the file states is never another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..network import CpuOperator
from ..tensor import Tensor

Shape = tuple[int, ...]
_Inputs = Sequence[Any]  # of Tensor, or None where an input is left out
_Rule = Callable[[CpuOperator, _Inputs], Shape | None]


def open_shapes(graph: Any) -> set[int]:
    """Tensors of a TFLite subgraph whose shape is not said: none at all, or -1 in its signature.

    Constants and the graph's inputs have the shape that the file states.
    """
    given = {int(i) for i in graph.InputsAsNumpy()} if graph.InputsLength() else set()
    found = set()
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        signature = tensor.ShapeSignatureAsNumpy() if tensor.ShapeSignatureLength() else np.empty(0)
        if index not in given and (not tensor.ShapeLength() or (signature < 0).any()):
            found.add(index)
    return found


def output_shape(operator: CpuOperator, inputs: Sequence[Tensor | None]) -> Shape | None:
    """The shape of the only output of `operator`; None where it is not known before it runs."""
    rule = _RULES.get(operator.name)
    if rule is None or len(operator.outputs) != 1 or not inputs or inputs[0] is None:
        return None
    try:
        shape = rule(operator, inputs)
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
        return None  # its lowering says what is wrong
    return shape if shape is not None and all(extent > 0 for extent in shape) else None


def _numbers(tensor: Tensor | None) -> list[int]:
    """The values of a constant; `ValueError` for what is none."""
    if tensor is None or tensor.data is None or tensor.is_variable:
        raise ValueError("no constant")
    return [int(v) for v in tensor.array().reshape(-1)]


def options_of(operator: CpuOperator, kind: str) -> Any:
    """The built-in options of an operator; `ValueError` when the file has none."""
    found = operator.options(kind)
    if found is None:
        raise ValueError(f"the file has no {kind}")
    return found


def _broadcast(_: CpuOperator, inputs: _Inputs) -> Shape:
    return tuple(np.broadcast_shapes(inputs[0].shape, inputs[1].shape))


def _reshape(operator: CpuOperator, inputs: _Inputs) -> Shape:
    if len(inputs) > 1 and inputs[1] is not None:
        wanted = _numbers(inputs[1])
    else:
        wanted = [int(v) for v in options_of(operator, "ReshapeOptions").NewShapeAsNumpy()]
    known = math.prod(extent for extent in wanted if extent != -1)
    size = math.prod(inputs[0].shape)
    shape = tuple(size // known if extent == -1 else extent for extent in wanted)
    if math.prod(shape) != size or wanted.count(-1) > 1:
        raise ValueError("another number of elements")
    return shape


def _reduced(operator: CpuOperator, inputs: _Inputs) -> Shape:
    rank = len(inputs[0].shape)
    axes = {axis % rank for axis in _numbers(inputs[1])}
    keep = options_of(operator, "ReducerOptions").KeepDims()
    return tuple(1 if i in axes else n for i, n in enumerate(inputs[0].shape) if keep or i not in axes)


def _padded(_: CpuOperator, inputs: _Inputs) -> Shape:
    pads = np.array(_numbers(inputs[1])).reshape(-1, 2).sum(axis=1)
    return tuple(int(n + p) for n, p in zip(inputs[0].shape, pads, strict=True))


def _window(options: Any, shape: Shape, kernel: tuple[int, int], channels: int, dilation: tuple[int, int]) -> Shape:
    """What a kernel of (height, width) makes of [batch, height, width, channels]."""
    batch, *size, _ = shape
    made = []
    steps = (options.StrideH(), options.StrideW())
    for extent, taps, step, apart in zip(size, kernel, steps, dilation, strict=True):
        reach = (taps - 1) * apart + 1
        same = options.Padding() == 0
        made.append(-(-extent // step) if same else (extent - reach) // step + 1)
    return (batch, *made, channels)


def _convolution(operator: CpuOperator, inputs: _Inputs) -> Shape:
    depthwise = operator.name == "DEPTHWISE_CONV_2D"
    options = options_of(operator, "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
    weights = inputs[1].shape
    dilation = (options.DilationHFactor(), options.DilationWFactor())
    channels = weights[3] if depthwise else weights[0]
    return _window(options, inputs[0].shape, weights[1:3], channels, dilation)


def _pool(operator: CpuOperator, inputs: _Inputs) -> Shape:
    options, shape = options_of(operator, "Pool2DOptions"), inputs[0].shape
    return _window(options, shape, (options.FilterHeight(), options.FilterWidth()), shape[3], (1, 1))


def _fully_connected(operator: CpuOperator, inputs: _Inputs) -> Shape:
    shape, (units, depth) = inputs[0].shape, inputs[1].shape
    if options_of(operator, "FullyConnectedOptions").KeepNumDims():
        return (*shape[:-1], units)
    rows, rest = divmod(math.prod(shape), depth)
    if rest:
        raise ValueError("no whole rows")
    return rows, units


def _resized(_: CpuOperator, inputs: _Inputs) -> Shape:
    height, width = _numbers(inputs[1])
    return inputs[0].shape[0], height, width, inputs[0].shape[3]


def _expanded(_: CpuOperator, inputs: _Inputs) -> Shape:
    (axis,) = _numbers(inputs[1])
    at = axis % (len(inputs[0].shape) + 1)
    return (*inputs[0].shape[:at], 1, *inputs[0].shape[at:])


def _squeezed(operator: CpuOperator, inputs: _Inputs) -> Shape:
    options, shape = options_of(operator, "SqueezeOptions"), inputs[0].shape
    given = [int(v) % len(shape) for v in options.SqueezeDimsAsNumpy()] if options.SqueezeDimsLength() else None
    gone = [i for i, n in enumerate(shape) if n == 1] if given is None else given
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def _joined(operator: CpuOperator, inputs: _Inputs) -> Shape:
    axis = options_of(operator, "ConcatenationOptions").Axis() % len(inputs[0].shape)
    shape = list(inputs[0].shape)
    shape[axis] = sum(t.shape[axis] for t in inputs)
    return tuple(shape)


def _sliced(_: CpuOperator, inputs: _Inputs) -> Shape:
    begins, sizes = _numbers(inputs[1]), _numbers(inputs[2])
    return tuple(
        whole - begin if size == -1 else size for whole, begin, size in zip(inputs[0].shape, begins, sizes, strict=True)
    )


_SAME = (
    "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "ELU", "HARD_SWISH", "LOGISTIC", "TANH", "SOFTMAX",
    "LOG_SOFTMAX", "GELU", "ABS", "NEG", "EXP", "LOG", "SQRT", "RSQRT", "SQUARE", "SIN", "COS", "FLOOR", "CEIL",
    "ROUND", "QUANTIZE", "DEQUANTIZE", "CAST", "L2_NORMALIZATION", "ZEROS_LIKE",
)  # fmt: skip
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_SAME, lambda _, i: i[0].shape),
    **dict.fromkeys(
        ("ADD", "SUB", "MUL", "DIV", "SQUARED_DIFFERENCE", "MAXIMUM", "MINIMUM", "PRELU", "POW", "FLOOR_DIV"),
        _broadcast,
    ),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), _reduced),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), _padded),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _convolution),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _pool),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resized),
    "FULLY_CONNECTED": _fully_connected,
    "RESHAPE": _reshape,
    "EXPAND_DIMS": _expanded,
    "SQUEEZE": _squeezed,
    "CONCATENATION": _joined,
    "SLICE": _sliced,
    "TRANSPOSE": lambda _, i: tuple(i[0].shape[axis] for axis in _numbers(i[1])),
    "TRANSPOSE_CONV": lambda _, i: tuple(_numbers(i[0])),
    "BROADCAST_TO": lambda _, i: tuple(_numbers(i[1])),
    "FILL": lambda _, i: tuple(_numbers(i[0])),
    "SHAPE": lambda _, i: (len(i[0].shape),),
}
