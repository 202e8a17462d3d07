"""Elementwise operations of two tensors by one NPU operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, ClassVar

from ..lower.emission import Emission
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand, Output
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, add_scales, mul_scale
from ..lower.tensors import LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader
from ..stream.isa import ElementwiseMode


class BinaryKind(Enum):
    """Elementwise operations of two tensors."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    MIN = "min"
    MAX = "max"


_MODES = {
    BinaryKind.ADD: ElementwiseMode.ADD,
    BinaryKind.SUB: ElementwiseMode.SUB,
    BinaryKind.MUL: ElementwiseMode.MUL,
    BinaryKind.MIN: ElementwiseMode.MIN,
    BinaryKind.MAX: ElementwiseMode.MAX,
}


@dataclass(frozen=True, slots=True, eq=False)
class OfTwo(Layer):
    """Base of the layers of two operands; the second one may be smaller (broadcast) or a constant, or the first."""

    clamp: tuple[int, int]

    limits: ClassVar[Limits] = Limits()

    def refusal(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
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

    def _operands(self, emission: Emission) -> tuple[LayerTensor, LayerTensor, Operand, Operand, Operand, bool]:
        """Both tensors and operands with the one in full size first, the result, and whether they changed places."""
        a, b, out = (emission.tensors[name] for name in (*self.inputs, self.output))
        swap = a.data is not None or (a.shape != out.shape and b.shape == out.shape and a.hwc != out.hwc)
        if swap:
            a, b = b, a
        ifm, ofm = emission.operand(a.name), emission.operand(out.name)
        return a, b, ifm, emission.second(b.name, ofm), ofm, swap


@dataclass(frozen=True, slots=True, eq=False)
class Binary(OfTwo):
    """Sum, difference, product, minimum or maximum."""

    kind: BinaryKind

    def refusal(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        same = {(t.scale, t.zero_point) for t in (*inputs, output)}
        if (unfit := OfTwo.refusal(self, inputs, output)) is not None:
            return unfit
        if self.kind in (BinaryKind.MIN, BinaryKind.MAX) and len(same) > 1:
            return "minimum and maximum need equal scales and zero points"
        return None

    def emit(self, emission: Emission) -> None:
        a, b, ifm, ifm2, ofm, swap = self._operands(emission)
        out, mode, elementwise = emission.tensors[self.output], _MODES[self.kind], emission.builder.elementwise
        if self.kind in (BinaryKind.ADD, BinaryKind.SUB):
            scales = add_scales(a.scale, b.scale, out.scale, ofm.bits)
            elementwise(
                mode,
                ifm,
                ifm2,
                ofm,
                emission.output(self.clamp, scales.ofm),
                operand_scales=(scales.operand.register, 0),
                scaled_operand=3 - scales.scaled if swap else scales.scaled,  # counts operands after the swap
                swap=swap,
            )
        elif self.kind is BinaryKind.MUL:
            output = emission.output(self.clamp, mul_scale(a.scale, b.scale, out.scale))
            elementwise(mode, ifm, ifm2, ofm, output, swap=swap)
        else:
            elementwise(mode, ifm, ifm2, ofm, Output(self.clamp, UNITY), swap=swap)


def _parser(name: str, kind: BinaryKind) -> Callable[[Reader, Any], Match]:
    def parse(reader: Reader, root: Any) -> Match:
        out, real, clamp = reader.quantised(root)
        call = reader.need(real, name)
        first, a = reader.activation(call.args[0], "0")
        second, b = reader.activation(call.args[1], "1")
        layer = Binary(name, ("0", "1"), "out", clamp, kind)
        return Match(layer, {"0": first, "1": second, "out": out}, (a, b))

    return parse


def _composite(name: str, kind: BinaryKind) -> Composite:
    return Composite(name, partial(p.binary, name), _parser(name, kind))


RECORD = Record(
    (Binary,),
    (
        _composite("maximum", BinaryKind.MAX),
        _composite("minimum", BinaryKind.MIN),
        _composite("multiply", BinaryKind.MUL),
        _composite("subtract", BinaryKind.SUB),
        _composite("add", BinaryKind.ADD),
    ),
)
