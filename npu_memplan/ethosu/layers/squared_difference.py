"""(a - b) * (a - b), int8 and int16, in several operations.

Invariant: every intermediate is a number that TFLite's reference computes too; none of them saturates unless the
result does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...fixed_point.multiplier import multiply_by_quantised
from ..lower.emit_context import EmitContext
from ..lower.operands import Operand, Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, Scale, double, quantise_multiplier
from ..lower.tensors import INT16, INT32, Arithmetic, LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader, RejectedError
from ..stream.isa import ElementwiseMode, PoolMode
from .elementwise import OfTwo

_FRACTION_BITS = 7  # of the operands of TFLite's squared difference
_UNSCALED = (1, 1)  # operand scales of a difference of equal units


@dataclass(frozen=True, slots=True, eq=False)
class SquaredDifference(OfTwo):
    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if (unfit := OfTwo.unsupported_reason(self, inputs, output)) is not None:
            return unfit
        return "its tensors are uint8; squares of differences need int8 or int16" if output.dtype == "uint8" else None

    def emit(self, context: EmitContext) -> None:
        """Both operands in units of twice the larger scale, or 1/128 of that, subtracted, multiplied by itself.

        A difference of int16 may have 17 bits.
        """
        first, second, ifm, ifm2, ofm, _ = self._operands(context)
        result, builder = context.tensors[self.output], context.builder
        twice = 2 * max(double(first.scale), double(second.scale))
        a = self._with_fraction(context, "a", ifm, first, quantise_multiplier(double(first.scale) / twice))
        b = self._with_fraction(context, "b", ifm2, second, quantise_multiplier(double(second.scale) / twice))
        wide = result.dtype == "int16"
        limits, dtype, fraction = (INT32, "int32", 0) if wide else (INT16, "int16", _FRACTION_BITS)
        difference = builder.temporary(f"{self.output}_difference", ofm.view.shape, dtype)
        builder.elementwise(ElementwiseMode.SUB, a, b, difference, Output(limits, UNITY), operand_scales=_UNSCALED)
        square = quantise_multiplier(twice * twice / ((1 << 2 * fraction) * double(result.scale)))
        output = Output(self.clamp, square)
        if wide:  # a product of int32 has no scale but a shift
            product = builder.temporary(f"{self.output}_product", ofm.view.shape, dtype)
            builder.elementwise(ElementwiseMode.MUL, difference, difference, product, Output(INT32, UNITY))
            nothing = builder.scalar(0, dtype)
            builder.elementwise(ElementwiseMode.ADD, product, nothing, ofm, output, operand_scales=_UNSCALED)
        else:
            builder.elementwise(ElementwiseMode.MUL, difference, difference, ofm, output)

    def _with_fraction(
        self, context: EmitContext, label: str, operand: Operand, tensor: LayerTensor, scale: Scale
    ) -> Operand:
        """`operand * scale` in int16, of int8 with 7 bits of fraction."""
        builder, bits = context.builder, 0 if tensor.dtype == "int16" else _FRACTION_BITS
        if tensor.data is not None:
            values = tensor.data.astype(np.int64) - tensor.zero_point
            scaled = multiply_by_quantised(values << bits, scale.multiplier, scale.exponent)
            view = builder.constant_view(scaled.astype(np.int16).reshape(operand.view.shape))
            return replace(operand, view=view, dtype="int16", zero_point=0, scalar=None)
        result = builder.temporary(f"{self.output}_{label}", operand.view.shape, "int16")
        if not bits:
            builder.pool(PoolMode.AVERAGE, operand, result, Window(), Output(INT16, scale))
        else:
            factor = builder.scalar(127, "int8", -1)  # 128
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
