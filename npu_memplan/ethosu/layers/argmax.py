"""Places of maxima: a pool of Ethos-U85 whose windows are as wide as the axis; of minima, with a table in front."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..lower.emit_context import EmitContext, reshaped
from ..lower.emit_u85 import find_maxima
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand, Output, Window
from ..lower.record import Composite, Record
from ..lower.scaling import UNITY
from ..lower.tensors import LayerTensor
from ..reading.patterns import host_call
from ..reading.reader import DescribedCall, Match, Reader
from ..stream.isa import PoolMode

_MAX_ELEMENTS = 1 << 13


@dataclass(frozen=True, slots=True, eq=False)
class ArgMax(Layer):
    """The first place of the maximum along `axis`, as int32; of the minimum where `smallest`."""

    axis: int
    smallest: bool = False

    limits: ClassVar[Limits] = Limits(results=frozenset(("int32",)))
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its input is seen with the axis as columns
    only_u85: ClassVar[str] = "it looks for places of maxima, which only Ethos-U85 does"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        if output.dtype != "int32" or inputs[0].dtype == "int16":
            return f"its places in {inputs[0].dtype} are {output.dtype}; int32 of 8 bits fits the NPU"
        elements = inputs[0].shape[self.axis]
        if elements > _MAX_ELEMENTS:
            return f"it compares {elements} elements; the NPU compares at most {_MAX_ELEMENTS}"
        return None

    def emit(self, context: EmitContext) -> None:
        shape = context.tensors[self.inputs[0]].shape
        rows, count, inner = math.prod(shape[: self.axis]), shape[self.axis], math.prod(shape[self.axis + 1 :])
        ifm = reshaped(context.operand(self.inputs[0], raw=True), (rows, count, inner))
        if self.smallest:
            ifm = self._backwards(context, ifm)
        ofm = reshaped(context.operand(self.output, raw=True), (rows, 1, inner))
        find_maxima(context.builder, ifm, ofm)

    def _backwards(self, context: EmitContext, ifm: Operand) -> Operand:
        """The least value as the largest, and so on."""
        least, most = context.tensors[self.inputs[0]].limits
        made = context.builder.temporary(f"{self.output}_backwards", ifm.view.shape, ifm.dtype)
        table = np.arange(most, least - 1, -1, dtype=np.int64)
        context.builder.pool(PoolMode.AVERAGE, ifm, made, Window(), Output((least, most), UNITY, table=table))
        return made


def _parse(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    layer = ArgMax("arg_max", ("0",), "out", int(call.layer["axis"]), bool(call.layer["smallest"]))
    return Match.of(layer, call.output(), call.activation("input", "0"))


RECORD = Record((ArgMax,), (Composite("arg_max", host_call, _parse),))
