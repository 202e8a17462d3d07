"""Elements of one tensor or of another, as flags say: operations of Ethos-U85 on bits.

Invariant: stored values are moved as they are; any flag whose byte is not 0 is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..lower.broadcasts import Shape, combine, combined, four, images, joined, unfit
from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Operand
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..reading.patterns import host_call
from ..reading.reader import DescribedCall, Match, Reader
from ..stream.isa import ElementwiseMode


@dataclass(frozen=True, slots=True, eq=False)
class Select(Layer):
    """An element of the second input where the first is true, else one of the third; any may be broadcast."""

    by_row: bool = False  # the flags are one for each index of the first dimension

    limits: ClassVar[Limits] = Limits(chooser=(0, frozenset(("bool",))))
    traits: ClassVar[StorageTraits] = StorageTraits(dense=True)  # its tensors are seen as images, or all of them as one
    only_u85: ClassVar[str] = "it masks bits, which only Ethos-U85 does"

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        flags, yes, no, whole = self._shapes((*inputs, output))
        return unfit((flags, yes, no, whole), ((flags, yes), (flags, no), (joined(flags, yes), joined(flags, no))))

    def emit(self, context: EmitContext) -> None:
        """A mask of the flags, what it leaves of either, and both together."""
        names = (*self.inputs, self.output)
        tensors = tuple(context.tensors[name] for name in names)
        dtype = "int16" if tensors[-1].element_bytes == 2 else "int8"
        for flags, yes, no, made in images(context, names, self._shapes(tensors)):
            zero, label = context.builder.scalar(0, "int8"), f"{self.output}_"
            mask = combined(context, ElementwiseMode.CMP_NE, Operand(flags, "int8"), zero, f"{label}mask", dtype)
            chosen = combined(context, ElementwiseMode.AND, Operand(yes, dtype), mask, f"{label}chosen", dtype)
            other = combined(context, ElementwiseMode.AND_NOT, Operand(no, dtype), mask, f"{label}other", dtype)
            combine(context, ElementwiseMode.OR, chosen, other, Operand(made, dtype))

    def _shapes(self, tensors: tuple[LayerTensor, ...]) -> list[Shape]:
        """With flags of rows in the first dimension."""
        shapes = [tensor.shape for tensor in tensors]
        if self.by_row:
            shapes[0] = (*shapes[0], *(1,) * (len(shapes[-1]) - 1))
        return [four(shape) for shape in shapes]


def _parse(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    names = ("condition", "first", "second" if call.has("second") else "first")  # a tensor twice is one parameter
    inputs = (call.operand(name, str(place)) for place, name in enumerate(names))
    layer = Select("select", ("0", "1", "2"), "out", bool(call.layer["by_row"]))
    return Match.of(layer, call.output(), *inputs)


RECORD = Record((Select,), (Composite("select", host_call, _parse),))
