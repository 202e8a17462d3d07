"""The layers of each operator of a TFLite network: its numbers are read here, once.

Invariant: a layer computes what its operator does in TFLite's reference, to the last bit; what no layer computes is
refused with the reason, and is left to exact host code. Tensors of layers are those of the file, by unique names, each
with its own scale; only what an operator has between its layers has other names. Operators that no function here reads
are read by what their host code says of itself (`host_ops`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ethosu.arch import Architecture
from ...ethosu.layers import DESCRIBED
from ...ethosu.layers.activation import LeakyRelu, Lookup, Requantize, Squash, litert_scale
from ...ethosu.layers.elementwise import Abs, Binary, SquaredDifference, comparison, comparison_order
from ...ethosu.layers.matrix import INTERLEAVED, Conv, FullyConnected, transposed_padding
from ...ethosu.layers.movement import ChannelGather, Concat, Pad, Reshape, Slice, Transpose
from ...ethosu.layers.pool import PoolKind, PoolLayer, reduction
from ...ethosu.layers.resize import resize
from ...ethosu.layers.softmax import Softmax
from ...ethosu.lower import tables
from ...ethosu.lower.layer import Layer
from ...ethosu.lower.operands import NO_PADDING, Arithmetic, LayerTensor, Padding
from ...ethosu.lower.scaling import float32_value
from ...ethosu.reading.reader import DescribedCall, LayerPart, RejectedError, require_fit, stride_of
from ...ethosu.stream.isa import ActivationFunction, ElementwiseMode
from ...fixed_point import ScaleError, activation_range
from ...models.network import CpuOperator, Network
from ...models.operators.shapes import ShapeError, options_of
from ...models.tensor import Tensor
from ..host_ops import UnsupportedOperatorError, lower_operator

NO_LAYER = "no NPU layer computes it"
_RELU, _RELU_N1_TO_1, _RELU6 = 1, 2, 3  # activations of the schema
_TFLITE = Arithmetic.TFLITE
Clamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class OperatorReader:
    """One operator of a network, and what its tensors are called."""

    network: Network
    operator: CpuOperator
    names: Mapping[int, str]  # of tensors, by index

    def tensor(self, place: int) -> Tensor:
        """The tensor of an input."""
        inputs = self.operator.inputs
        if place >= len(inputs) or inputs[place] < 0:
            raise RejectedError(f"it has no input {place}")
        return self.network.tensors[inputs[place]]

    def has_input(self, place: int) -> bool:
        """Whether there is an input."""
        return place < len(self.operator.inputs) and self.operator.inputs[place] >= 0

    def options(self, kind: str) -> Any:
        """The options of the operator."""
        return options_of(self.operator, kind)

    def constant(self, place: int) -> NDArray[Any]:
        """The values of a constant input."""
        tensor = self.tensor(place)
        if tensor.data is None or tensor.is_variable:
            raise RejectedError(f"its input {place} is no constant")
        return tensor.array()

    def numbers(self, place: int) -> list[int]:
        """The same as integers."""
        return [int(value) for value in self.constant(place).reshape(-1)]

    def operand(self, place: int) -> LayerTensor:
        """An input, which may be a constant."""
        return self._layer_tensor(self.tensor(place))

    def activation(self, place: int = 0) -> LayerTensor:
        """An input that is no constant."""
        tensor = self.operand(place)
        if tensor.data is not None:
            raise RejectedError("it only changes a constant")
        return tensor

    def real_input(self, place: int = 0) -> LayerTensor:
        """An input, whose stored values mean real numbers."""
        return self._as_real(self.tensor(place))

    def output(self, number: int = 0) -> LayerTensor:
        """What it makes."""
        return self._layer_tensor(self.network.tensors[self.operator.outputs[number]])

    def real_output(self) -> LayerTensor:
        """What it makes, whose stored values mean real numbers."""
        return self._as_real(self.network.tensors[self.operator.outputs[0]])

    def inner_tensor(self, shape: tuple[int, ...], like: LayerTensor, label: str) -> LayerTensor:
        """A tensor between two layers of the operator."""
        return replace(like, name=f"{self.names[self.operator.outputs[0]]}_{label}", shape=shape, data=None)

    def _as_real(self, tensor: Tensor) -> LayerTensor:
        if len(tensor.scales) != 1:
            raise RejectedError("the quantisation of an activation is not one constant scale and zero point")
        return self._layer_tensor(tensor)

    def _layer_tensor(self, tensor: Tensor) -> LayerTensor:
        shape = tensor.shape or (1,)
        data = None if tensor.data is None or tensor.is_variable else tensor.array().reshape(shape)
        scale = tensor.scale if tensor.scales else 1.0
        return LayerTensor(self.names[tensor.index], shape, tensor.dtype, scale, tensor.zero_point, data)

    def parameter_tensor(self, place: str, tensor: Tensor | None, values: NDArray[Any] | None) -> LayerTensor:
        """A parameter of host code."""
        if tensor is None:
            assert values is not None
            return LayerTensor(f"{self.names[self.operator.outputs[0]]}_{place}", values.shape, values.dtype.name, 0.0,
                               0, values)  # fmt: skip
        return replace(self._layer_tensor(tensor), scale=tensor.scale, data=values)


Read = Callable[[OperatorReader], list[LayerPart]]


def read_operator(reader: OperatorReader, target: Architecture) -> list[LayerPart]:
    """The layers of an operator that `target` computes; `RejectedError` says why there are none."""
    read, reason = READERS.get(reader.operator.name), NO_LAYER
    try:
        if read is not None:
            return _require_fits(read(reader), target)
    except (RejectedError, ScaleError, ShapeError) as error:
        reason = str(error)
    described = _read_description(reader)
    if described is None:
        raise RejectedError(reason)
    return _require_fits([described], target)


def _require_fits(parts: list[LayerPart], target: Architecture) -> list[LayerPart]:
    for part in parts:
        output = part.output
        if isinstance(part.layer, PoolLayer) and not part.layer.reduces:  # a scale that differs in its last bits
            output = replace(output, scale=math.nan)
        require_fit(part.layer, part.inputs, output, target)
    return parts


def _read_description(reader: OperatorReader) -> LayerPart | None:
    """The layer that is the same as an operator's host code, which has to say what it does."""
    try:
        found = lower_operator(reader.network, reader.operator).description
    except UnsupportedOperatorError:
        return None
    if found is None:
        return None
    tensors = {name: reader.parameter_tensor(name, *given) for name, given in found.parameters.items()}
    try:
        return DESCRIBED[found.kind].parse(DescribedCall(found.numbers, tensors))
    except ScaleError as error:
        raise RejectedError(str(error)) from error


