"""Tensors side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..reading import patterns as p
from ..reading.reader import Match, Reader, RejectedError, is_variable, plain

_MOST = 16  # inputs


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Layer):
    """Inputs side by side along `axis` (negative: from the last)."""

    axis: int

    limits: ClassVar[Limits] = Limits()

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        return None if len(output.shape) >= 1 else "it concatenates scalars"

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits(moves=True, keeps_scale=True, begin=partial(self._begin, tensors), gathers=True)

    def _begin(self, tensors: Mapping[str, LayerTensor], index: int) -> tuple[int, ...]:
        begin = [0] * len(tensors[self.output].shape)
        axis = self.axis % len(begin)
        begin[axis] = sum(tensors[name].shape[axis] for name in self.inputs[:index])
        return tuple(begin)

    def emit(self, context: EmitContext) -> None:
        """A copy or a rescale of every input that is not in its place already."""
        whole, out = context.view(self.output), context.tensors[self.output]
        for index, name in enumerate(self.inputs):
            if context.storage.embedded.get(name) == self.output:
                continue
            tensor = context.tensors[name]
            target = whole.box(self._begin(context.tensors, index), tensor.shape)
            assert target is not None  # concatenations are dense
            if (tensor.scale, tensor.zero_point) == (out.scale, out.zero_point):
                context.copy(context.view(name), target, out.dtype)
            else:
                context.rescale(name, target, self.output)


def _patterns() -> Iterator[p.Pattern]:
    for count in range(2, _MOST + 1):
        yield p.op("concat", p.fields(*(p.anything() for _ in range(count))))
        yield from p.finished(p.op("concat", p.fields(*(p.dequantized(p.anything()) for _ in range(count)))))


def _parse(reader: Reader, root: Any) -> Match:
    call = reader.call(root, "concat")
    if call is None:
        call, out, *_ = reader.of_real(root, "concat", 0)
        inputs = [reader.activation(field, str(i)) for i, field in enumerate(_fields(reader, call))]
    else:
        out = plain(call, "out")
        inputs = [(plain(field, str(i)), field) for i, field in enumerate(_fields(reader, call))]
    if not all(is_variable(variable) for _, variable in inputs):
        raise RejectedError("it concatenates constants")
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return Match.of(Concat("concat", tuple(tensor.name for tensor, _ in inputs), "out", axis), out, *inputs)


def _fields(reader: Reader, call: Any) -> list[Any]:
    found = reader.fields(call.args[0])
    if found is None:
        raise RejectedError("it concatenates a tuple that is not written out")
    return found


RECORD = Record((Concat,), (Composite("concat", _patterns, _parse),))
