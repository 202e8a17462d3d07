"""What operators make of constants, in numpy.

Invariant: an evaluator gives the reference's bits or None; it looks at constants, and at shapes of others.
Only what needs no rounding of a library is here: moves, integers, TFLite's fixed point, and float32 operations that
IEEE 754 defines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...fixed_point.multiplier import (
    LIMITS,
    activation_range,
    divide_scales,
    multiply_by_quantised,
    multiply_scales,
    quantise_multiplier,
)
from ..network import CpuOperator
from ..operators.shapes import options_of
from ..tensor import Tensor

Arrays = list[NDArray[Any]]
_Tensors = Sequence[Any]  # of Tensor, or None where an input is left out
Evaluator = Callable[[CpuOperator, _Tensors, Sequence[Tensor]], Arrays | None]

_NUMBERS = ("int32", "int64", "float32")


def _list(tensor: Tensor) -> list[int]:
    return [int(v) for v in tensor.array().reshape(-1)]


def _unpack(operator: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    axis = options_of(operator, "UnpackOptions").Axis()
    parts = np.split(inputs[0].array(), len(outputs), axis)
    return [np.squeeze(part, axis) for part in parts]


def _concatenation(operator: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    options = options_of(operator, "ConcatenationOptions")
    alike = all((t.scale, t.zero_point) == (outputs[0].scale, outputs[0].zero_point) for t in inputs)
    if options.FusedActivationFunction() != 0 or not alike:
        return None
    return [np.concatenate([t.array() for t in inputs], options.Axis())]


def _split(operator: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    data, axis = (inputs[1], inputs[0]) if operator.name == "SPLIT" else (inputs[0], inputs[2])
    (along,) = _list(axis)
    ends = np.cumsum([t.shape[along] for t in outputs])
    return np.split(data.array(), ends[:-1], along)


def _gather(operator: CpuOperator, inputs: _Tensors, _: Sequence[Tensor]) -> Arrays | None:
    options, data, indices = options_of(operator, "GatherOptions"), inputs[0].array(), inputs[1].array()
    if options.BatchDims() or indices.min(initial=0) < 0:
        return None
    return [np.take(data, indices, options.Axis())]


def _slice(_: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    begin = _list(inputs[1])
    return [inputs[0].array()[tuple(slice(b, b + n) for b, n in zip(begin, outputs[0].shape, strict=True))]]


def _strided_slice(operator: CpuOperator, inputs: _Tensors, _: Sequence[Tensor]) -> Arrays | None:
    options = options_of(operator, "StridedSliceOptions")
    if options.Offset():  # its ends count from its begins
        return None
    places: list[Any] = []
    for bit, (first, last, step) in enumerate(zip(*map(_list, inputs[1:4]), strict=True)):
        if options.EllipsisMask() >> bit & 1:
            places.append(Ellipsis)
        elif options.NewAxisMask() >> bit & 1:
            places.append(None)
        elif options.ShrinkAxisMask() >> bit & 1:
            places.append(first)
        else:
            begin = None if options.BeginMask() >> bit & 1 else first
            places.append(slice(begin, None if options.EndMask() >> bit & 1 else last, step))
    return [np.asarray(inputs[0].array()[tuple(places)])]


def _range(_: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    if outputs[0].dtype not in ("int32", "int64"):
        return None
    return [np.arange(*(_list(t)[0] for t in inputs), dtype=outputs[0].dtype)]


def _cast(_: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    whole = inputs[0].dtype in ("int32", "int64", "bool") and outputs[0].dtype in _NUMBERS
    narrow = (inputs[0].dtype, outputs[0].dtype) == ("float32", "int32")
    values = inputs[0].array()
    if not whole and not (narrow and np.all(abs(values) < 2**31)):
        return None
    return [values.astype(outputs[0].dtype)]


def _quantized(_: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    """One scale and zero point to another, as the reference rounds; Vela's compilers round otherwise."""
    data, output = inputs[0], outputs[0]
    if max(len(data.scales), len(output.scales)) > 1 or not output.scale or output.dtype not in LIMITS:
        return None
    low, high = LIMITS[output.dtype]
    if data.dtype == "float32":
        ratio = data.array() / np.float32(output.scale)
        if output.dtype == "int32" or not np.all(np.isfinite(ratio)):
            return None
        rounded = np.copysign(np.floor(np.abs(ratio.astype(np.float64)) + 0.5), ratio)
        moved = np.clip(rounded, -1e9, 1e9).astype(np.int64) + output.zero_point
    elif data.dtype in LIMITS and data.scale:
        scale = quantise_multiplier(data.scale / output.scale)
        moved = multiply_by_quantised(data.array().astype(np.int64) - data.zero_point, *scale) + output.zero_point
    else:
        return None
    return [np.clip(moved, low, high).astype(output.dtype)]


