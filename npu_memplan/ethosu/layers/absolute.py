"""Absolute values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..lower.emission import Emission
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..reading.patterns import unary
from ..reading.reader import Match, Reader
from ..stream.isa import ElementwiseMode


@dataclass(frozen=True, slots=True, eq=False)
class Abs(Layer):
    clamp: tuple[int, int]

    limits: ClassVar[Limits] = Limits()

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits()

    def emit(self, emission: Emission) -> None:
        output = emission.rescaled(self.inputs[0], self.output, self.clamp)
        ifm, ofm = emission.operand(self.inputs[0]), emission.operand(self.output)
        emission.builder.elementwise(ElementwiseMode.ABS, ifm, None, ofm, output)


def _parse(reader: Reader, root: Any) -> Match:
    _, out, clamp, inputs = reader.of_real(root, "abs")
    return Match.of(Abs("abs", ("0",), "out", clamp), out, *inputs)


RECORD = Record((Abs,), (Composite("abs", partial(unary, "abs"), _parse),))
