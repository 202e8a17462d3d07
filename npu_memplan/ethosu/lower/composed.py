"""Elementwise layers that take several NPU operations: PReLU and squared difference, 8 bits signed.

Invariant: every intermediate is a number that TFLite's reference computes too, in int16; none of them saturates
unless the result does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..stream.isa import ElementwiseMode, PoolMode
from .emit import Builder
from .fixed import multiply_by_quantized
from .graph import Tensor
from .operands import Operand, Output, Window
from .scaling import UNITY, Scale, double, quantise_multiplier

_INT8, _INT16 = (-128, 127), (-(1 << 15), (1 << 15) - 1)
_UNSCALED = (1, 1)  # operand scales of an addition of equal units
_FRACTION_BITS = 7  # of the operands of TFLite's squared difference


def lower_prelu(
    builder: Builder, name: str, ifm: Operand, slopes: Operand, ofm: Operand, above: Scale, below: Scale
) -> None:
    """Positive values times `above` plus negative values times slopes times `below`: one of the two is zero."""
    shape = ofm.view.shape
    nothing = Operand(builder.constant_view(np.full((1, 1, 1), ifm.zero_point, np.int8)), "int8", ifm.zero_point)
    negative = builder.temporary(f"{name}_negative", shape, "int8", ifm.zero_point)
    builder.elementwise(ElementwiseMode.MIN, ifm, nothing, negative, Output(_INT8, UNITY))
    sloped = builder.temporary(f"{name}_sloped", shape, "int16")
    builder.elementwise(ElementwiseMode.MUL, negative, slopes, sloped, Output(_INT16, below))
    positive = builder.temporary(f"{name}_positive", shape, "int16")
    builder.pool(PoolMode.AVERAGE, ifm, positive, Window(), Output((0, _INT16[1]), above))
    output = Output(_INT8, UNITY)
    builder.elementwise(ElementwiseMode.ADD, positive, sloped, ofm, output, operand_scales=_UNSCALED)


def lower_squared_difference(
    builder: Builder,
    name: str,
    ifm: Operand,
    ifm2: Operand,
    ofm: Operand,
    tensors: tuple[Tensor, Tensor, Tensor],
    clamp: tuple[int, int],
) -> None:
    """Both operands in units of 1/128 of twice the larger scale, subtracted, multiplied by itself.

    `tensors` are those of `ifm`, `ifm2` and `ofm`; `ifm2` may be smaller, or a constant.
    """
    first, second, result = tensors
    twice = 2 * max(double(first.scale), double(second.scale))
    a = _with_fraction(builder, f"{name}_a", ifm, first, quantise_multiplier(double(first.scale) / twice))
    b = _with_fraction(builder, f"{name}_b", ifm2, second, quantise_multiplier(double(second.scale) / twice))
    difference = builder.temporary(f"{name}_difference", ofm.view.shape, "int16")
    output = Output(_INT16, UNITY)
    builder.elementwise(ElementwiseMode.SUB, a, b, difference, output, operand_scales=_UNSCALED)
    square = quantise_multiplier(twice * twice / ((1 << 2 * _FRACTION_BITS) * double(result.scale)))
    builder.elementwise(ElementwiseMode.MUL, difference, difference, ofm, Output(clamp, square))


def _with_fraction(builder: Builder, name: str, operand: Operand, tensor: Tensor, scale: Scale) -> Operand:
    """`operand * 128 * scale` in int16."""
    if tensor.data is not None:
        values = tensor.data.astype(np.int64) - tensor.zero_point
        scaled = [multiply_by_quantized(int(v) << _FRACTION_BITS, scale) for v in values.reshape(-1)]
        view = builder.constant_view(np.array(scaled, np.int16).reshape(operand.view.shape))
        return replace(operand, view=view, dtype="int16", zero_point=0)
    factor = Operand(builder.constant_view(np.full((1, 1, 1), 127, np.int8)), "int8", -1)  # 128
    result = builder.temporary(name, operand.view.shape, "int16")
    builder.elementwise(ElementwiseMode.MUL, operand, factor, result, Output(_INT16, scale))
    return result