# ---------------------------------------------------------------------- sums of products


def _limits(activation: int, out: LayerTensor) -> Clamp:
    """The stored values inside of a fused activation."""
    if activation not in (0, _RELU, _RELU_N1_TO_1, _RELU6):
        raise RejectedError("its fused activation has no limits of stored values")
    return activation_range(activation, out.scale, out.zero_point, out.dtype)


def _weights(reader: OperatorReader, place: int, axis: int) -> tuple[NDArray[np.int16], dict[str, Any]]:
    """Constant weights without their zero points, whose channels are along `axis`, and the scales of these."""
    tensor, values = reader.tensor(place), reader.constant(place)
    if tensor.dtype not in ("int8", "uint8") or not tensor.scales:
        raise RejectedError(f"its weights are {tensor.dtype}, not quantised to 8 bits")
    if len(tensor.scales) > 1 and tensor.quantised_dimension % len(tensor.shape) != axis:
        raise RejectedError(f"its weights have scales along dimension {tensor.quantised_dimension}, not {axis}")
    zeros = np.array(tensor.zero_points or (0,), np.int16)
    if zeros.size > 1:
        zeros = zeros.reshape([-1 if i == axis else 1 for i in range(values.ndim)])
    scales = tensor.scales[:1] if len(set(tensor.scales)) == 1 else tensor.scales
    return values.astype(np.int16) - zeros, {"weight_scales": scales}


