"""Other scales, zero points and types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...fixed_point.multiplier import divide_scales
from ..lower.emit_context import EmitContext
from ..lower.layer import ANY_TYPES, Layer, Limits, StorageTraits
from ..lower.operands import Window
from ..lower.record import Composite, Record
from ..lower.scaling import Scale, double, quantise_multiplier
from ..lower.tensors import Arithmetic, LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader, RejectedError
from ..stream.isa import PoolMode


@dataclass(frozen=True, slots=True, eq=False)
class Requantize(Layer):
    """Other scale and zero point, by one rescale of the NPU."""

    clamp: tuple[int, int]
    stated: Scale | None = None  # None: the tensors' scales say it
    other_type: bool = False  # all that changes is how the same numbers are stored, and its readers read either

    limits: ClassVar[Limits] = Limits(mixed=ANY_TYPES)

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        """Either layout; the input's bytes where those mean the same."""
        bricks = (*self.inputs, self.output)
        return StorageTraits(bricks=bricks, moves=True, view=lambda x: x) if self.other_type else StorageTraits(bricks)

    def emit(self, context: EmitContext) -> None:
        if self.other_type and self.output not in context.storage.copies:
            return
        if self.stated is None:
            output = context.rescaled(self.inputs[0], self.output, self.clamp)
        else:
            output = context.output(self.clamp, self.stated)
        ifm, ofm = context.operand(self.inputs[0]), context.operand(self.output)
        context.builder.pool(PoolMode.AVERAGE, ifm, ofm, Window(), output)


def _patterns() -> Iterator[p.Pattern]:
    yield from p.finished(p.dequantized(p.anything()))


def _parse(reader: Reader, root: Any) -> Match:
    out, real, clamp = reader.quantised(root)
    source = reader.activation(real, "0")
    if source[1] is None:
        raise RejectedError("it only changes a constant")
    stated = _scale_of_litert(source[0], out) if _is_litert_activation(reader, root, out) else None
    return Match.of(Requantize("requantize", ("0",), "out", clamp, stated), out, source)


def _is_litert_activation(reader: Reader, root: Any, out: LayerTensor) -> bool:
    """Whether LiteRT has the reference: of limits other than RELU's, and of RELU of uint8."""
    result, _ = reader.clipped(root, "quantize")
    limited = reader.call(root, "clip") is not None or reader.call(result.args[0], "clip") is not None
    rectified = reader.call(result.args[0], "nn.relu") is not None
    return reader.arithmetic is Arithmetic.TFLITE and (limited or (rectified and out.dtype == "uint8"))


def _scale_of_litert(source: LayerTensor, out: LayerTensor) -> Scale:
    return quantise_multiplier(divide_scales(double(source.scale), double(out.scale), single=True))


RECORD = Record((Requantize,), (Composite("requantize", _patterns, _parse),))
