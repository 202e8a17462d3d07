"""Composites to layers: elementwise operators, tables, and movements of data. `parse` is the one entry.

Invariant: `parse` either returns a layer that passed every constraint of the NPU, or raises
`RejectedError` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from ..ethosu.lower import tables
from ..ethosu.lower.constraints import problem
from ..ethosu.lower.graph import (
    Abs,
    Arithmetic,
    Binary,
    BinaryKind,
    Concat,
    Lookup,
    Pad,
    Padding,
    PoolKind,
    Prelu,
    Requantize,
    Reshape,
    Slice,
    Softmax,
    Squash,
    Transpose,
)
from ..ethosu.stream.isa import Function
from . import recurrent, windows
from .described import DescribedCall
from .reader import Match, Reader, RejectedError, number
from .resizes import resize_layer
from .windows import plain


def parse(kind: str, reader: Reader, root: Any) -> Match:
    """The layer of a composite of `kind` whose result is `root`."""
    match = _PARSERS[kind](reader, root)
    inputs = tuple(match.tensors[name] for name in match.layer.inputs)
    reason = problem(match.layer, inputs, match.tensors["out"])
    if reason is not None:
        raise RejectedError(reason)
    return match


def _binary(kind: BinaryKind, name: str) -> Callable[[Reader, Any], Match]:
    def parser(reader: Reader, root: Any) -> Match:
        out, real, clamp = reader.quantised(root)
        call = reader.need(real, name)
        first, a = reader.activation(call.args[0], "0")
        second, b = reader.activation(call.args[1], "1")
        layer = Binary(name, ("0", "1"), "out", kind, clamp)
        return Match(layer, {"0": first, "1": second, "out": out}, (a, b))

    return parser


_FUNCTIONS = {"sigmoid": Function.SIGMOID, "tanh": Function.TANH}


def _table(name: str, make: Callable[[Reader, Any, Any, Any], tuple[int, ...]]) -> Callable[[Reader, Any], Match]:
    def parser(reader: Reader, root: Any) -> Match:
        out, real, clamp = reader.quantised(root)
        call = reader.need(real, name)
        tensor, variable = reader.activation(call.args[0], "0")
        if tensor.dtype == "int16":
            if name not in _FUNCTIONS:
                raise RejectedError("its tensors are int16; the NPU's tables are for 8 bits")
            return Match(Squash(name, ("0",), "out", _FUNCTIONS[name]), {"0": tensor, "out": out}, (variable,))
        table = make(reader, tensor, out, call)
        low, high = clamp
        layer = Lookup(name, ("0",), "out", tuple(min(max(v, low), high) for v in table))
        return Match(layer, {"0": tensor, "out": out}, (variable,))

    return parser


def _leaky(reader: Reader, tensor: Any, out: Any, call: Any) -> tuple[int, ...]:
    return tables.leaky_relu(tensor, out, float(call.attrs.alpha), reader.arithmetic)


def _hard_swish(reader: Reader, root: Any) -> Match:
    out, real, _ = reader.quantised(root)
    divide = reader.need(real, "divide")
    multiply = reader.need(divide.args[0], "multiply")
    gate = reader.need(multiply.args[1], "clip")
    add = reader.need(gate.args[0], "add")
    constants = (
        reader.scalar(divide.args[1]),
        reader.scalar(add.args[1]),
        number(gate.args[1]),
        number(gate.args[2]),
    )
    if constants != (6.0, 3.0, 0.0, 6.0):
        raise RejectedError(f"its constants {constants} are not those of a hard swish")
    tensor, variable = reader.activation(multiply.args[0], "0")
    layer = Lookup("hard_swish", ("0",), "out", tables.hard_swish(tensor, out, reader.arithmetic))
    return Match(layer, {"0": tensor, "out": out}, (variable,))


def _abs(reader: Reader, root: Any) -> Match:
    out, real, clamp = reader.quantised(root)
    tensor, variable = reader.activation(reader.need(real, "abs").args[0], "0")
    return Match(Abs("abs", ("0",), "out", clamp), {"0": tensor, "out": out}, (variable,))


def _softmax(reader: Reader, root: Any) -> Match:
    out, real, _ = reader.quantised(root)
    call = reader.need(real, "nn.softmax")
    tensor, variable = reader.activation(call.args[0], "0")
    if int(call.attrs.axis) % len(tensor.shape) != len(tensor.shape) - 1:
        raise RejectedError(f"it is over axis {int(call.attrs.axis)}, not over the last")
    return Match(Softmax("softmax", ("0",), "out"), {"0": tensor, "out": out}, (variable,))


def _requantize(reader: Reader, root: Any) -> Match:
    out, real, clamp = reader.quantised(root)
    tensor, variable = reader.activation(real, "0")
    if variable is None:
        raise RejectedError("it only changes a constant")
    return Match(Requantize("requantize", ("0",), "out", clamp), {"0": tensor, "out": out}, (variable,))


def _concat(reader: Reader, root: Any) -> Match:
    call = reader.call(root, "concat")
    tensors = {}
    variables = []
    if call is None:
        out, real, _ = reader.quantised(root)
        call = reader.need(real, "concat")
        for index, field in enumerate(_fields(reader, call.args[0])):
            tensors[str(index)], variable = reader.activation(field, str(index))
            variables.append(variable)
    else:
        out = plain(call, "out")
        for index, field in enumerate(_fields(reader, call.args[0])):
            tensors[str(index)] = plain(field, str(index))
            variables.append(field)
    if not all(isinstance(v, relax.Var) for v in variables):
        raise RejectedError("it concatenates constants")
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    layer = Concat("concat", tuple(tensors), "out", axis)
    return Match(layer, {**tensors, "out": out}, tuple(variables))


def _fields(reader: Reader, expression: Any) -> list[Any]:
    found = reader.value(expression)
    if not isinstance(found, relax.Tuple):
        raise RejectedError("it concatenates a tuple that is not written out")
    return list(found.fields)


def _squared_difference(reader: Reader, root: Any) -> Match:
    if reader.arithmetic is Arithmetic.REAL:
        raise RejectedError("the NPU's operands have too few bits for a squared difference that is rounded once")
    out, real, clamp = reader.quantised(root)
    call = reader.need(reader.need(real, "multiply").args[0], "subtract")
    first, a = reader.activation(call.args[0], "0")
    second, b = reader.activation(call.args[1], "1")
    layer = Binary("squared_difference", ("0", "1"), "out", BinaryKind.SQUARED_DIFFERENCE, clamp)
    return Match(layer, {"0": first, "1": second, "out": out}, (a, b))


def _prelu(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    (data, x), (slopes, alpha) = call.activation("input", "0"), call.operand("alpha", "1")
    return Match(Prelu("prelu", ("0", "1"), "out"), {"0": data, "1": slopes, "out": call.output()}, (x, alpha))


def _resize_nearest(reader: Reader, root: Any) -> Match:
    call, tensor, out = _move(reader, root, "image.resize2d")
    if str(call.attrs.method) != "nearest_neighbor":
        raise RejectedError(f"it resizes stored values by method {call.attrs.method}")
    return Match(resize_layer(call, tensor, out), {"0": tensor, "out": out}, (call.args[0],))


def _resize_bilinear(reader: Reader, root: Any) -> Match:
    out, real, _ = reader.quantised(root)
    call = reader.need(real, "image.resize2d")
    tensor, variable = reader.activation(call.args[0], "0")
    if (tensor.scale, tensor.zero_point) != (out.scale, out.zero_point):
        raise RejectedError("its input and output have different scales")
    return Match(resize_layer(call, tensor, out), {"0": tensor, "out": out}, (variable,))


def _move(reader: Reader, root: Any, *names: str) -> tuple[Any, Any, Any]:
    call = reader.need(root, *names)
    if not isinstance(call.args[0], relax.Var):
        raise RejectedError("it moves a constant")
    return call, plain(call.args[0], "0"), plain(call, "out")


def _reshape(reader: Reader, root: Any) -> Match:
    call, tensor, out = _move(reader, root, "reshape", "expand_dims", "squeeze")
    return Match(Reshape("reshape", ("0",), "out"), {"0": tensor, "out": out}, (call.args[0],))


def _transpose(reader: Reader, root: Any) -> Match:
    call, tensor, out = _move(reader, root, "permute_dims")
    rank = len(tensor.shape)
    axes = tuple(range(rank))[::-1] if call.attrs.axes is None else tuple(int(a) % rank for a in call.attrs.axes)
    layer = Transpose("transpose", ("0",), "out", axes)
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


def _slice(reader: Reader, root: Any) -> Match:
    call, tensor, out = _move(reader, root, "strided_slice")
    rank = len(tensor.shape)
    axes, begins, _ends, *steps = (
        [int(number(v)) for v in _fields(reader, a)] for a in call.args[1:] if not _absent(reader, a)
    )
    begin, step = [0] * rank, [1] * rank
    for position, axis in enumerate(axes):
        extent = tensor.shape[axis]
        start = begins[position] + (extent if begins[position] < 0 else 0)
        begin[axis] = min(max(start, 0), extent)
        step[axis] = steps[0][position] if steps else 1
    if any(s < 1 for s in step):
        raise RejectedError("it runs backwards")
    if step[-1] != 1:
        raise RejectedError(f"it steps by {step[-1]} through the channels")
    layer = Slice("slice", ("0",), "out", tuple(begin), tuple(step))
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


def _absent(reader: Reader, argument: Any) -> bool:
    return not isinstance(reader.value(argument), relax.Tuple)


def _pad(reader: Reader, root: Any) -> Match:
    call, tensor, out = _move(reader, root, "nn.pad")
    widths = [int(w) for w in call.attrs.pad_width]
    if len(tensor.shape) != 4 or any(widths[:2]) or any(widths[6:]):
        raise RejectedError(f"it pads {widths} in front of and behind each dimension; only height and width fit")
    if str(call.attrs.pad_mode) != "constant":
        raise RejectedError(f"its mode is {call.attrs.pad_mode}; only constant padding fits the NPU")
    padding = Padding(widths[2], widths[4], widths[3], widths[5])
    value = int(float(call.attrs.pad_value))
    return Match(Pad("pad", ("0",), "out", padding, value), {"0": tensor, "out": out}, (call.args[0],))


_PARSERS: dict[str, Callable[[Reader, Any], Match]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "requantize": _requantize,
    "resize_nearest": _resize_nearest,
    "resize_bilinear": _resize_bilinear,
    "concat": _concat,
    "sigmoid": _table("sigmoid", lambda _, a, b, call: tables.sigmoid(a, b)),
    "tanh": _table("tanh", lambda _, a, b, call: tables.tanh(a, b)),
    "rsqrt": _table("rsqrt", lambda reader, a, b, _: tables.rsqrt(a, b, reader.arithmetic)),
    "exp": _table("exp", lambda _, a, b, call: tables.exponential(a, b)),
    "leaky_relu": _table("nn.leakyrelu", _leaky),
    "abs": _abs,
    "softmax": _softmax,
    "mean": windows.reduction("mean", PoolKind.MEAN),
    "sum": windows.reduction("sum", PoolKind.SUM),
    "reduce_max": windows.reduction("max", PoolKind.MAX),
    "hard_swish": _hard_swish,
    "max_pool": windows.parse_max_pool,
    "average_pool": windows.parse_average_pool,
    "real_average_pool": windows.parse_real_average_pool,
    "maximum": _binary(BinaryKind.MAX, "maximum"),
    "minimum": _binary(BinaryKind.MIN, "minimum"),
    "multiply": _binary(BinaryKind.MUL, "multiply"),
    "subtract": _binary(BinaryKind.SUB, "subtract"),
    "add": _binary(BinaryKind.ADD, "add"),
    "squared_difference": _squared_difference,
    "prelu": _prelu,
    "fully_connected": windows.parse_fully_connected,
    "conv2d": windows.parse_conv2d,
    "transpose_conv": windows.parse_transpose_conv,
    "sequence_lstm": recurrent.parse_sequence_lstm,
}
