"""PReLU of int8 and int16: x, or slope * x below zero, in several operations.

Invariant: every intermediate is a number that TFLite's reference computes too; none of them saturates unless the result
does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..lower.emit import Builder
from ..lower.emit_context import EmitContext, reshaped
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand, Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, double, quantise_multiplier
from ..lower.tensors import LayerTensor
from ..reading.patterns import host_call
from ..reading.reader import DescribedCall, Match, Reader
from ..stream.isa import BRICK_CHANNELS, ElementwiseMode, PoolMode

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
        """Positive values rescaled plus negative values times slopes: one of the two is the output's zero.

        Both are of the output's type, so each step may overwrite what it reads last: one map besides input and output.
        """
        x, slopes, out = (context.tensors[n] for n in (*self.inputs, self.output))
        above = quantise_multiplier(double(x.scale) / double(out.scale))
        below = quantise_multiplier(double(x.scale) * double(slopes.scale) / double(out.scale))
        builder, ifm, ofm = context.builder, context.operand(x.name), context.operand(out.name)
        ifm2, zero, (low, high) = self._slopes(context, ofm), out.zero_point, out.limits
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

    def _slopes(self, context: EmitContext, ofm: Operand) -> Operand:
        """In the type of the values: those of int16 have constants of int8, as numbers without a zero point."""
        slopes = context.tensors[self.inputs[1]]
        if slopes.dtype == ofm.dtype:
            return context.second(slopes.name, ofm)
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
        """The same in the channels of one map, and that map as pairs of columns.

        A pool adds pairs in half the time of a sum of two maps, in the bytes of one map more; few channels, which are
        not read 16 at a time, would take longer.
        """
        height, width, depth = ofm.view.shape
        both = builder.temporary(f"{self.output}_parts", (height, width, 2 * depth), ofm.dtype, ofm.zero_point)
        halves = [both.view.box((0, 0, first), ofm.view.shape) for first in (0, depth)]
        positive, sloped = (replace(both, view=half) for half in halves if half is not None)
        return positive, sloped, reshaped(both, (height, 2 * width, depth))


def _parse(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    inputs = call.activation("input", "0"), call.operand("alpha", "1")
    return Match.of(Prelu("prelu", ("0", "1"), "out"), call.output(), *inputs)


RECORD = Record((Prelu,), (Composite("prelu", host_call, _parse),))
