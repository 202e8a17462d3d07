"""RESIZE_BILINEAR of float32.

Invariant: the four products of an element are summed in the reference's order.
"""

from __future__ import annotations

from ..operator import Lowering, lowering
from ..resize import mixed_in_float
from .numbers import REAL, same


@lowering("RESIZE_BILINEAR", plain=True)
def resize_bilinear(work: Lowering) -> None:
    """Each output element mixes four input elements."""
    import tflite

    same((work.tensor(0), work.output()), REAL)
    mixed_in_float(work, work.options(tflite.ResizeBilinearOptions))
