"""RESIZE of TOSA: which stored values it picks.

Invariant: positions are the specification's, `(index * denominator + offset) / numerator`, of which the nearest one is
taken, halves the next one.
"""

from __future__ import annotations

from ...ethosu.layers.resize import Phase, Resize
from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import GraphBuilder

_NEAREST = 1  # ResizeMode
_MOST = 16  # output positions for one of the input


def resized_shape(operator: TosaOperator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of its result."""
    extents = []
    for axis, (numerator, denominator, offset, border) in enumerate(_axes(operator)):
        last = (shape[1 + axis] - 1) * numerator - offset + border
        if last < 0 or last % denominator:
            raise RejectedError(f"its positions do not end at the border {border}")
        extents.append(last // denominator + 1)
    return shape[0], extents[0], extents[1], shape[3]


def nearest_layer(builder: GraphBuilder, operator: TosaOperator) -> Resize:
    """The layer of a RESIZE that picks values."""
    if operator.number(0) != _NEAREST:
        raise RejectedError("it mixes neighbours; those that pick the nearest are taken")
    shape, wanted = builder.shape(operator.inputs[0]), builder.shape(operator.outputs[0])
    rows, columns = (
        _phases(numerator, denominator, offset, shape[1 + axis], wanted[1 + axis])
        for axis, (numerator, denominator, offset, _) in enumerate(_axes(operator))
    )
    return Resize("resize", (builder.moved(operator.inputs[0]),), "", rows, columns)


def _axes(operator: TosaOperator) -> list[tuple[int, int, int, int]]:
    """Numerator, denominator, offset and border along height and width."""
    scale, offset, border = operator.shapes
    found = [(scale[2 * axis], scale[2 * axis + 1], offset[axis], border[axis]) for axis in (0, 1)]
    if any(numerator < 1 or denominator < 1 for numerator, denominator, _, _ in found):
        raise RejectedError(f"its scale is {list(scale)}")
    return found


def _phases(numerator: int, denominator: int, offset: int, size: int, wanted: int) -> tuple[Phase, ...]:
    factor, rest = divmod(numerator, denominator)
    if rest or factor > _MOST or wanted != factor * size:
        raise RejectedError(f"it makes {wanted} positions of {size}; the NPU makes up to {_MOST} of each")
    phases = []
    for index in range(factor):
        position, part = divmod(index * denominator + offset, numerator)
        first = position + (2 * part >= numerator)
        if not -1 <= first <= 1:
            raise RejectedError(f"its offset {offset} is more than one position")
        phases.append(Phase(first))
    return tuple(phases)
