"""(a - b) * (a - b), 8 bits signed, in several operations.

Invariant: every intermediate is a number that TFLite's reference computes too, in int16; none of them saturates
unless the result does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...fixed_point.multiplier import multiply_by_quantised
from ..lower.emit_context import EmitContext
from ..lower.operands import Operand, Output
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, Scale, double, quantise_multiplier
from ..lower.tensors import INT16, Arithmetic, LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader, RejectedError
from ..stream.isa import ElementwiseMode
from .elementwise import OfTwo

_FRACTION_BITS = 7  # of the operands of TFLite's squared difference
_UNSCALED = (1, 1)  # operand scales of a difference of equal units


@dataclass(frozen=True, slots=True, eq=False)
class SquaredDifference(OfTwo):
    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if (unfit := OfTwo.unsupported_reason(self, inputs, output)) is not None:
            return unfit
        if output.dtype != "int8":
            return f"its tensors are {output.dtype}; squares of differences need int8"
        return None

    def emit(self, context: EmitContext) -> None:
        """Both operands in units of 1/128 of twice the larger scale, subtracted, multiplied by itself."""
        first, second, ifm, ifm2, ofm, _ = self._operands(context)
        result, builder = context.tensors[self.output], context.builder
        twice = 2 * max(double(first.scale), double(second.scale))
        a = self._with_fraction(context, "a", ifm, first, quantise_multiplier(double(first.scale) / twice))
        b = self._with_fraction(context, "b", ifm2, second, quantise_multiplier(double(second.scale) / twice))
        difference = builder.temporary(f"{self.output}_difference", ofm.view.shape, "int16")
        output = Output(INT16, UNITY)
        builder.elementwise(ElementwiseMode.SUB, a, b, difference, output, operand_scales=_UNSCALED)
        square = quantise_multiplier(twice * twice / ((1 << 2 * _FRACTION_BITS) * double(result.scale)))
        builder.elementwise(ElementwiseMode.MUL, difference, difference, ofm, Output(self.clamp, square))

    def _with_fraction(
        self, context: EmitContext, label: str, operand: Operand, tensor: LayerTensor, scale: Scale
    ) -> Operand:
        """`operand * 128 * scale` in int16."""
        builder = context.builder
        if tensor.data is not None:
            values = tensor.data.astype(np.int64) - tensor.zero_point
            scaled = multiply_by_quantised(values << _FRACTION_BITS, scale.multiplier, scale.exponent)
            view = builder.constant_view(scaled.astype(np.int16).reshape(operand.view.shape))
            return replace(operand, view=view, dtype="int16", zero_point=0)
        factor = Operand(builder.constant_view(np.full((1, 1, 1), 127, np.int8)), "int8", -1)  # 128
        result = builder.temporary(f"{self.output}_{label}", operand.view.shape, "int16")
        builder.elementwise(ElementwiseMode.MUL, operand, factor, result, Output(INT16, scale))
        return result


def _patterns() -> Iterator[p.Pattern]:
    difference = p.op("subtract", p.dequantized(p.anything()), p.dequantized(p.anything()))
    yield from p.finished(p.op("multiply", difference, difference))


def _parse(reader: Reader, root: Any) -> Match:
    if reader.arithmetic is Arithmetic.REAL:
        raise RejectedError("the NPU's operands have too few bits for a squared difference that is rounded once")
    out, real, clamp = reader.quantised(root)
    call = reader.need(reader.need(real, "multiply").args[0], "subtract")
    inputs = (reader.activation(call.args[i], str(i)) for i in range(2))
    return Match.of(SquaredDifference("squared_difference", ("0", "1"), "out", clamp), out, *inputs)


RECORD = Record((SquaredDifference,), (Composite("squared_difference", _patterns, _parse),))