def _truncated(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """C's division of integers."""
    quotient = np.abs(a) // np.abs(b)
    signed: NDArray[Any] = np.where((a < 0) != (b < 0), -quotient, quotient)
    return signed.astype(a.dtype)


_ARITHMETIC: dict[str, tuple[str, Callable[..., NDArray[Any]]]] = {
    "ADD": ("AddOptions", np.add),
    "SUB": ("SubOptions", np.subtract),
    "MUL": ("MulOptions", np.multiply),
    "DIV": ("DivOptions", np.divide),
    "FLOOR_DIV": ("", np.floor_divide),
    "FLOOR_MOD": ("", np.mod),
    "MAXIMUM": ("", np.maximum),
    "MINIMUM": ("", np.minimum),
    **{name: ("", function) for name, function in (
        ("EQUAL", np.equal), ("NOT_EQUAL", np.not_equal), ("LESS", np.less), ("LESS_EQUAL", np.less_equal),
        ("GREATER", np.greater), ("GREATER_EQUAL", np.greater_equal),
    )},
}  # fmt: skip


def _quantized_product(operator: CpuOperator, inputs: _Tensors, output: Tensor) -> Arrays | None:
    """A product of stored values as the reference rounds it; Vela's compilers round products of constants otherwise."""
    a, b = inputs
    if output.dtype not in ("int8", "uint8", "int16") or not output.scale:
        return None
    if any(len(t.scales) != 1 or t.dtype != output.dtype for t in (a, b)):
        return None
    single = output.dtype == "uint8"  # LiteRT's
    factor = multiply_scales(a.scale, b.scale, single=single)
    scale = quantise_multiplier(divide_scales(factor, output.scale, single=single))
    first, second = (t.array().astype(np.int64) - t.zero_point for t in (a, b))
    activation = options_of(operator, "MulOptions").FusedActivationFunction()
    limits = activation_range(activation, output.scale, output.zero_point, output.dtype)
    product = multiply_by_quantised(first * second, *scale) + output.zero_point
    return [np.clip(product, *limits).astype(output.dtype)]


def _arithmetic(operator: CpuOperator, inputs: _Tensors, outputs: Sequence[Tensor]) -> Arrays | None:
    """Of plain numbers of one type, without an activation, and without a division by zero."""
    if operator.name == "MUL" and outputs[0].scales:
        return _quantized_product(operator, inputs, outputs[0])
    table, function = _ARITHMETIC[operator.name]
    a, b = (t.array() for t in inputs)
    if a.dtype != b.dtype or a.dtype.name not in _NUMBERS:
        return None
    if table and options_of(operator, table).FusedActivationFunction() != 0:
        return None
    divides = operator.name in ("DIV", "FLOOR_DIV", "FLOOR_MOD")
    if divides and (not np.all(b) or (a.dtype.kind == "f" and operator.name != "DIV")):
        return None
    if operator.name == "DIV" and a.dtype.kind == "i":
        return [_truncated(*np.broadcast_arrays(a, b))]
    with np.errstate(all="ignore"):
        return [np.asarray(function(a, b))]


_REDUCTIONS: dict[str, Callable[..., NDArray[Any]]] = {
    "REDUCE_PROD": np.prod,
    "SUM": np.sum,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
}


def _reduced(operator: CpuOperator, inputs: _Tensors, _: Sequence[Tensor]) -> Arrays | None:
    values = inputs[0].array()
    if values.dtype.name not in ("int32", "int64"):
        return None
    keep = bool(options_of(operator, "ReducerOptions").KeepDims())
    axes = tuple({axis % values.ndim for axis in _list(inputs[1])})
    return [np.asarray(_REDUCTIONS[operator.name](values, axis=axes, keepdims=keep)).astype(values.dtype)]


# (operator, inputs, outputs) -> what is made; a file that leaves shapes to the run time has none.
EVALUATORS: dict[str, Evaluator] = {
    "SHAPE": lambda _, i, o: [np.array(i[0].shape, o[0].dtype)] if i[0].shape else None,
    "RANK": lambda _, i, o: [np.full(o[0].shape, len(i[0].shape), o[0].dtype)] if i[0].shape else None,
    "ZEROS_LIKE": lambda _, __, o: (
        [np.zeros(o[0].shape, o[0].dtype)] if o[0].dtype in _NUMBERS and o[0].shape else None
    ),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), lambda _, i, o: [i[0].array().reshape(o[0].shape)]),
    "TRANSPOSE": lambda _, i, __: [i[0].array().transpose(_list(i[1]))],
    "BROADCAST_TO": lambda _, i, o: [np.broadcast_to(i[0].array(), o[0].shape)],
    "BROADCAST_ARGS": lambda _, i, o: [np.array(np.broadcast_shapes(*(tuple(_list(t)) for t in i)), o[0].dtype)],
    "FILL": lambda _, i, o: [np.full(o[0].shape, i[1].array().reshape(-1)[0], o[0].dtype)],
    "TILE": lambda _, i, __: [np.tile(i[0].array(), _list(i[1]))],
    # Halves only: integers are smaller as they are.
    "DEQUANTIZE": lambda _, i, __: [i[0].array().astype(np.float32)] if i[0].dtype == "float16" else None,
    "QUANTIZE": _quantized,
    "PACK": lambda op, i, _: [np.stack([t.array() for t in i], options_of(op, "PackOptions").Axis())],
    "UNPACK": _unpack,
    "CONCATENATION": _concatenation,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "GATHER": _gather,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "RANGE": _range,
    "CAST": _cast,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_REDUCTIONS, _reduced),
}
