"""Comparisons of 8-bit values on Ethos-U85, whose results are 0 and 1, one byte each.

Invariant: what is compared are the numbers that the reference compares: stored values where their order is the same,
else 32-bit numbers from a table of each operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...fixed_point.multiplier import multiply_by_quantised
from ..lower.broadcasts import combine, combined, four, images, unfit
from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand, Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY, quantise_multiplier
from ..lower.tensors import INT8, Arithmetic, LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader, RejectedError, plain
from ..stream.isa import ElementwiseMode, PoolMode

_LEFT_SHIFT = 8  # of TFLite's operands
Numbers = tuple[int, ...]  # of each value of 8 bits, from the least on


@dataclass(frozen=True, slots=True, eq=False)
class ComparedMaps(Layer):
    """Whether the first is equal to, not equal to, at least or more than the second (CMP_EQ to CMP_GT)."""

    mode: ElementwiseMode
    numbers: tuple[Numbers, Numbers] | None  # that are compared of each operand; None: stored values

    limits: ClassVar[Limits] = Limits(results=frozenset(("bool",)))
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as images, or all of them as one
    only_u85: ClassVar[str] = "it compares values, which only Ethos-U85 does"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if inputs[0].dtype == "int16":
            return "its tensors are int16; values of 8 bits are compared"
        first, second, whole = (four(tensor.shape) for tensor in (*inputs, output))
        return unfit((first, second, whole), ((first, second),))

    def emit(self, context: EmitContext) -> None:
        """All bits of a true result are set, of which the lowest stays."""
        names = (*self.inputs, self.output)
        tensors = [context.tensors[name] for name in names]
        for *views, made in images(context, names, [four(tensor.shape) for tensor in tensors]):
            operands = [Operand(view, tensor.dtype) for view, tensor in zip(views, tensors, strict=False)]
            if self.numbers is not None:
                pairs = zip(operands, self.numbers, strict=True)
                operands = [_looked_up(context, operand, numbers, self.output) for operand, numbers in pairs]
            mask = combined(context, self.mode, operands[0], operands[1], f"{self.output}_mask", "int8")
            combine(context, ElementwiseMode.AND, mask, context.builder.scalar(1, "int8"), Operand(made, "int8"))


def _looked_up(context: EmitContext, operand: Operand, numbers: Numbers, name: str) -> Operand:
    """The numbers of an operand's values, as int32."""
    made = context.builder.temporary(f"{name}_numbers", operand.view.shape, "int32")
    index = replace(made, zero_point=INT8[0] - int(np.iinfo(operand.dtype).min))  # tables are indexed by signed values
    output = Output(INT8, UNITY, table=np.array(numbers, np.int64))
    context.builder.pool(PoolMode.AVERAGE, operand, index, Window(), output)
    return made


def compared(numbers: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers] | None:
    """None where stored values are in the order of these numbers, and as different."""
    return None if numbers[0] == numbers[1] and (np.diff(numbers[0]) > 0).all() else numbers


# ---------------------------------------------------------------------- in Relax

_MODES = {  # the mode, and whether the operands change places
    "equal": (ElementwiseMode.CMP_EQ, False),
    "not_equal": (ElementwiseMode.CMP_NE, False),
    "greater": (ElementwiseMode.CMP_GT, False),
    "greater_equal": (ElementwiseMode.CMP_GE, False),
    "less": (ElementwiseMode.CMP_GT, True),
    "less_equal": (ElementwiseMode.CMP_GE, True),
}


def _patterns(name: str) -> Iterator[p.Pattern]:
    yield p.op(name, p.dequantized(p.anything()), p.dequantized(p.anything()))


def _parse(name: str, reader: Reader, root: Any) -> Match:
    call, (mode, swapped) = reader.need(root, name), _MODES[name]
    order = call.args[::-1] if swapped else call.args
    inputs = [reader.activation(operand, str(place)) for place, operand in enumerate(order)]
    first, second = (tensor for tensor, _ in inputs)
    same = (first.scale, first.zero_point, first.dtype) == (second.scale, second.zero_point, second.dtype)
    if reader.arithmetic is Arithmetic.REAL:
        if not same:
            raise RejectedError("it compares real numbers of two scales or zero points")
        numbers = None
    else:
        numbers = compared((_numbers(first), _numbers(second)))
    return Match.of(ComparedMaps(name, ("0", "1"), "out", mode, numbers), plain(call, "out"), *inputs)


def _numbers(tensor: LayerTensor) -> Numbers:
    """As TFLite's reference compares them: in fixed point, with eight bits more than whole numbers."""
    if not 0 < tensor.scale < 1:
        raise RejectedError(f"its tensor has scale {tensor.scale}; the reference takes those below 1")
    if tensor.dtype == "int16":
        raise RejectedError("its tensors are int16; values of 8 bits are compared")
    least, most = tensor.limits
    values, scale = np.arange(least, most + 1, dtype=np.int64) - tensor.zero_point, quantise_multiplier(tensor.scale)
    made = multiply_by_quantised(values << _LEFT_SHIFT, scale.multiplier, scale.exponent)
    return tuple(int(v) for v in made)


RECORD = Record(
    (ComparedMaps,), tuple(Composite(name, partial(_patterns, name), partial(_parse, name)) for name in _MODES)
)
