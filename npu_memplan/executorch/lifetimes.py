"""When the planned tensors of a method are needed, read off its instructions.

Invariant: a tensor lives from the first instruction that names it to the last, inputs from the first instruction on,
outputs to the last one, and what has a value before the first inference (data in the file, or read before anything
writes it) always. Tensors that share bytes on purpose (views, in-place operators) count once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..models.executorch.program import (
    VIEW,
    DelegateCall,
    JumpFalseCall,
    KernelCall,
    Method,
    MethodInstruction,
    MoveCall,
    values_of,
)


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

    def shares(self, other: PlacedTensor) -> bool:
        """Whether the two have bytes in common while both are needed."""
        same = self.memory == other.memory and self.first < other.last and other.first < self.last
        return same and self.offset_bytes < other.end_bytes and other.offset_bytes < self.end_bytes


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """Tensors that keep their distances: `members` are values with their offsets in the block."""

    memory: int
    size_bytes: int
    first: int
    last: int
    members: Mapping[int, int]


def placed_tensors(method: Method) -> tuple[PlacedTensor, ...]:
    """The planned tensors that anything names, in the order of the method's values."""
    lives = _with_aliases(method, _named(method))
    found = []
    for index in sorted(lives):
        tensor = method.tensor(index)
        if tensor is not None and tensor.place is not None:
            place = tensor.place
            found.append(PlacedTensor(index, place.memory_id, place.offset_bytes, tensor.size_bytes, *lives[index]))
    return tuple(found)


def tensor_blocks(method: Method) -> tuple[TensorBlock, ...]:
    """The placed tensors; those that share bytes while both are needed (the file says that they may) are one block."""
    placed = [tensor for tensor in placed_tensors(method) if tensor.size_bytes]
    owner = list(range(len(placed)))
    for number, one in enumerate(placed):
        for other in range(number):
            if one.shares(placed[other]):
                joined = (owner[number], owner[other])
                owner = [min(joined) if held in joined else held for held in owner]
    blocks = []
    for first in sorted(set(owner)):
        members = [one for one, held in zip(placed, owner, strict=True) if held == first]
        start = min(one.offset_bytes for one in members)
        blocks.append(
            TensorBlock(
                members[0].memory,
                max(one.end_bytes for one in members) - start,
                min(one.first for one in members),
                max(one.last for one in members),
                {one.value: one.offset_bytes - start for one in members},
            )
        )
    return tuple(blocks)


def _named(method: Method) -> dict[int, tuple[int, int]]:
    """The instructions (half-open) from the first to the last that names each tensor."""
    count = max(len(method.instructions), 1)
    lives: dict[int, tuple[int, int]] = {}
    states: set[int] = set()
    unclear: set[int] = set()  # first named by a delegate, as an input or an output
    for position, instruction in enumerate(method.instructions):
        written = _written(method, instruction)
        ends = instruction.arguments[:1] + instruction.arguments[-1:] if isinstance(instruction, KernelCall) else ()
        in_place = ends[0] if len(set(ends)) == 1 else -1
        for value in values_of(instruction):
            for index in method.tensors_in(value):
                if index not in lives and isinstance(instruction, DelegateCall):
                    unclear.add(index)
                elif (index not in lives and index not in written) or (index in unclear and in_place == value):
                    states.add(index)  # read first: a state, unless it is an input
                lives[index] = (lives.get(index, (position, 0))[0], position + 1)
    inputs = {i for value in method.inputs for i in method.tensors_in(value)}
    for index in inputs:
        lives[index] = (0, lives.get(index, (0, 1))[1])
    for index in (i for value in method.outputs for i in method.tensors_in(value)):
        lives[index] = (lives.get(index, (count - 1, 0))[0], count)
    for index in lives:
        tensor = method.tensor(index)
        if tensor is not None and (tensor.has_data or index in states - inputs):
            lives[index] = (0, count)
    return lives


def _written(method: Method, instruction: MethodInstruction) -> set[int]:
    """Tensors that an instruction may write without reading them: kernels name them last, but first where in place."""
    if isinstance(instruction, KernelCall) and instruction.arguments:
        return {*method.tensors_in(instruction.arguments[-1])} - {*method.tensors_in(instruction.arguments[0])}
    return set(values_of(instruction))


def _with_aliases(method: Method, lives: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Tensors whose memory another value takes live as long as that one; in a loop, all that it meets live through."""
    pairs, loops = [], []
    for position, instruction in enumerate(method.instructions):
        if isinstance(instruction, MoveCall):
            pairs.append((instruction.source, instruction.target))
        elif isinstance(instruction, KernelCall) and instruction.name == VIEW:
            pairs.append((instruction.arguments[0], instruction.arguments[-1]))
        elif isinstance(instruction, JumpFalseCall) and instruction.destination <= position:
            loops.append((instruction.destination, position + 1))
    changed = bool(pairs or loops)
    while changed:
        before = dict(lives)
        for pair in pairs:
            spans = [lives[index] for index in pair if index in lives]
            for index in pair if spans else ():
                lives[index] = (min(span[0] for span in spans), max(span[1] for span in spans))
        for start, end in loops:
            for index, (first, last) in lives.items():
                if first < end and start < last:
                    lives[index] = (min(first, start), max(last, end))
        changed = lives != before
    return lives


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
