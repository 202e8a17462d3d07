"""Functions of one value: tables of 8 bits, and the NPU's own functions of 16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..lower import tables
from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, squash_scale
from ..lower.tensors import LayerTensor
from ..reading import patterns as p
from ..reading.reader import DescribedCall, Match, Reader, RejectedError, number
from ..stream.isa import ActivationFunction, PoolMode


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
    """Any function of one int16 value, in 512 lines of 128 values each: `lines` are `slope << 16 | base`, of 16 bits.

    Value q of line n, q from 0 on, is `base + (slope * q + 64 >> 7)`.
    """

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
        return Match.of(Squash(name, ("0",), "out", _FUNCTIONS[name]), out, source)
    table = tuple(min(max(v, low), high) for v in make(reader, source[0], out, call))
    return Match.of(Lookup(name, ("0",), "out", table), out, source)


def _composite(kind: str, make: _Maker, operator: str | None = None) -> Composite:
    name = operator or kind
    return Composite(kind, partial(p.unary, name), partial(_parse, name, make))


def _parse_table(reader: Reader, root: Any) -> Match:
    """Host code that looks 8-bit values up in a constant."""
    call = DescribedCall(reader, root)
    layer = Lookup("table", ("0",), "out", tuple(int(v) for v in call.constant("table")))
    return Match.of(layer, call.output(), call.activation("input", "0"))


def _leaky(reader: Reader, tensor: Any, out: Any, call: Any) -> tuple[int, ...]:
    return tables.leaky_relu(tensor, out, float(call.attrs.alpha), reader.arithmetic)


def _hard_swish_patterns() -> Iterator[p.Pattern]:
    stored = p.anything()  # normalised graphs dequantise it once for each use
    gate = p.clipped(p.op("add", p.dequantized(stored), p.constant()))
    yield p.quantized(p.op("divide", p.op("multiply", p.dequantized(stored), gate), p.constant()))


def _hard_swish(reader: Reader, root: Any) -> Match:
    out, real, _ = reader.quantised(root)
    divide = reader.need(real, "divide")
    multiply = reader.need(divide.args[0], "multiply")
    gate = reader.need(multiply.args[1], "clip")
    add = reader.need(gate.args[0], "add")
    constants = (reader.scalar(divide.args[1]), reader.scalar(add.args[1]), number(gate.args[1]), number(gate.args[2]))
    if constants != (6.0, 3.0, 0.0, 6.0):
        raise RejectedError(f"its constants {constants} are not those of a hard swish")
    source = reader.activation(multiply.args[0], "0")
    layer = Lookup("hard_swish", ("0",), "out", tables.hard_swish(source[0], out, reader.arithmetic))
    return Match.of(layer, out, source)


RECORD = Record(
    (Lookup, Interpolation, Squash),
    (
        _composite("sigmoid", lambda reader, ifm, out, _: tables.sigmoid(ifm, out, reader.arithmetic)),
        _composite("tanh", lambda reader, ifm, out, _: tables.tanh(ifm, out, reader.arithmetic)),
        _composite("exp", lambda reader, ifm, out, _: tables.exponential(ifm, out, reader.arithmetic)),
        _composite("rsqrt", lambda reader, ifm, out, _: tables.rsqrt(ifm, out, reader.arithmetic)),
        _composite("leaky_relu", _leaky, "nn.leakyrelu"),
        Composite("hard_swish", _hard_swish_patterns, _hard_swish),
        Composite("table", p.host_call, _parse_table),
    ),
)
