"""Elementwise operations of one or two tensors by one NPU operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand, Output
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, AddScales, add_scales, mul_scale
from ..lower.tensors import LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader
from ..stream.isa import ElementwiseMode


@dataclass(frozen=True, slots=True, eq=False)
class Abs(Layer):
    clamp: tuple[int, int]

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits()

    def emit(self, context: EmitContext) -> None:
        output = context.rescaled(self.inputs[0], self.output, self.clamp)
        ifm, ofm = context.operand(self.inputs[0]), context.operand(self.output)
        context.builder.elementwise(ElementwiseMode.ABS, ifm, None, ofm, output)


@dataclass(frozen=True, slots=True, eq=False)
class OfTwo(Layer):
    """Base of the layers of two operands; the second one may be smaller (broadcast) or a constant, or the first."""

    clamp: tuple[int, int]

    limits: ClassVar[Limits] = Limits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        """One operand is in full size and in memory."""
        a, b = inputs
        if all(t.hwc != output.hwc for t in inputs):
            return f"both operands, {list(a.shape)} and {list(b.shape)}, would have to be broadcast"
        if a.data is not None and b.data is not None:
            return "both operands are constants"
        for tensor in inputs:
            if any(mine not in (1, whole) for mine, whole in zip(tensor.hwc, output.hwc, strict=True)):
                return f"its operand {list(tensor.shape)} cannot be broadcast to {list(output.shape)} by the NPU"
            if len(output.shape) == 4 and output.shape[0] != 1 and tensor.hwc != output.hwc:
                return "it broadcasts over a batch that is not 1"
        constant_first = a.data is not None or a.hwc != output.hwc
        if constant_first and b.hwc != output.hwc:
            return "its constant operand is larger than its other operand"
        return None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Either layout, where nothing is broadcast."""
        names = (*self.inputs, self.output)
        same = len({tensors[name].shape for name in names}) == 1
        return StorageTraits(bricks=names if same else ())

    def _operands(self, context: EmitContext) -> tuple[LayerTensor, LayerTensor, Operand, Operand, Operand, bool]:
        """Both tensors and operands with the one in full size first, the result, and whether they changed places."""
        a, b, out = (context.tensors[name] for name in (*self.inputs, self.output))
        swap = a.data is not None or a.hwc != out.hwc  # of unlike ranks too: the NPU broadcasts its second operand only
        if swap:
            a, b = b, a
        ifm, ofm = context.operand(a.name), context.operand(out.name)
        return a, b, ifm, context.second(b.name, ofm), ofm, swap


@dataclass(frozen=True, slots=True, eq=False)
class Binary(OfTwo):
    """Sum, difference, product, minimum or maximum."""

    mode: ElementwiseMode
    stated: AddScales | None = None  # of a product `ofm` alone; None: the tensors' scales say it

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        same = {(t.scale, t.zero_point) for t in (*inputs, output)}
        if (unfit := OfTwo.unsupported_reason(self, inputs, output)) is not None:
            return unfit
        if self.mode in (ElementwiseMode.MIN, ElementwiseMode.MAX) and len(same) > 1:
            return "minimum and maximum need equal scales and zero points"
        return None

    def emit(self, context: EmitContext) -> None:
        a, b, ifm, ifm2, ofm, swap = self._operands(context)
        out, elementwise = context.tensors[self.output], partial(context.builder.elementwise, self.mode, swap=swap)
        if self.mode in (ElementwiseMode.ADD, ElementwiseMode.SUB):
            scales = self.stated or add_scales(a.scale, b.scale, out.scale, ofm.bits)
            after_swap = swap and self.stated is None  # the operands that `scaled` counts
            elementwise(
                ifm,
                ifm2,
                ofm,
                context.output(self.clamp, scales.ofm),
                operand_scales=(scales.operand.register, 0),
                scaled_operand=3 - scales.scaled if after_swap else scales.scaled,
            )
        elif self.mode is ElementwiseMode.MUL:
            scale = (
                self.stated.ofm
                if self.stated
                else mul_scale(a.scale, b.scale, out.scale, ofm.bits, single=out.dtype == "uint8" and not context.real)
            )
            elementwise(ifm, ifm2, ofm, context.output(self.clamp, scale))
        else:
            elementwise(ifm, ifm2, ofm, Output(self.clamp, UNITY))


def _absolute(reader: Reader, root: Any) -> Match:
    _, out, clamp, inputs = reader.of_real(root, "abs")
    return Match.of(Abs("abs", ("0",), "out", clamp), out, *inputs)


def _parse(name: str, mode: ElementwiseMode, reader: Reader, root: Any) -> Match:
    _, out, clamp, inputs = reader.of_real(root, name, 2)
    return Match.of(Binary(name, ("0", "1"), "out", clamp, mode), out, *inputs)


def _composite(name: str, mode: ElementwiseMode) -> Composite:
    return Composite(name, partial(p.of_real, name, 2), partial(_parse, name, mode))


RECORD = Record(
    (Abs, Binary),
    (
        Composite("abs", partial(p.unary, "abs"), _absolute),
        _composite("maximum", ElementwiseMode.MAX),
        _composite("minimum", ElementwiseMode.MIN),
        _composite("multiply", ElementwiseMode.MUL),
        _composite("subtract", ElementwiseMode.SUB),
        _composite("add", ElementwiseMode.ADD),
    ),
)
