"""Softmax of int16 values as 13 NPU operations, equal to TFLite's fixed-point reference.

Invariant: every intermediate is a number that the reference computes: exponentials with 15 fraction bits from a table
over the differences to the row's maximum, their sum, and its reciprocal from another table.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...fixed_point.interpolation import SOFTMAX_UNIT, softmax_tables
from ..lower.emit import Builder
from ..lower.emit_context import reshaped
from ..lower.operands import Operand, Output, Window
from ..lower.scaling import UNITY, double, quantise_multiplier
from ..lower.tensors import INT16, INT32
from ..stream.isa import ElementwiseMode, PoolMode, Rounding

_LEAST_SUM = (1 << 15) + (1 << 16)  # of a sum with 16 fraction bits, what the table's first entry stands for, and half


def row_maxima(builder: Builder, name: str, ifm: Operand) -> Operand:
    """The maximum over the channels: a pool over columns, a row for each pixel."""
    height, width, depth = ifm.view.shape
    largest = builder.temporary(f"{name}_max", (height, width, 1), ifm.dtype, ifm.zero_point)
    rows, limits = height * width, np.iinfo(ifm.dtype)
    builder.pool(
        PoolMode.MAX,
        reshaped(ifm, (rows, depth, 1)),
        reshaped(largest, (rows, 1, 1)),
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
    scale = quantise_multiplier(double(ifm_scale) * beta / SOFTMAX_UNIT)
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
