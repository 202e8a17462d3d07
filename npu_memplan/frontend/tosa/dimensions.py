"""Shapes of tensors with more dimensions than layers have, and permutations in steps that layers take.

Invariant: a tensor in another shape here has the same elements in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

Shape = tuple[int, ...]
MOST = 4  # dimensions of a layer's tensor


def stored_shape(shape: Shape) -> Shape:
    """In one to four dimensions: the first ones are one, where there are more."""
    return shape or (1,) if len(shape) <= MOST else (prod(shape[: 1 - MOST]), *shape[1 - MOST :])


def image_shape(shape: Shape) -> Shape:
    """As one image: all but the last two dimensions are its rows."""
    return (1, prod(shape[:-2]), *(1,) * (2 - len(shape)), *shape[-2:])


def around(shape: Shape, axes: Sequence[int]) -> Shape:
    """In three dimensions: those before `axes`, which are neighbours, these, and those after."""
    first, after = min(axes), max(axes) + 1
    return prod(shape[:first]), prod(shape[first:after]), prod(shape[after:])


def joined(shape: Shape, axes: Shape) -> tuple[Shape, Shape]:
    """The same permutation without extents of 1, where dimensions that stay neighbours are one."""
    long = [axis for axis in axes if shape[axis] > 1]
    rank = {axis: place for place, axis in enumerate(sorted(long))}  # among those that are not 1 long
    begins = [i for i, axis in enumerate(long) if i == 0 or rank[axis] != rank[long[i - 1]] + 1]
    runs = [long[a:b] for a, b in pairwise((*begins, len(long)))]
    ordered = sorted(runs)
    return tuple(prod(shape[axis] for axis in run) for run in ordered), tuple(ordered.index(run) for run in runs)


def swaps(shape: Shape, axes: Shape) -> list[tuple[Shape, Shape]]:
    """The permutation as one after the other, each of two neighbours inside at most four dimensions."""
    order, found = list(range(len(axes))), []
    for place, axis in enumerate(axes):
        at = order.index(axis)
        if at == place:
            continue
        front, inner = prod(shape[a] for a in order[:place]), prod(shape[a] for a in order[at + 1 :])
        sizes = (front, prod(shape[a] for a in order[place:at]), shape[axis], inner)
        found.append(joined(sizes, (0, 2, 1, 3)))
        order.insert(place, order.pop(at))
    return found
