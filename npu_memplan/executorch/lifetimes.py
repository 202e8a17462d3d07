"""When the planned tensors of a method are needed, read off its instructions.

Invariant: a tensor lives from the first instruction that names it to the last, inputs from the first instruction on,
outputs to the last one, and what has a value before the first inference always. Tensors that share bytes on purpose
(views, in-place operators) count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..models.executorch.program import Method, values_of


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A planned tensor: its value in the method, its place, the instructions it lives for (half-open)."""

    value: int
    memory: int
    offset_bytes: int
    size_bytes: int
    first: int
    last: int

    @property
    def end_bytes(self) -> int:
        """One past its last byte."""
        return self.offset_bytes + self.size_bytes


def placed_tensors(method: Method) -> tuple[PlacedTensor, ...]:
    """The planned tensors that anything names, in the order of the method's values."""
    count = max(len(method.instructions), 1)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, instruction in enumerate(method.instructions):
        for value in values_of(instruction):
            for index in method.tensors_in(value):
                first.setdefault(index, position)
                last[index] = position
    for index in (i for value in method.inputs for i in method.tensors_in(value)):
        first[index] = 0
        last.setdefault(index, 0)
    for index in (i for value in method.outputs for i in method.tensors_in(value)):
        first.setdefault(index, count - 1)
        last[index] = count - 1
    found = []
    for index in sorted(first):
        tensor = method.tensor(index)
        if tensor is None or tensor.place is None:
            continue
        span = (0, count) if tensor.has_data else (first[index], last[index] + 1)
        found.append(PlacedTensor(index, tensor.place.memory_id, tensor.place.offset_bytes, tensor.size_bytes, *span))
    return tuple(found)


def live_bytes(method: Method) -> dict[int, int]:
    """Most bytes of each planned buffer that hold something needed at one time: no plan of these tensors has less."""
    tensors = placed_tensors(method)
    return {
        memory: most_held([(t.offset_bytes, t.end_bytes, t.first, t.last) for t in tensors if t.memory == memory])
        for memory in method.planned_bytes
    }


def most_held(placed: Sequence[tuple[int, int, int, int]]) -> int:
    """The most bytes that are held at one time; `placed`: first byte, end, first point, end, of each thing."""
    most = 0
    ordered = sorted(placed)
    for point in sorted({first for _, _, first, _ in ordered}):
        total = reached = 0
        for start, end, first, last in ordered:
            if first <= point < last:
                total += max(0, end - max(reached, start))
                reached = max(reached, end)
        most = max(most, total)
    return most
