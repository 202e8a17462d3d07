"""Fully connected layers: products with a constant matrix, one for each row of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..lower.emit_context import EmitContext, exact_window, reshaped
from ..lower.layer import Limits, StorageTraits
from ..lower.operands import Window
from ..lower.record import Composite, Record
from ..lower.scaling import conv_scale
from ..lower.tensors import LayerTensor
from ..reading.reader import Match, Reader, RejectedError
from ..stream.isa import Rounding
from .weighted import Sums, Weighted, read_product, weighted, zeroed


@dataclass(frozen=True, slots=True, eq=False)
class FullyConnected(Weighted):
    """A 1x1 convolution over rows of values; `weights` are [O, 1, 1, I]."""

    limits: ClassVar[Limits] = Limits(mixed=frozenset(("int8", "uint8")), one_image=True)

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return self._unfit_weights()

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Its tensors are seen as rows."""
        return StorageTraits(dense=True)

    def emit(self, context: EmitContext) -> None:
        source, result = context.tensors[self.inputs[0]], context.tensors[self.output]
        depth = self.weights.shape[3]
        rows = int(np.prod(source.shape)) // depth
        ifm = reshaped(context.operand(source.name), (rows, 1, depth))
        ofm = reshaped(context.operand(result.name), (rows, 1, len(self.bias)))
        output = context.output(self.clamp)
        if source.dtype == "uint8":  # LiteRT's kernel rounds these once
            output = replace(output, rounding=Rounding.NATURAL)
        scales = [conv_scale(source.scale, s, result.scale) for s in self.weight_scales]
        sums = Sums(ifm, exact_window(Window(), ifm, ofm), self.weights)
        self._emit_sums(context.builder, sums, ofm, scales, output, depthwise=False)


def _fully_connected(reader: Reader, root: Any) -> Match:
    _, out, source, weights, fields = read_product(reader, root, "matmul")
    if weights.values.ndim != 2:
        raise RejectedError(f"its weights have {weights.values.ndim} dimensions; batched products stay on the host")
    values = np.ascontiguousarray(zeroed(weights, 1).T).reshape(out.shape[-1], 1, 1, -1)
    return Match.of(FullyConnected("fully_connected", weights=values, **fields), out, source)


RECORD = Record((FullyConnected,), (Composite("fully_connected", partial(weighted, "matmul"), _fully_connected),))
