"""Products of two matrices that are both values of the program: CONV of Ethos-U85 whose weights come from IFM2."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..arch import Architecture, Language
from ..lower.emit_context import EmitContext
from ..lower.emit_u85 import multiply_maps
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand
from ..lower.permuted import permute
from ..lower.record import Composite, Record
from ..lower.scaling import Scale, double, quantise_multiplier, rounded_once
from ..lower.tensors import LayerTensor
from ..lower.views import TensorView
from ..reading.patterns import host_call
from ..reading.reader import DescribedCall, Match, Reader
from ..stream.isa import Rounding

_MAX_PRODUCTS = 256
_WIDE_BITS = 15  # of a multiplier of 48-bit sums


@dataclass(frozen=True, slots=True, eq=False)
class BatchMatMul(Layer):
    """[..., rows, depth] times [..., depth, columns], for each of the leading indices; either may be stored transposed.

    The second input may be a constant.
    """

    turned: tuple[bool, bool]  # whether an input is stored as [..., depth, rows] or [..., columns, depth]
    clamp: tuple[int, int]
    stated: Scale | None = None  # None: the tensors' scales say it

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as stacks of matrices

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        stacks = math.prod(output.shape[:-2])
        if stacks > _MAX_PRODUCTS:
            return f"it multiplies {stacks} pairs of matrices; at most {_MAX_PRODUCTS} are multiplied on the NPU"
        if output.dtype == "int16" and self.stated is not None and self.stated.multiplier >> _WIDE_BITS:
            return f"its sums of 48 bits are scaled by more than {_WIDE_BITS} bits"
        return None

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        if target.language is not Language.U85:
            return "it multiplies two feature maps, which only Ethos-U85 does"
        return None

    def reading_transposed(self, place: int, name: str) -> BatchMatMul:
        """The same product, whose input `place` is the transposed tensor `name`."""
        inputs = tuple(name if i == place else old for i, old in enumerate(self.inputs))
        first, second = (turned != (i == place) for i, turned in enumerate(self.turned))
        return replace(self, inputs=inputs, turned=(first, second))

    def emit(self, context: EmitContext) -> None:
        """Transposes, where the products want other orders, and one operation for each pair of matrices."""
        a, b, out = (context.tensors[name] for name in (*self.inputs, self.output))
        first, second = (
            _Stack.of(context, tensor, turned) for tensor, turned in ((a, self.turned[0]), (b, not self.turned[1]))
        )
        made = _Stack(context.view(out.name), out.shape)
        scale = self.stated or quantise_multiplier(double(a.scale) * double(b.scale) / double(out.scale))
        output = context.output(self.clamp, scale)
        if a.dtype == "int16" and self.stated is None:  # TFLite's sums of 64 bits are rounded once
            output = replace(output, scale=rounded_once(scale), rounding=Rounding.NATURAL)
        for place in np.ndindex(out.shape[:-2]):
            multiply_maps(
                context.builder,
                Operand(first.matrix(place), a.dtype, a.zero_point),
                Operand(second.matrix(place), b.dtype, b.zero_point),
                Operand(made.matrix(place), out.dtype, out.zero_point),
                output,
            )


@dataclass(frozen=True, slots=True)
class _Stack:
    """Matrices in dense rows."""

    view: TensorView
    shape: tuple[int, ...]

    @staticmethod
    def of(context: EmitContext, tensor: LayerTensor, turned: bool) -> _Stack:
        """Those of `tensor`; transposed if it is `turned`."""
        if not turned:
            return _Stack(context.view(tensor.name), tensor.shape)
        shape = (*tensor.shape[:-2], tensor.shape[-1], tensor.shape[-2])
        if tensor.data is not None:
            values = np.ascontiguousarray(np.swapaxes(tensor.data, -1, -2)).astype(tensor.dtype)
            return _Stack(context.builder.constant_view(values), shape)
        moved = context.builder.temporary(f"{tensor.name}_transposed", shape, tensor.dtype).view
        axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        permute(context.builder, context.view(tensor.name), moved, axes, tensor.dtype)
        return _Stack(moved, shape)

    def matrix(self, place: tuple[int, ...]) -> TensorView:
        """The matrix at the leading indices `place` of the result, as one row of pixels; extents of 1 are repeated."""
        *leading, rows, columns = self.shape
        mine = place[len(place) - len(leading) :]
        index = 0
        for at, extent in zip(mine, leading, strict=True):
            index = index * extent + (at if extent > 1 else 0)
        size = self.view.element_bytes
        plane = rows * columns * size
        return replace(
            self.view,
            offset=self.view.offset + index * plane,
            shape=(1, rows, columns),
            strides=(plane, columns * size, size),
        )


def _parse(reader: Reader, root: object) -> Match:
    call = DescribedCall(reader, root)
    out = call.output()
    turned = bool(call.layer["turned_first"]), bool(call.layer["turned_second"])
    second = "second" if call.has("second") else "first"  # what is both operands is one parameter
    inputs = call.activation("first", "0"), call.operand(second, "1")
    return Match.of(BatchMatMul("batch_matmul", ("0", "1"), "out", turned, out.limits), out, *inputs)


RECORD = Record((BatchMatMul,), (Composite("batch_matmul", host_call, _parse),))
