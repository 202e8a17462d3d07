"""Functions of one value: tables, the NPU's own functions, leaky and parametric RELU, other scales and types.

Invariant: a leaky RELU is one of two products, each rounded as TFLite's reference does: their maximum where that is the
right one for every value, else the sum of both, each clamped to its own side of zero. Every intermediate is a number
that TFLite's reference computes too; none of them saturates unless the result does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...fixed_point import divide_scales, multiply_by_quantised
from ..lower import tables
from ..lower.emit import Builder, EmitContext, reshape_operand
from ..lower.layer import ANY_TYPES, Layer, Limits, StorageTraits
from ..lower.operands import INT16, Arithmetic, LayerTensor, Operand, Output, Window
from ..lower.scaling import UNITY, Scale, float32_value, quantise_multiplier, squash_scale
from ..reading import patterns as p
from ..reading.reader import (
    Composite,
    Described,
    DescribedCall,
    LayerPart,
    Match,
    Reader,
    Record,
    RejectedError,
    number,
)
from ..stream.isa import BRICK_CHANNELS, ActivationFunction, ElementwiseMode, PoolMode


@dataclass(frozen=True, slots=True, eq=False)
class Lookup(Layer):
    """Any function of one 8-bit value: `table[q]`, 256 entries from the smallest input value up."""

    table: tuple[int, ...]

    limits: ClassVar[Limits] = Limits(tables=True)

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return None if len(self.table) == 256 else f"its table has {len(self.table)} entries instead of 256"

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits(bricks=(*self.inputs, self.output))

    def emit(self, context: EmitContext) -> None:
        ifm, ofm = context.operand(self.inputs[0], raw=True), context.operand(self.output, raw=True)
        output = Output(context.tensors[self.inputs[0]].limits, UNITY, table=np.array(self.table, np.int64))
        context.builder.pool(PoolMode.AVERAGE, ifm, ofm, Window(), output)


@dataclass(frozen=True, slots=True, eq=False)
class Interpolation(Layer):
    """A function of an int16 value: `lines` are 512 of `slope << 16 | base`, each for 128 values."""

    lines: tuple[int, ...]

    limits: ClassVar[Limits] = Limits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if (inputs[0].dtype, output.dtype) != ("int16", "int16"):
            return f"it interpolates {inputs[0].dtype}; only int16 has lines"
        return None if len(self.lines) == 512 else f"its table has {len(self.lines)} lines instead of 512"

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits(bricks=(*self.inputs, self.output))

    def emit(self, context: EmitContext) -> None:
        ifm, ofm = context.operand(self.inputs[0]), context.operand(self.output)
        output = Output(context.tensors[self.inputs[0]].limits, UNITY, table=np.array(self.lines, np.int64))
        context.builder.pool(PoolMode.AVERAGE, ifm, ofm, Window(), output)


@dataclass(frozen=True, slots=True, eq=False)
class Squash(Layer):
    """Sigmoid or tanh of int16 values, by the NPU's own function."""

    function: ActivationFunction

    limits: ClassVar[Limits] = Limits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if output.scale != 2.0**-15:
            return f"its int16 output has scale {output.scale} instead of 1/32768"
        return None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits(bricks=(*self.inputs, self.output))

    def emit(self, context: EmitContext) -> None:
        ifm, ofm = context.operand(self.inputs[0]), context.operand(self.output)
        scale = squash_scale(context.tensors[self.inputs[0]].scale)
        output = Output(context.tensors[self.output].limits, scale, function=self.function)
        context.builder.pool(PoolMode.AVERAGE, ifm, ofm, Window(), output)


# ---------------------------------------------------------------------- in Relax

_FUNCTIONS = {"sigmoid": ActivationFunction.SIGMOID, "tanh": ActivationFunction.TANH}


_Maker = Callable[[Reader, Any, Any, Any], tuple[int, ...]]  # of a table, from tensors and the call


def _parse(name: str, make: _Maker, reader: Reader, root: Any) -> Match:
    call, out, (low, high), (source,) = reader.of_real(root, name)
    if source[0].dtype == "int16":
        if name not in _FUNCTIONS:
            raise RejectedError("its tensors are int16; the NPU's tables are for 8 bits")
        return Match.for_layer(Squash(name, ("0",), "out", _FUNCTIONS[name]), out, source)
    table = tuple(min(max(v, low), high) for v in make(reader, source[0], out, call))
    return Match.for_layer(Lookup(name, ("0",), "out", table), out, source)


