"""Which input positions a Relax resize mixes, as phases of the output.

Invariant: positions are computed in exact fractions, as the operator's attributes define them; what does not
repeat with a whole number of output positions, or needs weights that are no binary fractions, is rejected.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ..ethosu.lower.graph import Phase, Resize, Tensor
from .reader import RejectedError

_MOST = 8  # output positions for one of the input
_CORNER, _CENTRES = "align_corners", ("half_pixel", "pytorch_half_pixel")


def resize_layer(call: Any, tensor: Tensor, out: Tensor) -> Resize:
    """The layer of an `image.resize2d` of NHWC tensors."""
    attributes = call.attrs
    if str(attributes.layout) != "NHWC":
        raise RejectedError(f"its layout is {attributes.layout}; only NHWC fits the NPU")
    way, rounding = str(attributes.coordinate_transformation_mode), str(attributes.rounding_method)
    bilinear = str(attributes.method) == "linear"
    rows, columns = (
        _phases(size, wanted, way, None if bilinear else rounding)
        for size, wanted in zip(tensor.shape[1:3], out.shape[1:3], strict=True)
    )
    return Resize("resize", ("0",), "out", rows, columns)


def _phases(size: int, wanted: int, way: str, rounding: str | None) -> tuple[Phase, ...]:
    """Phases of one axis; `rounding` is that of nearest, None for bilinear."""
    inner = 1 if way == _CORNER and size > 1 else 0  # between corners there is one position less
    factor, rest = divmod(wanted - inner, size - inner)
    if rest or not 1 <= factor <= _MOST:
        raise RejectedError(
            f"it resizes {size} positions to {wanted} the {way} way; the NPU makes up to {_MOST} of each"
            + (", and one more at the end" if inner else "")
        )
    return tuple(_phase(_position(way, r, factor), rounding, way) for r in range(factor))


def _position(way: str, index: int, factor: int) -> Fraction:
    """Where output position `index` lies between the input's positions."""
    if way in _CENTRES:
        return Fraction(2 * index + 1, 2 * factor) - Fraction(1, 2)
    if way in ("asymmetric", _CORNER):
        return Fraction(index, factor)
    raise RejectedError(f"it maps positions the {way} way, which no NPU operation does")


def _phase(position: Fraction, rounding: str | None, way: str) -> Phase:
    if rounding is None:
        first = math.floor(position)
        weight = position - first
        if weight.denominator & (weight.denominator - 1):
            raise RejectedError(f"it mixes neighbours by parts of {weight.denominator}; only powers of two are exact")
        return Phase(first, weight.numerator, weight.denominator)
    if rounding == "":
        rounding = "round" if way == _CORNER else "floor"
    half = Fraction(1, 2)
    nearest = {
        "floor": math.floor(position),
        "ceil": math.ceil(position),
        "round": math.floor(position + half),  # TFLite's, half away from zero
        "round_prefer_ceil": math.floor(position + half),
        "round_prefer_floor": math.ceil(position - half),
    }
    if rounding not in nearest:
        raise RejectedError(f"it rounds positions by {rounding}, which no NPU operation does")
    return Phase(nearest[rounding])
