"""Fully connected layers: products with a constant matrix, one for each row of values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..arch import Language
from ..lower.emit_context import EmitContext, exact_window, reshaped
from ..lower.layer import Limits, StorageTraits
from ..lower.operands import Operand, Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import conv_scale
from ..lower.tensors import LayerTensor
from ..reading.reader import Match, Reader, RejectedError
from ..stream.isa import Rounding
from .weighted import Sums, Weighted, read_product, weighted, zeroed

_WIDTHS = (2, 4, 8)  # of pixels


@dataclass(frozen=True, slots=True, eq=False)
class FullyConnected(Weighted):
    """A 1x1 convolution over rows of values; `weights` are [O, 1, 1, I]."""

    limits: ClassVar[Limits] = Limits(mixed=frozenset(("int8", "uint8")), one_image=True)
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as rows

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return self._unfit_weights()

    def emit(self, context: EmitContext) -> None:
        source, result = context.tensors[self.inputs[0]], context.tensors[self.output]
        output = context.output(self.clamp)
        if source.dtype == "uint8":  # LiteRT's kernel rounds these once
            output = replace(output, rounding=Rounding.NATURAL)
        scales = [conv_scale(source.scale, s, result.scale) for s in self.weight_scales]
        ways = [self._seen(context, plane) for plane in self._planes(context)]
        sums, ofm = min(ways, key=partial(self._cycles, context, output)) if len(ways) > 1 else ways[0]
        self._emit_sums(context.builder, sums, ofm, scales, output, depthwise=False)

    def _planes(self, context: EmitContext) -> list[tuple[int, int]]:
        """Rows of values as pixels: of one column, which stripes cut best, or of more, which fill micro-blocks."""
        rows = int(np.prod(context.tensors[self.inputs[0]].shape)) // self.weights.shape[3]
        wide = context.for_cycles and context.builder.accelerator.language is Language.U85
        return [(rows // width, width) for width in ((1, *_WIDTHS) if wide else (1,)) if rows % width == 0]

    def _seen(self, context: EmitContext, plane: tuple[int, int]) -> tuple[Sums, Operand]:
        ifm = reshaped(context.operand(self.inputs[0]), (*plane, self.weights.shape[3]))
        ofm = reshaped(context.operand(self.output), (*plane, len(self.bias)))
        return Sums(ifm, exact_window(Window(), ifm, ofm), self.weights), ofm

    def _cycles(self, context: EmitContext, output: Output, way: tuple[Sums, Operand]) -> float:
        sums, ofm = way
        return context.builder.cycles_of_sums(sums.ifm, ofm, sums.window, output, sums.weights)


def _fully_connected(reader: Reader, root: Any) -> Match:
    _, out, source, weights, fields = read_product(reader, root, "matmul")
    if weights.values.ndim != 2:
        raise RejectedError(f"its weights have {weights.values.ndim} dimensions; batched products stay on the host")
    values = np.ascontiguousarray(zeroed(weights, 1).T).reshape(out.shape[-1], 1, 1, -1)
    return Match.of(FullyConnected("fully_connected", weights=values, **fields), out, source)


RECORD = Record((FullyConnected,), (Composite("fully_connected", partial(weighted, "matmul"), _fully_connected),))
