"""A strided box of a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..lower.emit import LoweringError
from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader, RejectedError, number


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Layer):
    """A strided box of the input: one start and step for each dimension."""

    begin: tuple[int, ...]
    step: tuple[int, ...]

    limits: ClassVar[Limits] = Limits()

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        shape = tensors[self.output].shape
        return StorageTraits(moves=True, keeps_scale=True, view=lambda source: source.box(self.begin, shape, self.step))

    def emit(self, context: EmitContext) -> None:
        if self.output in context.storage.copies:
            out = context.tensors[self.output]
            source = context.view(self.inputs[0]).box(self.begin, out.shape, self.step)
            if source is None:
                raise LoweringError(f"slice {self.name} steps through channels, which the NPU cannot")
            context.copy(source, context.view(self.output), out.dtype)


def _patterns() -> Iterator[p.Pattern]:
    for arguments in (4, 5):  # without steps, and with them
        yield from p.alone("strided_slice", arguments)


def _parse(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.moved(root, "strided_slice")
    rank = len(tensor.shape)
    written = [fields for a in call.args[1:] if (fields := reader.fields(a)) is not None]
    axes, begins, _ends, *steps = ([int(number(v)) for v in fields] for fields in written)
    begin, step = [0] * rank, [1] * rank
    for position, axis in enumerate(axes):
        extent = tensor.shape[axis]
        start = begins[position] + (extent if begins[position] < 0 else 0)
        begin[axis] = min(max(start, 0), extent)
        step[axis] = steps[0][position] if steps else 1
    if any(s < 1 for s in step):
        raise RejectedError("it runs backwards")
    if step[-1] != 1:
        raise RejectedError(f"it steps by {step[-1]} through the channels")
    layer = Slice("slice", ("0",), "out", tuple(begin), tuple(step))
    return Match(layer, {"0": tensor, "out": out}, (call.args[0],))


RECORD = Record((Slice,), (Composite("slice", _patterns, _parse),))
