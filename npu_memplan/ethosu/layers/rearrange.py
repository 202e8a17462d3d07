"""Stored values at other places, by copies of strided boxes: TILE, MIRROR_PAD, GATHER, DEPTH_TO_SPACE and the like.

Invariant: the boxes of the output do not overlap and cover it; no box steps through channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

from ..lower.emit import LoweringError
from ..lower.emit_context import EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.record import Composite, Record
from ..lower.tensors import LayerTensor
from ..lower.views import TensorView
from ..reading.patterns import host_call
from ..reading.reader import DescribedCall, Match, Reader, RejectedError

_MOST_COPIES = 64  # an operation each; more take longer than the host


class Box(NamedTuple):
    """Elements `begin + i * step` of each axis, for i below `shape`."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]
    step: tuple[int, ...]


Move = tuple[Box, Box]  # of the input, of the output


@dataclass(frozen=True, slots=True, eq=False)
class Rearrange(Layer):
    """Each box of the input in its place of the output."""

    moves: tuple[Move, ...]

    limits: ClassVar[Limits] = Limits()
    traits: ClassVar[StorageTraits] = StorageTraits(keeps_scale=True)

    def unsupported_reason(self, inputs: tuple[LayerTensor, ...], output: LayerTensor) -> str | None:
        count = sum(math.prod(box.shape[:-3]) for box, _ in self.moves)
        return f"it takes {count} copies; at most {_MOST_COPIES} pay on the NPU" if count > _MOST_COPIES else None

    def emit(self, context: EmitContext) -> None:
        source, target = context.view(self.inputs[0]), context.view(self.output)
        for read, written in self.moves:
            context.copy(_part(source, read), _part(target, written), context.tensors[self.output].dtype)


def _part(view: TensorView, box: Box) -> TensorView:
    found = view.box(*box)
    if found is None:
        raise LoweringError(f"{view} has no box {box}")
    return found


def picked(places: Sequence[Sequence[int]]) -> Iterator[Move]:
    """Axis i of the output is `places[i]` of axis i of the input."""
    last = len(places) - 1
    runs = [list(_runs(axis, number == last)) for number, axis in enumerate(places)]
    for parts in product(*runs):
        begins, froms, steps, counts = zip(*parts, strict=True)
        yield Box(froms, counts, steps), Box(begins, counts, (1,) * len(counts))


def _runs(places: Sequence[int], dense: bool) -> Iterator[tuple[int, int, int, int]]:
    """Places that follow each other in equal steps (of 1 where `dense`): where the run begins in the output and in
    the input, the step, how many.
    """
    first = 0
    while first < len(places):
        stop = first + 1
        step = places[stop] - places[first] if stop < len(places) else 1
        if step < 1 or (dense and step != 1):
            step = 1
        while stop < len(places) and places[stop] - places[stop - 1] == step:
            stop += 1
        yield first, places[first], step, stop - first
        first = stop


def depth_and_space(packed: tuple[int, ...], block: int) -> Iterator[Move]:
    """Boxes of what has blocks as channels, whose shape is `packed`, and of what has them as places."""
    *outer, channels = packed
    shape = (*outer, channels // block**2)
    for row, column in product(range(block), repeat=2):
        first = (row * block + column) * shape[-1]
        yield Box((0, 0, 0, first), shape, (1, 1, 1, 1)), Box((0, row, column, 0), shape, (1, block, block, 1))


def batch_and_space(
    image: tuple[int, ...], batch: tuple[int, ...], block: tuple[int, int], before: tuple[int, int]
) -> Iterator[Move]:
    """Boxes of images, in which places of a block lie next to each other, and of a batch that has images of each such
    place; `before`: rows and columns that the batch has before the images.
    """
    for place, phase in enumerate(product(*map(range, block))):
        spans = [_inside(phase[i] - before[i], block[i], image[1 + i], batch[1 + i]) for i in range(2)]
        if not all(count for _, count in spans):
            continue
        firsts, counts = zip(*spans, strict=True)
        shape = (image[0], *counts, image[3])
        row, column = (phase[i] - before[i] + firsts[i] * block[i] for i in range(2))
        yield Box((0, row, column, 0), shape, (1, *block, 1)), Box((place * image[0], *firsts, 0), shape, (1, 1, 1, 1))


def _inside(offset: int, step: int, extent: int, count: int) -> tuple[int, int]:
    """The first of the numbers i below `count` for which `offset + i * step` is within `extent`, and how many are."""
    first = max(0, -(offset // step))
    return first, max(0, min(count, -((offset - extent) // step)) - first)


# ---------------------------------------------------------------------- in Relax


def _match(reader: Reader, root: Any, name: str, moves: Sequence[Move]) -> Match:
    call = DescribedCall(reader, root)
    return Match.of(Rearrange(name, ("0",), "out", tuple(moves)), call.output(), call.activation("input", "0"))


def _picked(reader: Reader, root: Any) -> Match:
    places = [[int(place) for place in axis] for axis in DescribedCall(reader, root).layer["places"]]
    if not places:
        raise RejectedError("its tensor has no dimensions")
    return _match(reader, root, "pick", list(picked(places)))


def _depth_and_space(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    to_space = bool(call.layer["to_space"])
    packed = (call.activation("input", "0")[0] if to_space else call.output()).shape
    if len(packed) != 4:
        raise RejectedError(f"its tensor has {len(packed)} dimensions instead of 4")
    moves = depth_and_space(packed, int(call.layer["block"]))
    return _match(reader, root, "depth_and_space", [m if to_space else (m[1], m[0]) for m in moves])


def _batch_and_space(reader: Reader, root: Any) -> Match:
    call = DescribedCall(reader, root)
    to_batch = bool(call.layer["to_batch"])
    image, batch = call.activation("input", "0")[0].shape, call.output().shape
    if not to_batch:
        image, batch = batch, image
    if len(image) != 4:
        raise RejectedError(f"its tensor has {len(image)} dimensions instead of 4")
    rows, columns = (int(n) for n in call.layer["block"])
    top, _, left, _ = (int(n) for n in call.layer["borders"])
    moves = batch_and_space(image, batch, (rows, columns), (top, left))
    return _match(reader, root, "batch_and_space", [m if to_batch else (m[1], m[0]) for m in moves])


RECORD = Record(
    (Rearrange,),
    (
        Composite("picked", host_call, _picked),
        Composite("depth_and_space", host_call, _depth_and_space),
        Composite("batch_and_space", host_call, _batch_and_space),
    ),
)