def _function_composite(kind: str, make: _Maker, operator: str | None = None) -> Composite:
    name = operator or kind
    return Composite(kind, partial(p.unary_patterns, name), partial(_parse, name, make))


def _parse_table(call: DescribedCall) -> LayerPart:
    """Host code that looks 8-bit values up in a constant."""
    layer = Lookup("table", ("0",), "out", tuple(int(v) for v in call.constant("table")))
    return LayerPart.for_layer(layer, call.output(), call.activation("input"))


def _leaky_table(reader: Reader, tensor: Any, out: Any, call: Any) -> tuple[int, ...]:
    return tables.leaky_relu(tensor, out, float(call.attrs.alpha), reader.arithmetic)


def _hard_swish_patterns() -> Iterator[p.Pattern]:
    stored = p.anything()  # normalised graphs dequantise it once for each use
    gate = p.clip(p.op("add", p.dequantize(stored), p.constant()))
    yield p.quantize(p.op("divide", p.op("multiply", p.dequantize(stored), gate), p.constant()))


def _hard_swish(reader: Reader, root: Any) -> Match:
    out, real, _ = reader.read_quantised(root)
    divide = reader.need(real, "divide")
    multiply = reader.need(divide.args[0], "multiply")
    gate = reader.need(multiply.args[1], "clip")
    add = reader.need(gate.args[0], "add")
    constants = (reader.scalar(divide.args[1]), reader.scalar(add.args[1]), number(gate.args[1]), number(gate.args[2]))
    if constants != (6.0, 3.0, 0.0, 6.0):
        raise RejectedError(f"its constants {constants} are not those of a hard swish")
    source = reader.activation(multiply.args[0], "0")
    layer = Lookup("hard_swish", ("0",), "out", tables.hard_swish(source[0], out, reader.arithmetic))
    return Match.for_layer(layer, out, source)


