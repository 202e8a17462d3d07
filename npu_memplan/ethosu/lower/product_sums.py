"""Products of two matrices that are both values of the program: elementwise, then REDUCE_SUM, which every Ethos-U has.

Invariant: products are exact 32-bit values; so are their sums before they are scaled, for a depth of 65,536 at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..stream.isa import ElementwiseMode, PoolMode
from .emit import Builder
from .emit_context import EmitContext
from .layer import Layer, Limits, StorageTraits
from .operands import Operand, Output, Window
from .scaling import UNITY, Scale
from .tensors import INT32, LayerTensor
from .views import TensorView

_MOST_STEPS = 256  # rows or columns, of which each takes two operations


@dataclass(frozen=True, slots=True, eq=False)
class ProductSums(Layer):
    """[stacks, rows, depth] times [stacks, depth, columns], 8 bits; `turned`: the second is stored as [stacks, columns,
    depth].
    """

    turned: bool
    clamp: tuple[int, int]
    stated: Scale  # of the sums

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as stacks of matrices

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if output.dtype == "int16":
            return "it multiplies int16 matrices, whose sums have more than 32 bits"
        steps = min(output.shape[-2:])
        if steps > _MOST_STEPS:
            return f"it multiplies {steps} rows and columns; at most {_MOST_STEPS} are multiplied on the NPU"
        return None

    def emit(self, context: EmitContext) -> None:
        """Two operations for each row, or for each column where there are fewer of these."""
        first, second, made = (_matrices(context, name) for name in (*self.inputs, self.output))
        second = second if self.turned else _transposed(context.builder, second)
        by_column = first.view.shape[1] >= second.view.shape[1]
        whole, other = (first, second) if by_column else (second, first)
        output = context.output(self.clamp, self.stated)
        for index in range(other.view.shape[1]):
            products = context.builder.temporary(f"{self.output}_products", whole.view.shape, "int32")
            one = replace(other, view=_part(other.view, 1, index))
            context.builder.elementwise(ElementwiseMode.MUL, whole, one, products, Output(INT32, UNITY))
            sums = _part(made.view, 2 if by_column else 1, index)
            if not by_column:  # the row's elements as pixels
                sums = _pixels(sums, (*sums.shape[::2], 1), (sums.strides[0], sums.strides[2]))
            context.builder.pool(PoolMode.REDUCE_SUM, products, replace(made, view=sums), Window(), output)


def _matrices(context: EmitContext, name: str) -> Operand:
    """A tensor as [stacks, rows, columns]."""
    tensor = context.tensors[name]
    view = context.view(name).reshaped((math.prod(tensor.shape[:-2]), *tensor.shape[-2:]))
    assert view is not None  # it is dense
    return Operand(view, tensor.dtype, tensor.zero_point)


def _transposed(builder: Builder, source: Operand) -> Operand:
    """[stacks, depth, columns] as [stacks, columns, depth], by a copy for each stack."""
    stacks, depth, columns = source.view.shape
    moved = builder.temporary("transposed", (stacks, columns, depth), source.dtype, source.zero_point)
    size, info = source.view.element_bytes, np.iinfo(source.dtype)
    output = Output((int(info.min), int(info.max)), UNITY)
    for stack in range(stacks):
        rows, turned = _part(source.view, 0, stack), _part(moved.view, 0, stack)
        seen = (
            _pixels(rows, (depth, columns, 1), (rows.strides[1], size)),
            _pixels(turned, (depth, columns, 1), (size, turned.strides[1])),
        )
        ends = [Operand(view, source.dtype) for view in seen]
        builder.pool(PoolMode.MAX, ends[0], ends[1], Window(), output)
    return moved


def _part(view: TensorView, axis: int, index: int) -> TensorView:
    """One index of an axis, which stays."""
    shape = tuple(1 if place == axis else extent for place, extent in enumerate(view.shape))
    return replace(view, offset=view.offset + index * view.strides[axis], shape=shape)


def _pixels(view: TensorView, shape: tuple[int, ...], strides: tuple[int, int]) -> TensorView:
    """The same place, seen as pixels of one channel."""
    return replace(view, shape=shape, strides=(*strides, view.element_bytes))
