"""The operators of the TFLite format: the table of them, their shape rules, and the validator of models.

Invariant: nothing here depends on what a compiler can do.
"""

from __future__ import annotations

from .shapes import Shape as Shape
from .shapes import ShapeError as ShapeError
from .validation import ContradictionError as ContradictionError
from .validation import result_shapes as result_shapes
from .validation import validate_network as validate_network
