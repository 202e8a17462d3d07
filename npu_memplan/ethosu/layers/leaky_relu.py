"""Leaky relu of int16, for which the NPU has no tables: the product below zero and that above it, put together.

Invariant: the result is one of both products, each as TFLite's reference rounds it: their maximum where that is the one
of the right side for every value, else the sum of what is left when each side is clamped to its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...fixed_point.multiplier import multiply_by_quantised
from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand, Output
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, Scale, double, quantise_multiplier
from ..lower.tensors import INT16, LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader, RejectedError
from ..stream.isa import ElementwiseMode


@dataclass(frozen=True, slots=True, eq=False)
class LeakyRelu(Layer):
    """x, or `slope` * x below zero; of int16, whose zero point is 0."""

    slope: float

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return None if self.slope >= 0 else f"its slope {self.slope:g} is below zero; scales of the NPU are not"

    def emit(self, context: EmitContext) -> None:
        """A maximum takes as many cycles as the memory; a sum, of which one part has to be 0, some more."""
        x, out = (context.tensors[name] for name in (*self.inputs, self.output))
        ifm, ofm, builder = context.operand(x.name), context.operand(out.name), context.builder
        low, high = out.limits
        scales = [quantise_multiplier(double(x.scale) * slope / double(out.scale)) for slope in (1, double(self.slope))]
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
    """Whether the larger of both products is the result, for every int16: roundings may turn close ones round."""
    values = np.arange(INT16[0], INT16[1] + 1, dtype=np.int64)
    upper, lower = (multiply_by_quantised(values, scale.multiplier, scale.exponent) for scale in (above, below))
    return bool(np.array_equal(np.maximum(upper, lower), np.where(values < 0, lower, upper)))


def _parse(reader: Reader, root: Any) -> Match:
    call, out, _, (source,) = reader.of_real(root, "nn.leakyrelu")
    if source[0].dtype != "int16":
        raise RejectedError("it is of 8 bits, which go by a table")
    return Match.of(LeakyRelu("leaky_relu", ("0",), "out", float(call.attrs.alpha)), out, source)


RECORD = Record((LeakyRelu,), (Composite("leaky_relu_int16", partial(p.unary, "nn.leakyrelu"), _parse),))
