"""Leaky relu of int16, for which the NPU has no tables: both of its parts, each rescaled and clamped, and their sum.

Invariant: one of the two parts is 0, so their sum is the other one, as TFLite's reference rounds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, double, quantise_multiplier
from ..lower.tensors import LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader, RejectedError
from ..stream.isa import ElementwiseMode, PoolMode


@dataclass(frozen=True, slots=True, eq=False)
class LeakyRelu(Layer):
    """x, or `slope` * x below zero; of int16, whose zero point is 0."""

    slope: float

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return None if self.slope >= 0 else f"its slope {self.slope:g} is below zero; scales of the NPU are not"

    def emit(self, context: EmitContext) -> None:
        x, out = (context.tensors[name] for name in (*self.inputs, self.output))
        ifm, ofm, builder = context.operand(x.name), context.operand(out.name), context.builder
        low, high = out.limits
        parts = []
        for name, slope, clamp in (("above", 1.0, (0, high)), ("below", double(self.slope), (low, 0))):
            part = builder.temporary(f"{self.output}_{name}", ofm.view.shape, out.dtype)
            scale = quantise_multiplier(double(x.scale) * slope / double(out.scale))
            builder.pool(PoolMode.AVERAGE, ifm, part, Window(), context.output(clamp, scale))
            parts.append(part)
        unscaled = (1, 1)  # both are in units of the result
        above, below = parts
        builder.elementwise(ElementwiseMode.ADD, above, below, ofm, Output((low, high), UNITY), operand_scales=unscaled)


def _parse(reader: Reader, root: Any) -> Match:
    call, out, _, (source,) = reader.of_real(root, "nn.leakyrelu")
    if source[0].dtype != "int16":
        raise RejectedError("it is of 8 bits, which go by a table")
    return Match.of(LeakyRelu("leaky_relu", ("0",), "out", float(call.attrs.alpha)), out, source)


RECORD = Record((LeakyRelu,), (Composite("leaky_relu_int16", partial(p.unary, "nn.leakyrelu"), _parse),))