ACTIVATION_RECORD = Record(
    (Lookup, Interpolation, Squash),
    (
        _function_composite("sigmoid", lambda reader, ifm, out, _: tables.sigmoid(ifm, out, reader.arithmetic)),
        _function_composite("tanh", lambda reader, ifm, out, _: tables.tanh(ifm, out, reader.arithmetic)),
        _function_composite("exp", lambda reader, ifm, out, _: tables.exponential_table(ifm, out, reader.arithmetic)),
        _function_composite("rsqrt", lambda reader, ifm, out, _: tables.rsqrt_table(ifm, out, reader.arithmetic)),
        _function_composite("leaky_relu", _leaky_table, "nn.leakyrelu"),
        Composite("hard_swish", _hard_swish_patterns, _hard_swish),
        Described("table", _parse_table),
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class LeakyRelu(Layer):
    """x, or `slope` * x below zero; of int16, whose zero point is 0."""

    slope: float

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return None if self.slope >= 0 else f"its slope {self.slope:g} is below zero; scales of the NPU are not"

    def emit(self, context: EmitContext) -> None:
        """Append a maximum of two products, or the sum of two of which one is 0, which takes more cycles."""
        x, out = (context.tensors[name] for name in (*self.inputs, self.output))
        ifm, ofm, builder = context.operand(x.name), context.operand(out.name), context.builder
        low, high = out.limits
        scales = [
            quantise_multiplier(float32_value(x.scale) * slope / float32_value(out.scale))
            for slope in (1, float32_value(self.slope))
        ]
        is_maximum = self.slope <= 1 and _is_maximum(*scales)
        clamps = [(low, high)] * 2 if is_maximum else [(0, high), (low, 0)]
        one, parts = builder.scalar(1, x.dtype), list[Operand]()
        for name, scale, clamp in zip(("above", "below"), scales, clamps, strict=True):
            part = builder.temporary(f"{self.output}_{name}", ofm.view.shape, out.dtype)
            builder.elementwise(ElementwiseMode.MUL, ifm, one, part, context.output(clamp, scale))
            parts.append(part)
        above, below = parts
        mode, unscaled = (ElementwiseMode.MAX, None) if is_maximum else (ElementwiseMode.ADD, (1, 1))  # of equal units
        builder.elementwise(mode, above, below, ofm, Output((low, high), UNITY), operand_scales=unscaled)


def _is_maximum(above: Scale, below: Scale) -> bool:
    """Whether the larger product is the result for every int16; rounding may change the order of close ones."""
    values = np.arange(INT16[0], INT16[1] + 1, dtype=np.int64)
    upper, lower = (multiply_by_quantised(values, scale.multiplier, scale.exponent) for scale in (above, below))
    return bool(np.array_equal(np.maximum(upper, lower), np.where(values < 0, lower, upper)))


def _parse_leaky_relu(reader: Reader, root: Any) -> Match:
    call, out, _, (source,) = reader.of_real(root, "nn.leakyrelu")
    if source[0].dtype != "int16":
        raise RejectedError("it is of 8 bits, which go by a table")
    return Match.for_layer(LeakyRelu("leaky_relu", ("0",), "out", float(call.attrs.alpha)), out, source)


LEAKY_RELU_RECORD = Record(
    (LeakyRelu,), (Composite("leaky_relu_int16", partial(p.unary_patterns, "nn.leakyrelu"), _parse_leaky_relu),)
)


_MAX_WIDTH = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Prelu(Layer):
    """x, or slope * x below zero; the slopes are the second input, broadcast where they are smaller."""

    limits: ClassVar[Limits] = Limits(mixed=frozenset(("int8", "int16")))
    traits: ClassVar[StorageTraits] = StorageTraits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        data, slopes = inputs
        if data.dtype == "uint8":
            return "its tensors are uint8; slopes below zero need int8 or int16"
        if slopes.dtype != data.dtype and slopes.data is None:
            return f"its slopes are {slopes.dtype} and computed, its tensors {data.dtype}"
        if data.hwc != output.hwc or any(s not in (1, n) for s, n in zip(slopes.hwc, output.hwc, strict=True)):
            return f"its slopes {list(slopes.shape)} cannot be broadcast to {list(output.shape)} by the NPU"
        return None

    def emit(self, context: EmitContext) -> None:
        """Positive values rescaled plus negative values times slopes, in place: one of the two is the output's zero."""
        x, slopes, out = (context.tensors[n] for n in (*self.inputs, self.output))
        above = quantise_multiplier(float32_value(x.scale) / float32_value(out.scale))
        below = quantise_multiplier(float32_value(x.scale) * float32_value(slopes.scale) / float32_value(out.scale))
        builder, ifm, ofm = context.builder, context.operand(x.name), context.operand(out.name)
        ifm2, zero, (low, high) = self._slope_operand(context, ofm), out.zero_point, out.limits
        nothing = builder.scalar(ifm.zero_point, x.dtype, ifm.zero_point)
        negative = builder.temporary(f"{self.output}_negative", ofm.view.shape, x.dtype, ifm.zero_point)
        pays = context.for_cycles and ofm.shape.depth >= BRICK_CHANNELS and 2 * ofm.shape.width <= _MAX_WIDTH
        positive, sloped, pairs = (self._side_by_side if pays else self._apart)(builder, ofm)
        builder.pool(PoolMode.AVERAGE, ifm, positive, Window(), Output((zero, high), above))
        builder.elementwise(ElementwiseMode.MIN, ifm, nothing, negative, Output((low, high), UNITY))
        builder.elementwise(ElementwiseMode.MUL, negative, ifm2, sloped, Output((low, high), below))
        if pairs is not None:
            builder.pool(PoolMode.AVERAGE, pairs, ofm, Window((1, 2), (1, 2)), Output((low, high), UNITY))
        else:
            unscaled = (1, 1)  # both are in units of the result
            output = Output((low, high), UNITY)
            builder.elementwise(ElementwiseMode.ADD, positive, sloped, ofm, output, operand_scales=unscaled)

    def _slope_operand(self, context: EmitContext, ofm: Operand) -> Operand:
        """The slope in the type of the values: those of int16 have int8 constants, numbers without a zero point."""
        slopes = context.tensors[self.inputs[1]]
        if slopes.dtype == ofm.dtype:
            return context.second_operand(slopes.name, ofm)
        assert slopes.data is not None
        values = (slopes.data.astype(np.int64) - slopes.zero_point).astype(ofm.dtype)
        view = context.builder.constant_view(values).hwc()
        assert view is not None
        return Operand(view, ofm.dtype)

    def _apart(self, builder: Builder, ofm: Operand) -> tuple[Operand, Operand, None]:
        """Maps of their own for what is positive, and what is negative with slopes."""
        maps = (f"{self.output}_{name}" for name in ("positive", "sloped"))
        positive, sloped = (builder.temporary(name, ofm.view.shape, ofm.dtype, ofm.zero_point) for name in maps)
        return positive, sloped, None

    def _side_by_side(self, builder: Builder, ofm: Operand) -> tuple[Operand, Operand, Operand]:
        """The same in the channels of one map, and that map as pairs of columns, which a pool adds twice as fast."""
        height, width, depth = ofm.view.shape
        both = builder.temporary(f"{self.output}_parts", (height, width, 2 * depth), ofm.dtype, ofm.zero_point)
        halves = [both.view.box((0, 0, first), ofm.view.shape) for first in (0, depth)]
        positive, sloped = (replace(both, view=half) for half in halves if half is not None)
        return positive, sloped, reshape_operand(both, (height, 2 * width, depth))


def _parse_prelu(call: DescribedCall) -> LayerPart:
    inputs = call.activation("input"), call.operand("alpha")
    return LayerPart.for_layer(Prelu("prelu", ("0", "1"), "out"), call.output(), *inputs)


PRELU_RECORD = Record((Prelu,), (Described("prelu", _parse_prelu),))


@dataclass(frozen=True, slots=True, eq=False)
class Requantize(Layer):
    """Other scale and zero point, by one rescale of the NPU."""

    clamp: tuple[int, int]
    stated: Scale | None = None  # None: the tensors' scales say it
    other_type: bool = False  # all that changes is how the same numbers are stored, and its readers read either

    limits: ClassVar[Limits] = Limits(mixed=ANY_TYPES)

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Either layout; the input's bytes where those mean the same."""
        bricks = (*self.inputs, self.output)
        return StorageTraits(bricks=bricks, moves=True, view=lambda x: x) if self.other_type else StorageTraits(bricks)

    def emit(self, context: EmitContext) -> None:
        if self.other_type and self.output not in context.storage.copies:
            return
        if self.stated is None:
            output = context.rescale_output(self.inputs[0], self.output, self.clamp)
        else:
            output = context.output(self.clamp, self.stated)
        ifm, ofm = context.operand(self.inputs[0]), context.operand(self.output)
        context.builder.pool(PoolMode.AVERAGE, ifm, ofm, Window(), output)


def _requantize_patterns() -> Iterator[p.Pattern]:
    yield from p.result_patterns(p.dequantize(p.anything()))


def _parse_requantize(reader: Reader, root: Any) -> Match:
    out, real, clamp = reader.read_quantised(root)
    source = reader.activation(real, "0")
    if source[1] is None:
        raise RejectedError("it only changes a constant")
    stated = litert_scale(source[0], out) if _is_litert_activation(reader, root, out) else None
    return Match.for_layer(Requantize("requantize", ("0",), "out", clamp, stated), out, source)


def _is_litert_activation(reader: Reader, root: Any, out: LayerTensor) -> bool:
    """Whether LiteRT has the reference: of limits other than RELU's, and of RELU of uint8."""
    result, _ = reader.read_clipped(root, "quantize")
    limited = reader.call(root, "clip") is not None or reader.call(result.args[0], "clip") is not None
    rectified = reader.call(result.args[0], "nn.relu") is not None
    return reader.arithmetic is Arithmetic.TFLITE and (limited or (rectified and out.dtype == "uint8"))


def litert_scale(source: LayerTensor, out: LayerTensor) -> Scale:
    return quantise_multiplier(divide_scales(float32_value(source.scale), float32_value(out.scale), single=True))


REQUANTIZE_RECORD = Record((Requantize,), (Composite("requantize", _requantize_patterns, _parse_requantize),))
