"""The reference every run is compared with: others' kernels, and one's own references for one's own operators.

Invariant: it is of a file that Vela has not made.
"""

from __future__ import annotations

from .base import KeptStates, tflite_source
from .composed import ComposedReference, has_own_operators
from .kernels import KernelsReference


class TFLiteReference(KernelsReference):
    """The reference of a .tflite file."""

    def __init__(self, model: bytes, name: str = "reference") -> None:
        super().__init__(model, tflite_source(model, name))

    def _choice(self) -> KeptStates:
        own = has_own_operators(self.network)
        return ComposedReference(self.model, self.network) if own else super()._choice()
