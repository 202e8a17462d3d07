"""Element-wise operations of dense maps of which one may be broadcast, also along images or rows alone.

Invariant: shapes have four dimensions; of two maps that meet, one has the size of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..stream.isa import ElementwiseMode
from .emit import LoweringError
from .emit_context import EmitContext
from .operands import Operand, Output
from .scaling import UNITY
from .views import TensorView

_MOST_IMAGES = 64
Shape = tuple[int, ...]


def four(shape: Shape) -> Shape:
    """`shape` in four dimensions."""
    return (1,) * (4 - len(shape)) + shape


def joined(first: Shape, second: Shape) -> Shape:
    """The shape of both; none where neither has it."""
    made = tuple(max(pair) for pair in zip(first, second, strict=True))
    fit = all(n in (1, m) for shape in (first, second) for n, m in zip(shape, made, strict=True))
    return made if fit and made in (first, second) else ()


def unfit(shapes: Sequence[Shape], joins: Sequence[tuple[Shape, Shape]]) -> str | None:
    """Why maps of `shapes`, of which the last is the result, cannot meet in these pairs, of which the last has it."""
    whole = shapes[-1]
    if not folds(shapes) and whole[0] > _MOST_IMAGES:
        return f"it broadcasts parts of {whole[0]} images; at most {_MOST_IMAGES} pay on the NPU"
    if not all(a and b and joined(a, b) for a, b in joins) or joined(*joins[-1]) != whole:
        stated = ", ".join(str(list(shape)) for shape in shapes[:-1])
        return f"its operands, {stated}, would have to be broadcast to {list(whole)} two at a time"
    return None


def folds(shapes: Sequence[Shape]) -> bool:
    """Whether rows of all images are rows of one: nothing is broadcast along only one of the two."""
    images, height = shapes[-1][:2]
    return images == 1 or all(shape[:2] in ((images, height), (1, 1)) for shape in shapes)


def images(context: EmitContext, names: Sequence[str], shapes: Sequence[Shape]) -> Iterator[list[TensorView]]:
    """The tensors as [H, W, C], the result last: all images as one, or of each what it needs."""
    views = [_dense(context.view(name), shape) for name, shape in zip(names, shapes, strict=True)]
    if folds(shapes):
        yield [_dense(view, (n * h, w, c)) for view, (n, h, w, c) in zip(views, shapes, strict=True)]
        return
    for image in range(shapes[-1][0]):
        yield [_image(view, image) for view in views]


def combine(context: EmitContext, mode: ElementwiseMode, first: Operand, second: Operand, made: Operand) -> None:
    """One operation without scales."""
    info, swap = np.iinfo(made.dtype), first.view.shape != made.view.shape
    ifm, ifm2 = (second, first) if swap else (first, second)
    context.builder.elementwise(mode, ifm, ifm2, made, Output((int(info.min), int(info.max)), UNITY), swap=swap)


def combined(
    context: EmitContext, mode: ElementwiseMode, first: Operand, second: Operand, name: str, dtype: str
) -> Operand:
    """The same into a map of its own."""
    made = context.builder.temporary(name, joined(first.view.shape, second.view.shape), dtype)
    combine(context, mode, first, second, made)
    return made


def _dense(view: TensorView, shape: Shape) -> TensorView:
    found = view.reshaped(shape)
    if found is None:
        raise LoweringError(f"the bytes of {view} are not dense: they cannot be read as {shape}")
    return found


def _image(view: TensorView, image: int) -> TensorView:
    """One of the images, or the one that is of all."""
    first = image * view.strides[0] if view.shape[0] > 1 else 0
    return replace(view, offset=view.offset + first, shape=view.shape[1:], strides=view.strides[1:])
