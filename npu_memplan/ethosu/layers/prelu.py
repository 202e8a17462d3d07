"""PReLU, 8 bits signed: x, or slope * x below zero, in several operations.

Invariant: every intermediate is a number that TFLite's reference computes too, in int16; none of them saturates
unless the result does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..lower.emission import Emission
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand, Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, double, quantise_multiplier
from ..lower.tensors import INT8, LayerTensor
from ..reading.described import DescribedCall
from ..reading.patterns import host_call
from ..reading.reader import Match, Reader
from ..stream.isa import ElementwiseMode, PoolMode


@dataclass(frozen=True, slots=True, eq=False)
class Prelu(Layer):
    """x, or slope * x below zero; the slopes are the second input, broadcast where they are smaller."""

    limits: ClassVar[Limits] = Limits()

    def refusal(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        data, slopes = inputs
        if data.dtype != "int8":
            return f"its tensors are {data.dtype}; slopes below zero need int8"
        if data.hwc != output.hwc or any(s not in (1, n) for s, n in zip(slopes.hwc, output.hwc, strict=True)):
            return f"its slopes {list(slopes.shape)} cannot be broadcast to {list(output.shape)} by the NPU"
        return None

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits()

    def emit(self, emission: Emission) -> None:
        """Positive values rescaled plus negative values times slopes: one of the two is the output's zero.

        Both are of the output's type, so each step may lie over what it reads last: one map beside input and output.
        """
        x, slopes, out = (emission.tensors[n] for n in (*self.inputs, self.output))
        above = quantise_multiplier(double(x.scale) / double(out.scale))
        below = quantise_multiplier(double(x.scale) * double(slopes.scale) / double(out.scale))
        builder, ifm, ofm = emission.builder, emission.operand(x.name), emission.operand(out.name)
        ifm2, shape, zero = emission.second(slopes.name, ofm), ofm.view.shape, out.zero_point
        nothing = Operand(builder.constant_view(np.full((1, 1, 1), ifm.zero_point, np.int8)), "int8", ifm.zero_point)
        negative = builder.temporary(f"{self.output}_negative", shape, "int8", ifm.zero_point)
        builder.elementwise(ElementwiseMode.MIN, ifm, nothing, negative, Output(INT8, UNITY))
        sloped = builder.temporary(f"{self.output}_sloped", shape, "int8", zero)
        builder.elementwise(ElementwiseMode.MUL, negative, ifm2, sloped, Output(INT8, below))
        positive = builder.temporary(f"{self.output}_positive", shape, "int8", zero)
        builder.pool(PoolMode.AVERAGE, ifm, positive, Window(), Output((zero, INT8[1]), above))
        unscaled = (1, 1)  # both are in units of the result
        builder.elementwise(ElementwiseMode.ADD, positive, sloped, ofm, Output(INT8, UNITY), operand_scales=unscaled)


def _parse(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    inputs = call.activation("input", "0"), call.operand("alpha", "1")
    return Match.of(Prelu("prelu", ("0", "1"), "out"), call.output(), *inputs)


RECORD = Record((Prelu,), (Composite("prelu", host_call, _parse),))
