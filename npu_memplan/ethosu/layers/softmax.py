"""Softmax of 8-bit and of int16 values as NPU operations, equal to TFLite's fixed-point reference.

Invariant: every intermediate is the int32 that TFLite's reference computes: exponentials in Q0.31 from a table over the
256 possible differences to the row's maximum, their sum in Q12.19, and its reciprocal by three Newton-Raphson steps in
Q2.29. Int16 has exponentials with 15 fraction bits from a table over the differences to the row's maximum, their sum,
and its reciprocal from another table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...fixed_point import SOFTMAX_UNIT, exp_on_negative, input_radius, multiply_by_quantised, softmax_tables
from ..arch import Language
from ..lower.emit import Builder, EmitContext, reshape_operand
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import INT16, INT32, LayerTensor, Operand, Output, Window
from ..lower.scaling import UNITY, Scale, float32_value, quantise_multiplier
from ..reading.patterns import unary_patterns
from ..reading.reader import Composite, Match, Reader, Record, RejectedError
from ..stream.isa import ElementwiseMode, PoolMode, Rounding

_LEAST_SUM = (1 << 15) + (1 << 16)  # of a sum with 16 fraction bits, what the table's first entry stands for, and half


def row_maxima(builder: Builder, name: str, ifm: Operand) -> Operand:
    """The maximum over the channels: a pool over columns, a row for each pixel."""
    height, width, depth = ifm.view.shape
    largest = builder.temporary(f"{name}_max", (height, width, 1), ifm.dtype, ifm.zero_point)
    rows, limits = height * width, np.iinfo(ifm.dtype)
    builder.pool(
        PoolMode.MAX,
        reshape_operand(ifm, (rows, depth, 1)),
        reshape_operand(largest, (rows, 1, 1)),
        Window(kernel=(1, depth)),
        Output((int(limits.min), int(limits.max)), UNITY),
    )
    return largest


def emit_softmax16(builder: Builder, name: str, ifm: Operand, ofm: Operand, ifm_scale: float, beta: float) -> None:
    """Softmax over the channels; `ifm` and `ofm` are dense [H, W, C] maps of int16."""
    height, width, depth = ifm.view.shape
    wide, narrow = Output(INT32, UNITY), partial(Output, INT16, UNITY)
    rounded = Rounding.NATURAL  # halves up

    def temporary(label: str, channels: int = 1, dtype: str = "int32") -> Operand:
        return builder.temporary(f"{name}_{label}", (height, width, channels), dtype)

    def binary(
        mode: ElementwiseMode, a: Operand, b: Operand, made: Operand, output: Output = wide, swap: bool = False
    ) -> Operand:
        adds = mode in (ElementwiseMode.ADD, ElementwiseMode.SUB)
        builder.elementwise(mode, a, b, made, output, operand_scales=(1, 1) if adds else None, swap=swap)
        return made

    add, sub = partial(binary, ElementwiseMode.ADD), partial(binary, ElementwiseMode.SUB)
    shift = partial(binary, ElementwiseMode.SHR)
    exponential, inverse = (_lines(table) for table in softmax_tables())

    largest = row_maxima(builder, name, ifm)
    scale = quantise_multiplier(float32_value(ifm_scale) * beta / SOFTMAX_UNIT)
    differences = sub(ifm, largest, temporary("differences", depth), Output(INT32, scale))
    last = builder.scalar(INT16[1], "int32")  # place of the difference 0
    powers = add(differences, last, temporary("exp", depth, "int16"), narrow(table=exponential))
    total = temporary("sum")
    builder.pool(PoolMode.REDUCE_SUM, powers, total, Window(), wide)
    # the sum as x in [1, 2) with 16 fraction bits, and its reciprocal
    zeros = temporary("zeros")
    builder.elementwise(ElementwiseMode.CLZ, total, None, zeros, wide)
    headroom = sub(zeros, builder.scalar(1, "int32"), temporary("headroom"))
    normal = binary(ElementwiseMode.SHL, total, headroom, temporary("normal"))
    fraction = shift(normal, builder.scalar(14, "int32"), temporary("fraction"), Output(INT32, UNITY, rounded))
    least = builder.scalar(-_LEAST_SUM, "int32")
    reciprocal = add(fraction, least, temporary("reciprocal", 1, "int16"), narrow(table=inverse))
    product = binary(ElementwiseMode.MUL, powers, reciprocal, temporary("product", depth))
    right = sub(zeros, builder.scalar(31, "int32"), temporary("right"), swap=True)
    shift(product, right, ofm, Output((0, INT16[1]), UNITY, rounded))


def _lines(table: NDArray[np.int16]) -> NDArray[np.int64]:
    """Words `slope << 16 | base` of the lines between 513 samples."""
    samples = table.astype(np.int64)
    return (np.diff(samples) & 0xFFFF) << 16 | (samples[:-1] & 0xFFFF)


_INTEGER_BITS = 5  # of the scaled difference to the maximum
_ACCUMULATION_BITS = 12  # integer bits of the sum
_PRODUCT = Scale(1 << 30, 31)  # int32 MUL uses only the shift: a rounded doubling high multiplication
_TWICE = Scale(2, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Softmax(Layer):
    """Softmax over the last axis."""

    beta: float = 1.0

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as rows

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        steps, least = (1 << 15, 0) if output.dtype == "int16" else (1 << 8, output.limits[0])
        if output.zero_point != least or not math.isclose(output.scale * steps, 1, rel_tol=1e-3):
            return f"its output has scale {output.scale} and zero point {output.zero_point}, not 1/{steps} and {least}"
        if output.dtype == "int16" and float32_value(inputs[0].scale) * self.beta / SOFTMAX_UNIT >= 2.0**31:
            return f"the scale of its input, {inputs[0].scale:.3g}, is too large for a multiplier of 32 bits"
        return None

    def emit(self, context: EmitContext) -> None:
        """Emit on dense [H, W, C] maps: what lies side by side in memory is one row."""
        source = context.tensors[self.inputs[0]]
        ifm, ofm = (context.operand(name) for name in (source.name, self.output))
        emit = emit_softmax16 if source.dtype == "int16" else _append_softmax
        emit(context.builder, self.output, ifm, ofm, source.scale, self.beta)


def _parse_softmax(reader: Reader, root: Any) -> Match:
    call, out, _, inputs = reader.of_real(root, "nn.softmax")
    if (int(call.attrs.axis) + 1) % len(out.shape):
        raise RejectedError(f"it is over axis {int(call.attrs.axis)}, not over the last")
    return Match.for_layer(Softmax("softmax", ("0",), "out"), out, *inputs)


RECORD = Record((Softmax,), (Composite("softmax", partial(unary_patterns, "nn.softmax"), _parse_softmax),))


# ---------------------------------------------------------------------- exponentials


def exp_table(beta: float, ifm_scale: float) -> NDArray[np.int64]:
    """exp(beta * scale * (i - 255)) in Q0.31 for i in 0..255; [256]. Differences too large give 0."""
    real = min(beta * float32_value(ifm_scale) * (1 << (31 - _INTEGER_BITS)), float((1 << 31) - 1))
    scale = quantise_multiplier(real)
    differences = np.arange(-255, 1)
    within = differences >= -input_radius(_INTEGER_BITS, scale.exponent)
    scaled = multiply_by_quantised(np.where(within, differences, 0), scale.multiplier, scale.exponent)
    return np.where(within, exp_on_negative(scaled, _INTEGER_BITS), 0)


# ---------------------------------------------------------------------- operations


def _append_exponentials(builder: Builder, name: str, ifm: Operand, table: NDArray[np.int64]) -> Operand:
    """exp(x - max), by a table over the 256 differences."""
    largest = row_maxima(builder, name, ifm)
    exponentials = builder.temporary(f"{name}_exp", ifm.view.shape, "int32")
    largest_index = 127  # of the difference 0; tables are indexed by signed values, whatever the input's type
    builder.elementwise(
        ElementwiseMode.SUB,
        ifm,
        largest,
        Operand(exponentials.view, "int32", largest_index),
        Output((-128, largest_index), UNITY, table=table),
        operand_scales=(1, 1),
    )
    return exponentials


def _append_softmax(builder: Builder, name: str, ifm: Operand, ofm: Operand, ifm_scale: float, beta: float) -> None:
    """Softmax over the channels; `ifm` and `ofm` are dense [H, W, C] maps of 8 bits."""
    height, width, depth = ifm.view.shape
    limits = np.iinfo(ifm.dtype)
    clamp8 = (int(limits.min), int(limits.max))

    def temporary(label: str, channels: int = 1, dtype: str = "int32") -> Operand:
        return builder.temporary(f"{name}_{label}", (height, width, channels), dtype)

    def constant(value: int) -> Operand:
        return builder.scalar(value, "int32")

    def binary(
        mode: ElementwiseMode, label: str, a: Operand, b: Operand, scale: Scale = UNITY, swap: bool = False
    ) -> Operand:
        out = temporary(label, a.view.shape[2])
        adds = mode in (ElementwiseMode.ADD, ElementwiseMode.SUB)
        builder.elementwise(mode, a, b, out, Output(INT32, scale), operand_scales=(1, 1) if adds else None, swap=swap)
        return out

    add, sub = partial(binary, ElementwiseMode.ADD), partial(binary, ElementwiseMode.SUB)
    multiply, left = partial(binary, ElementwiseMode.MUL), partial(binary, ElementwiseMode.SHL)

    exponentials = _append_exponentials(builder, name, ifm, exp_table(beta, ifm_scale))
    # their sum with 12 integer bits
    rescaled = temporary("exp_rescaled", depth)
    builder.elementwise(
        ElementwiseMode.SHR,
        exponentials,
        constant(_ACCUMULATION_BITS),
        rescaled,
        Output(INT32, UNITY, Rounding.NATURAL),
    )
    total = temporary("sum")
    builder.pool(PoolMode.REDUCE_SUM, rescaled, total, Window(), Output(INT32, UNITY))
    # the sum as x in [1, 2) in Q1.30, and the shift that makes it so. It is also what the reference's rounded half of
    # (x - 1) + 1 in Q0.31 comes to, whose 1 is one bit short
    headroom_plus_one = temporary("headroom_plus_one")
    builder.elementwise(ElementwiseMode.CLZ, total, None, headroom_plus_one, Output(INT32, UNITY))
    right_shift = sub("right_shift", headroom_plus_one, constant(_ACCUMULATION_BITS + 31 - 8), swap=True)
    half = left("half_denominator", total, sub("headroom", headroom_plus_one, constant(1)))
    # 1 / x by Newton-Raphson in Q2.29, from 48/17 - 32/17 * x
    saturates = builder.accelerator.language is not Language.U85  # whose results of 32 bits lose their high bits
    first = multiply("slope", half, constant(-1010580540), _PRODUCT)
    estimate = add("estimate", first, constant(1515870810))
    for step in range(3):
        product = multiply(f"product{step}", estimate, half, _PRODUCT)
        error = sub(f"error{step}", product, constant(1 << 29), swap=True)
        change = multiply(f"change{step}", estimate, error, _PRODUCT)
        correction = multiply(f"correction{step}", change, constant(4))
        twice = _TWICE if step == 2 and saturates else UNITY  # the last in Q0.31
        estimate = add(f"estimate{step}", estimate, correction, twice)
    if not saturates:  # 2 x, at most 2^31 - 1, as x + min(x, 2^30 - 1): x is no more than 2^30
        less = binary(ElementwiseMode.MIN, "below_two", estimate, constant((1 << 30) - 1))
        estimate = add("doubled", estimate, less)
    scaled = multiply("scaled_exp", exponentials, estimate, _PRODUCT)
    builder.elementwise(ElementwiseMode.SHR, scaled, right_shift, ofm, Output(clamp8, UNITY, Rounding.NATURAL))
