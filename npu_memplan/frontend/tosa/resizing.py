"""RESIZE of TOSA: which stored values it picks or mixes.

Invariant: positions are the specification's, `(index * denominator + offset) / numerator`; the nearest one is taken,
halves the next one, or both neighbours by weights.
"""

from __future__ import annotations

from fractions import Fraction

from ...ethosu.layers.resize import Phase, Resize
from ...ethosu.lower.scaling import Scale
from ...ethosu.reading.reader import RejectedError
from ...models.tosa_graph import TosaOperator
from .builder import GraphBuilder

_NEAREST, _BILINEAR = 1, 2  # ResizeMode
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
    return _layer(builder, operator, mixes=False)


def mixed_layer(builder: GraphBuilder, operator: TosaOperator, scale: Scale) -> Resize:
    """The layer of a RESIZE that mixes neighbours, whose sums are multiplied by `scale`."""
    if operator.number(0) != _BILINEAR or builder.dtype(operator.inputs[0]) != "int8":
        raise RejectedError(f"RESIZE makes {builder.dtype(operator.outputs[0])} of {builder.dtype(operator.inputs[0])}")
    (rows, *_), (columns, *_) = _axes(operator)
    if scale.multiplier * rows * columns != 1 << scale.shift:
        raise RejectedError(f"its sums are not divided by {rows * columns}, which its weights add up to")
    return _layer(builder, operator, mixes=True)


def _layer(builder: GraphBuilder, operator: TosaOperator, mixes: bool) -> Resize:
    shape, wanted = builder.shape(operator.inputs[0]), builder.shape(operator.outputs[0])
    rows, columns = (
        _phases(numerator, denominator, offset, (shape[1 + axis], wanted[1 + axis]), mixes)
        for axis, (numerator, denominator, offset, _) in enumerate(_axes(operator))
    )
    return Resize("resize", (builder.moved(operator.inputs[0]),), "", rows, columns, halves_up=mixes)


def _axes(operator: TosaOperator) -> list[tuple[int, int, int, int]]:
    """Numerator, denominator, offset and border along height and width."""
    scale, offset, border = operator.shapes
    found = [(scale[2 * axis], scale[2 * axis + 1], offset[axis], border[axis]) for axis in (0, 1)]
    if any(numerator < 1 or denominator < 1 for numerator, denominator, _, _ in found):
        raise RejectedError(f"its scale is {list(scale)}")
    return found


def _phases(numerator: int, denominator: int, offset: int, sizes: tuple[int, int], mixes: bool) -> tuple[Phase, ...]:
    size, wanted = sizes
    factor, rest = divmod(numerator, denominator)
    if rest or factor > _MOST or wanted != factor * size:
        raise RejectedError(f"it makes {wanted} positions of {size}; the NPU makes up to {_MOST} of each")
    phases = []
    for index in range(factor):
        first, part = divmod(index * denominator + offset, numerator)
        weight = Fraction(part, numerator)
        if not mixes:
            first, weight = first + (2 * part >= numerator), Fraction(0)
        if not -1 <= first <= 1 - mixes:
            raise RejectedError(f"its offset {offset} is more than one position")
        if weight.denominator & (weight.denominator - 1):
            raise RejectedError(f"it mixes neighbours by parts of {weight.denominator}; only powers of two are exact")
        phases.append(Phase(first, weight.numerator, weight.denominator))
    return tuple(phases)
