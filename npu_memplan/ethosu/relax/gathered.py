"""Moves one after the other that, together, take channels of each pixel: one gather of channels.

Invariant: what a chain of moves does is found by doing it to the elements' numbers, so no order of operators is known
here; a chain is replaced only where every pixel keeps its place and all take the same channels. Channel shuffles of
grouped networks are such chains, over tensors of five dimensions that no NPU operation walks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from ..reading.reader import RejectedError, name_of, number, shape_of

_RESHAPES = ("reshape", "squeeze", "expand_dims", "flatten")
_ORDERS = ("permute_dims", "take")  # chains of the others are views already
_MOVES = (*_RESHAPES, *_ORDERS, "strided_slice")
_TYPES = ("int8", "uint8")  # that the NPU gathers


@relax.expr_functor.mutator
class ChainsToGathers(relax.PyExprMutator):  # type: ignore[misc]
    """One function at a time; what is left of a chain without readers is dead code."""

    def visit_call_(self, call: Any) -> Any:
        made = super().visit_call_(call)
        if name_of(call) not in _MOVES or str(call.ty.dtype) not in _TYPES:
            return made
        chain, sources = [call], [made.args[0]]
        while isinstance(sources[-1], relax.Var):
            before = self.lookup_binding(sources[-1])
            if name_of(before) not in _MOVES:
                break
            chain.append(before)
            sources.append(before.args[0])
        if len(chain) == 1 or not any(name_of(move) in _ORDERS for move in chain):
            return made
        try:
            for length in range(len(chain), 0, -1):
                source = sources[length - 1]
                channels = _channels(chain[length - 1 :: -1], shape_of(source.ty), shape_of(call.ty))
                if channels is not None:
                    return _taken(source, channels)
        except RejectedError:  # a shape that is not known
            pass
        return made


def _channels(moves: Sequence[Any], before: tuple[int, ...], after: tuple[int, ...]) -> NDArray[np.int32] | None:
    """Which channel of [1, H, W, C] each channel after `moves` is; None where they do something else, too."""
    if len(before) != 4 or len(after) != 4 or before[0] != 1 or before[:3] != after[:3]:
        return None
    numbers = np.arange(np.prod(before), dtype=np.int32).reshape(before)
    for move in moves:
        moved = _moved(move, numbers)
        if moved is None:
            return None
        numbers = moved
    pixels = numbers.reshape(-1, after[3])
    first = np.arange(len(pixels), dtype=np.int32)[:, None] * before[3]
    return pixels[0] if np.array_equal(pixels, first + pixels[0]) and pixels[0].max() < before[3] else None


def _moved(move: Any, values: NDArray[np.int32]) -> NDArray[np.int32] | None:
    """What `move` makes of `values`; None where its arguments are no constants."""
    name, attributes = name_of(move), move.attrs
    if name in _RESHAPES:
        return values.reshape(shape_of(move.ty))
    if name == "permute_dims":
        axes = range(values.ndim)[::-1] if attributes.axes is None else attributes.axes
        return np.transpose(values, tuple(int(axis) for axis in axes))
    if name == "take":
        places = getattr(move.args[1], "value", None)
        if places is None or attributes.axis is None:
            return None
        return np.take(values, np.asarray(places.numpy(), np.int32), int(attributes.axis))
    written = [list(a.fields) for a in move.args[1:] if isinstance(a, relax.Tuple)]
    axes, begins, ends, *steps = ([int(number(v)) for v in fields] for fields in written)
    box = [slice(None)] * values.ndim
    for i, axis in enumerate(axes):
        box[axis] = slice(begins[i], ends[i], steps[0][i] if steps else 1)
    cut = values[tuple(box)]
    return cut if cut.shape == shape_of(move.ty) else None


def _taken(source: Any, channels: NDArray[np.int32]) -> Any:
    """`channels` of `source`, as a view where they are together."""
    first, depth = int(channels[0]), len(channels)
    if not np.array_equal(channels, np.arange(first, first + depth)):
        return relax.op.take(source, relax.const(channels), axis=3)
    if depth == shape_of(source.ty)[3]:
        return source
    return relax.op.strided_slice(source, [3], [first], [first + depth], [1], assume_inbound=True)