def _sum_fields(
    reader: OperatorReader, data: LayerTensor, out: LayerTensor, bias: int, activation: int
) -> dict[str, Any]:
    """What every sum of products has: its bias, its limits, and whether TFLite accumulates 64 bits."""
    added = reader.constant(bias).reshape(-1) if reader.has_input(bias) else np.zeros(out.shape[-1], np.int64)
    wide = data.dtype == "int16" and added.dtype == np.int64  # no bias is one of int64
    return {
        "inputs": (),
        "output": "",
        "bias": added.astype(np.int64),
        "wide": wide,
        "clamp": _limits(activation, out),
    }


def _padding(options: Any, sizes: Sequence[int], made: Sequence[int], kernel: Sequence[int],
             dilation: tuple[int, int] = (1, 1)) -> Padding:  # fmt: skip
    """Rows and columns around an image, along which `made` windows lie."""
    if options.Padding() != 0:  # VALID
        return NO_PADDING
    sides = []
    steps = (options.StrideH(), options.StrideW())
    for size, count, taps, step, apart in zip(sizes, made, kernel, steps, dilation, strict=True):
        total = max((count - 1) * step + (taps - 1) * apart + 1 - size, 0)
        sides.append((total // 2, total - total // 2))
    (top, bottom), (left, right) = sides
    return Padding(top, left, bottom, right)


def _convolution(reader: OperatorReader) -> list[LayerPart]:
    depthwise = reader.operator.name == "DEPTHWISE_CONV_2D"
    options = reader.options("DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
    data, out = reader.real_input(), reader.real_output()
    weights, scales = _weights(reader, 1, 3 if depthwise else 0)
    channels = data.shape[-1]
    if depthwise:
        weights, groups = weights[0].transpose(2, 0, 1)[..., None], channels
    else:
        groups = channels // weights.shape[3]
    if groups not in (1, channels):
        raise RejectedError(f"it is a convolution in {groups} groups over {channels} channels")
    dilation, kernel = (options.DilationHFactor(), options.DilationWFactor()), weights.shape[1:3]
    layer = Conv(
        "conv2d",
        weights=np.ascontiguousarray(weights),
        stride=stride_of((options.StrideH(), options.StrideW()), out),
        dilation=dilation,
        padding=_padding(options, data.shape[1:3], out.shape[1:3], kernel, dilation),
        depthwise=groups > 1,
        **scales,
        **_sum_fields(reader, data, out, 2, options.FusedActivationFunction()),
    )
    return [LayerPart.for_layer(layer, out, data)]


def _transposed_convolution(reader: OperatorReader) -> list[LayerPart]:
    """The NPU interleaves zeros, for stride 2, and convolves with the mirrored kernel."""
    options = reader.options("TransposeConvOptions")
    data, out = reader.real_input(2), reader.real_output()
    weights, scales = _weights(reader, 1, 0)
    stride = (options.StrideH(), options.StrideW())
    if stride not in INTERLEAVED:
        raise RejectedError("only transpose convolutions with stride 1x1 or 2x2, one group and no dilation fit the NPU")
    kernel = (weights.shape[1], weights.shape[2])
    seen = tuple(step * extent for step, extent in zip(stride, data.shape[1:3], strict=True))
    own = _padding(options, out.shape[1:3], data.shape[1:3], kernel)
    layer = Conv(
        "transpose_conv",
        weights=np.ascontiguousarray(weights[:, ::-1, ::-1, :]),
        padding=transposed_padding(own, kernel, seen, out.shape[1:3]),
        upscale=INTERLEAVED[stride],
        **scales,
        **_sum_fields(reader, data, out, 3, options.FusedActivationFunction()),
    )
    return [LayerPart.for_layer(layer, out, data)]


def _fully_connected(reader: OperatorReader) -> list[LayerPart]:
    """Products of rows, as which the input is seen whatever its rank."""
    options = reader.options("FullyConnectedOptions")
    if options.WeightsFormat():
        raise RejectedError("its weights are shuffled")
    data, out = reader.real_input(), reader.real_output()
    weights, scales = _weights(reader, 1, 0)
    units, depth = weights.shape
    rows = math.prod(data.shape) // depth
    layer = FullyConnected(
        "fully_connected",
        weights=weights.reshape(units, 1, 1, depth),
        **scales,
        **_sum_fields(reader, data, replace(out, shape=(rows, units)), 2, options.FusedActivationFunction()),
    )
    parts, made = [], out if out.shape == (rows, units) else reader.inner_tensor((rows, units), out, "rows")
    if data.shape != (rows, depth) and (len(data.shape) > 2 or data.shape[-1] != depth):
        seen = reader.inner_tensor((rows, depth), data, "input")
        parts.append(LayerPart.for_layer(Reshape("reshape", (), ""), seen, data))
        data = seen
    parts.append(LayerPart.for_layer(layer, made, data))
    if made is not out:
        parts.append(LayerPart.for_layer(Reshape("reshape", (), ""), out, made))
    return parts


# ---------------------------------------------------------------------- windows


def _pool(kind: PoolKind, reader: OperatorReader) -> list[LayerPart]:
    options = reader.options("Pool2DOptions")
    data, out = reader.operand(0), reader.output()
    kernel = (options.FilterHeight(), options.FilterWidth())
    if out.dtype not in ("int8", "uint8", "int16"):
        raise RejectedError(f"its tensor of type {out.dtype} is not quantised")
    layer = PoolLayer(
        kind.value,
        (),
        "",
        kind,
        kernel,
        _limits(options.FusedActivationFunction(), out),
        stride_of((options.StrideH(), options.StrideW()), out),
        _padding(options, data.shape[1:3], out.shape[1:3], kernel),
    )
    return [LayerPart.for_layer(layer, out, data)]


def _reduction(name: str, kind: PoolKind, reader: OperatorReader) -> list[LayerPart]:
    data, out = reader.real_input(), reader.real_output()
    layer = reduction(name, kind, data.shape, reader.numbers(1), out.limits)
    if kind in (PoolKind.MAX, PoolKind.MIN) and data.has_other_scale(out):
        raise RejectedError("its input and output have different scales")
    return [LayerPart.for_layer(layer, out, data)]


# ---------------------------------------------------------------------- element by element


def _unary(name: str, make: Callable[[LayerTensor, LayerTensor], Layer], reader: OperatorReader) -> list[LayerPart]:
    data, out = reader.real_input(), reader.real_output()
    if data.data is not None:
        raise RejectedError("it only changes a constant")
    return [LayerPart.for_layer(make(data, out), out, data)]


def _table(
    name: str, make: Callable[[LayerTensor, LayerTensor], tuple[int, ...]], reader: OperatorReader
) -> list[LayerPart]:
    """A function of one value, by a table of those of 8 bits."""

    def layer(data: LayerTensor, out: LayerTensor) -> Layer:
        if data.dtype != "int16":
            low, high = out.limits
            return Lookup(name, (), "", tuple(min(max(value, low), high) for value in make(data, out)))
        if name not in _SQUASHING:
            raise RejectedError("its tensors are int16; the NPU's tables are for 8 bits")
        return Squash(name, (), "", _SQUASHING[name])

    return _unary(name, layer, reader)


_SQUASHING = {"sigmoid": ActivationFunction.SIGMOID, "tanh": ActivationFunction.TANH}


def _leaky_relu(reader: OperatorReader) -> list[LayerPart]:
    slope = float(reader.options("LeakyReluOptions").Alpha())
    if reader.tensor(0).dtype == "int16":
        return _unary("leaky_relu", lambda _, __: LeakyRelu("leaky_relu", (), "", slope), reader)
    return _table("leaky_relu", lambda data, out: tables.leaky_relu(data, out, slope, _TFLITE), reader)


def _requantize(activation: int, reader: OperatorReader) -> list[LayerPart]:
    """Another scale, inside of limits; LiteRT has the reference of limits other than RELU's, and of RELU of uint8."""

    def layer(data: LayerTensor, out: LayerTensor) -> Layer:
        of_litert = activation > _RELU or (activation == _RELU and out.dtype == "uint8")
        stated = litert_scale(data, out) if of_litert else None
        return Requantize("requantize", (), "", _limits(activation, out), stated)

    return _unary("requantize", layer, reader)


def _softmax(reader: OperatorReader) -> list[LayerPart]:
    beta = float32_value(reader.options("SoftmaxOptions").Beta())
    return _unary("softmax", lambda _, __: Softmax("softmax", (), "", beta), reader)


def _activation_of(reader: OperatorReader, kind: str) -> int:
    """The fused activation, which files without options do not have."""
    found = reader.operator.options(kind) if kind else None
    return 0 if found is None else int(found.FusedActivationFunction())


def _binary(name: str, mode: ElementwiseMode, options: str, reader: OperatorReader) -> list[LayerPart]:
    out = reader.real_output()
    layer = Binary(name, (), "", _limits(_activation_of(reader, options), out), mode)
    return [LayerPart.for_layer(layer, out, reader.real_input(0), reader.real_input(1))]


def _squared_difference(reader: OperatorReader) -> list[LayerPart]:
    out = reader.real_output()
    layer = SquaredDifference("squared_difference", (), "", out.limits)
    return [LayerPart.for_layer(layer, out, reader.real_input(0), reader.real_input(1))]


def _comparison(reader: OperatorReader) -> list[LayerPart]:
    name = reader.operator.name.lower()
    first, second = comparison_order(name, (reader.real_input(0), reader.real_input(1)))
    return [LayerPart.for_layer(comparison(name, first, second), reader.output(), first, second)]


# ---------------------------------------------------------------------- moves


def _reshape(reader: OperatorReader) -> list[LayerPart]:
    return [LayerPart.for_layer(Reshape("reshape", (), ""), reader.output(), reader.activation())]


def _transpose(reader: OperatorReader) -> list[LayerPart]:
    data = reader.activation()
    axes = tuple(axis % len(data.shape) for axis in reader.numbers(1))
    return [LayerPart.for_layer(Transpose("transpose", (), "", axes), reader.output(), data)]


def _box(data: LayerTensor, begin: Sequence[int], out: LayerTensor, step: Sequence[int] = ()) -> LayerPart:
    """A box of the input; all of it is another shape."""
    if tuple(out.shape) == tuple(data.shape):
        return LayerPart.for_layer(Reshape("reshape", (), ""), out, data)
    return LayerPart.for_layer(Slice("slice", (), "", tuple(begin), tuple(step or (1,) * len(begin))), out, data)


def _slice(reader: OperatorReader) -> list[LayerPart]:
    return [_box(reader.activation(), reader.numbers(1), reader.output())]


def _strided_slice(reader: OperatorReader) -> list[LayerPart]:
    options, data, out = reader.options("StridedSliceOptions"), reader.activation(), reader.output()
    if options.Offset():
        raise RejectedError("its ends count from its begins")
    bounds = list(zip(*(reader.numbers(place) for place in (1, 2, 3)), strict=True))
    whole, new = options.EllipsisMask(), options.NewAxisMask() & ~options.EllipsisMask()
    named = sum(not (new | whole) >> bit & 1 for bit in range(len(bounds)))
    begin, step, shape = list[int](), list[int](), list[int]()
    for bit, (first, last, stride) in enumerate(bounds):
        axis = len(begin)
        if whole >> bit & 1:
            left = len(data.shape) - axis - named
            begin, step, shape = begin + [0] * left, step + [1] * left, shape + list(data.shape[axis : axis + left])
        elif not new >> bit & 1:
            named -= 1
            shrinks, extent = options.ShrinkAxisMask() >> bit & 1, data.shape[axis]
            start = None if options.BeginMask() >> bit & 1 and not shrinks else first
            stop = None if options.EndMask() >> bit & 1 else last
            places = range(first % extent, first % extent + 1) if shrinks else range(
                *slice(start, stop, stride).indices(extent))  # fmt: skip
            if places.step < 1:
                raise RejectedError("it runs backwards")
            begin, step, shape = [*begin, places.start], [*step, places.step], [*shape, len(places)]
    rest = len(data.shape) - len(begin)
    begin, step, shape = begin + [0] * rest, step + [1] * rest, shape + list(data.shape[len(begin) :])
    if step[-1] != 1:
        raise RejectedError(f"it steps by {step[-1]} through the channels")
    if tuple(shape) == out.shape:
        return [_box(data, begin, out, step)]
    cut = reader.inner_tensor(tuple(shape), data, "box")
    return [_box(data, begin, cut, step), LayerPart.for_layer(Reshape("reshape", (), ""), out, cut)]


def _split(place: int, axis: int, reader: OperatorReader) -> list[LayerPart]:
    """A box for each part."""
    data, parts = reader.activation(place), []
    along = reader.numbers(axis)[0] % len(data.shape)
    begin = [0] * len(data.shape)
    for number in range(len(reader.operator.outputs)):
        out = reader.output(number)
        parts.append(_box(data, begin, out))
        begin[along] += out.shape[along]
    return parts


def _unpack(reader: OperatorReader) -> list[LayerPart]:
    """A box for each part, without the axis."""
    data, parts = reader.activation(), []
    axis = reader.options("UnpackOptions").Axis() % len(data.shape)
    shape = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
    for number in range(len(reader.operator.outputs)):
        begin = [number if i == axis else 0 for i in range(len(shape))]
        cut = reader.inner_tensor(shape, data, f"part{number}")
        parts.append(_box(data, begin, cut))
        parts.append(LayerPart.for_layer(Reshape("reshape", (), ""), reader.output(number), cut))
    return parts


def _pack(reader: OperatorReader) -> list[LayerPart]:
    """Values side by side along a new axis."""
    out, joined, parts = reader.output(), [], []
    axis = reader.options("PackOptions").Axis() % len(out.shape)
    if len(reader.operator.inputs) == 1:
        return _reshape(reader)
    for place in range(len(reader.operator.inputs)):
        data = reader.activation(place)
        shape = tuple(1 if i == axis else extent for i, extent in enumerate(out.shape))
        joined.append(reader.inner_tensor(shape, data, f"part{place}"))
        parts.append(LayerPart.for_layer(Reshape("reshape", (), ""), joined[-1], data))
    return [*parts, LayerPart.for_layer(Concat("concat", (), "", axis), out, *joined)]


def _concatenation(reader: OperatorReader) -> list[LayerPart]:
    options, out = reader.options("ConcatenationOptions"), reader.output()
    if options.FusedActivationFunction():
        raise RejectedError("it has a fused activation")
    inputs = [reader.operand(place) for place in range(len(reader.operator.inputs))]
    if any(tensor.data is not None for tensor in inputs):
        raise RejectedError("it concatenates constants")
    return [LayerPart.for_layer(Concat("concat", (), "", options.Axis()), out, *inputs)]


def _pad(reader: OperatorReader) -> list[LayerPart]:
    data, out, widths = reader.activation(), reader.output(), reader.numbers(1)
    if len(data.shape) != 4 or any(widths[:2]) or min(widths) < 0:
        raise RejectedError(f"it pads {widths} in front of and behind each dimension; only images fit, not their batch")
    padding = Padding(widths[2], widths[4], widths[3], widths[5])
    value = reader.numbers(2)[0] if reader.has_input(2) else out.zero_point
    return [LayerPart.for_layer(Pad("pad", (), "", padding, value, (widths[6], widths[7])), out, data)]


def _gather(reader: OperatorReader) -> list[LayerPart]:
    options, data, rank = reader.options("GatherOptions"), reader.activation(), len(reader.tensor(0).shape)
    places = reader.constant(1)
    if options.BatchDims() or options.Axis() % rank != rank - 1 or places.ndim != 1:
        raise RejectedError("it gathers other things than channels at constant places")
    if places.size == 0 or places.min() < 0 or places.max() >= data.shape[-1]:
        raise RejectedError(f"its places are not within 0..{data.shape[-1] - 1}")
    layer = ChannelGather("gather", (), "", tuple(int(place) for place in places))
    return [LayerPart.for_layer(layer, reader.output(), data)]


def _resize(kind: str, rounding: str | None, reader: OperatorReader) -> list[LayerPart]:
    options, data, out = reader.options(kind), reader.activation(), reader.output()
    way = "align_corners" if options.AlignCorners() else "asymmetric"
    if options.HalfPixelCenters():
        way = "half_pixel"
        rounding = rounding if rounding is None or options.AlignCorners() else "round_prefer_ceil"
    if rounding is None and data.has_other_scale(out):
        raise RejectedError("its input and output have different scales")
    return [LayerPart.for_layer(resize(data, out, way, rounding), out, data)]


READERS: dict[str, Read] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _convolution),
    "TRANSPOSE_CONV": _transposed_convolution,
    "FULLY_CONNECTED": _fully_connected,
    "AVERAGE_POOL_2D": partial(_pool, PoolKind.AVERAGE),
    "MAX_POOL_2D": partial(_pool, PoolKind.MAX),
    "MEAN": partial(_reduction, "mean", PoolKind.MEAN),
    "SUM": partial(_reduction, "sum", PoolKind.SUM),
    "REDUCE_MAX": partial(_reduction, "max", PoolKind.MAX),
    "REDUCE_MIN": partial(_reduction, "min", PoolKind.MIN),
    "LOGISTIC": partial(_table, "sigmoid", lambda data, out: tables.sigmoid(data, out, _TFLITE)),
    "TANH": partial(_table, "tanh", lambda data, out: tables.tanh(data, out, _TFLITE)),
    "EXP": partial(_table, "exp", lambda data, out: tables.exponential_table(data, out, _TFLITE)),
    "RSQRT": partial(_table, "rsqrt", lambda data, out: tables.rsqrt_table(data, out, _TFLITE)),
    "HARD_SWISH": partial(_table, "hard_swish", lambda data, out: tables.hard_swish(data, out, _TFLITE)),
    "LEAKY_RELU": _leaky_relu,
    "SOFTMAX": _softmax,
    "QUANTIZE": partial(_requantize, 0),
    "RELU": partial(_requantize, _RELU),
    "RELU6": partial(_requantize, _RELU6),
    "RELU_N1_TO_1": partial(_requantize, _RELU_N1_TO_1),
    "ABS": partial(_unary, "abs", lambda _, out: Abs("abs", (), "", out.limits)),
    "ADD": partial(_binary, "add", ElementwiseMode.ADD, "AddOptions"),
    "SUB": partial(_binary, "subtract", ElementwiseMode.SUB, "SubOptions"),
    "MUL": partial(_binary, "multiply", ElementwiseMode.MUL, "MulOptions"),
    "MAXIMUM": partial(_binary, "maximum", ElementwiseMode.MAX, ""),
    "MINIMUM": partial(_binary, "minimum", ElementwiseMode.MIN, ""),
    "SQUARED_DIFFERENCE": _squared_difference,
    **dict.fromkeys(("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"), _comparison),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _reshape),
    "TRANSPOSE": _transpose,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "SPLIT": partial(_split, 1, 0),
    "SPLIT_V": partial(_split, 0, 2),
    "UNPACK": _unpack,
    "PACK": _pack,
    "CONCATENATION": _concatenation,
    **dict.fromkeys(("PAD", "PADV2"), _pad),
    "GATHER": _gather,
    "RESIZE_BILINEAR": partial(_resize, "ResizeBilinearOptions", None),
    "RESIZE_NEAREST_NEIGHBOR": partial(_resize, "ResizeNearestNeighborOptions", ""),
}
