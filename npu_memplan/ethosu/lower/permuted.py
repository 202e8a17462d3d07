"""Stored values in another order of their dimensions, by operations of Ethos-U85 that store results in another order.

Invariant: `axes` of the target are those of the source in their order, neither is in bricks, and both have their last
dimension's elements one after the other; each value is moved once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..stream.isa import StoredOrder
from .emit import Builder
from .emit_u85 import store_in_order
from .operands import Operand
from .views import TensorView

_ORDERS = {order.axes: order for order in StoredOrder}


@dataclass(frozen=True, slots=True)
class _Axis:
    """A dimension of the source: its extent, bytes from element to element in both, and its place in the target."""

    size: int
    read: int
    written: int
    place: int


def permute(builder: Builder, source: TensorView, target: TensorView, axes: tuple[int, ...], dtype: str) -> None:
    """Append the operations by which dimension i of `target` becomes dimension `axes[i]` of `source`."""
    for a, b, order in _moves(source, target, axes):
        store_in_order(builder, Operand(a, dtype), Operand(b, dtype), order)


def operations(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """How many operations `permute` appends for a dense tensor of `shape`."""
    source = TensorView.dense("", shape, 1)
    target = TensorView.dense("", tuple(shape[axis] for axis in axes), 1)
    return sum(1 for _ in _moves(source, target, axes))


def _moves(
    source: TensorView, target: TensorView, axes: tuple[int, ...]
) -> Iterator[tuple[TensorView, TensorView, StoredOrder]]:
    """Views as [H, W, C] of both, and how the second is stored."""
    found = _joined(source, target, axes)
    last = max(found, key=lambda axis: axis.place)
    outer = [axis for axis in found[:-1] if axis is not last]
    outer = sorted(outer, key=lambda axis: axis.size)[: max(0, len(found) - 3)]  # what the NPU has no axis for
    inner = [axis for axis in found if axis not in outer]
    inner = [_Axis(1, 0, 0, -1)] * (3 - len(inner)) + inner
    stored = sorted(range(3), key=lambda i: inner[i].place)
    for places in product(*(range(axis.size) for axis in outer)):
        read = sum(place * axis.read for place, axis in zip(places, outer, strict=True))
        written = sum(place * axis.written for place, axis in zip(places, outer, strict=True))
        yield (
            _view(source, source.offset + read, [(axis.size, axis.read) for axis in inner]),
            _view(target, target.offset + written, [(inner[i].size, inner[i].written) for i in stored]),
            _ORDERS[stored[0], stored[1], stored[2]],
        )


def _view(whole: TensorView, offset: int, axes: list[tuple[int, int]]) -> TensorView:
    shape, strides = zip(*axes, strict=True)
    return TensorView(whole.buffer, offset, shape, strides, whole.element_bytes)


def _joined(source: TensorView, target: TensorView, axes: tuple[int, ...]) -> list[_Axis]:
    """The dimensions of the source in their order, without those of one element; those that follow each other in both
    are one.
    """
    places = {axis: place for place, axis in enumerate(axes)}
    found: list[_Axis] = []
    for axis, (size, read) in enumerate(zip(source.shape, source.strides, strict=True)):
        if size == 1:
            continue
        mine = _Axis(size, read, target.strides[places[axis]], places[axis])
        before = found[-1] if found else None
        if before is not None and _follow(before, mine, source.shape, axes):
            found[-1] = _Axis(before.size * size, read, mine.written, mine.place)
        else:
            found.append(mine)
    return found or [_Axis(1, source.element_bytes, target.element_bytes, 0)]


def _follow(before: _Axis, after: _Axis, shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether two dimensions of the source that follow each other do so in the target, without gaps in either."""
    between = axes[before.place + 1 : after.place]
    together = before.place < after.place and all(shape[axis] == 1 for axis in between)
    return together and (before.read, before.written) == (after.size * after.read, after.size * after.written)
