"""The reference every run is compared with: others' kernels, and one's own references for one's own operators.

Invariant: it is of a file that Vela has not made.
"""

from __future__ import annotations

from npu_memplan.models.folding import with_static_shapes

from .base import KeptStates, tflite_source
from .composed import ComposedReference, has_own_operators
from .kernels import KernelsReference


class TFLiteReference(KernelsReference):
    """The reference of a .tflite file."""

    def __init__(self, model: bytes, name: str = "reference") -> None:
        tflite_source(model, name)  # what is no such file is refused first
        static = with_static_shapes(model, name)  # the interpreters take a file's shapes unchanged
        super().__init__(static, tflite_source(static, name))

    def _choice(self) -> KeptStates:
        own = has_own_operators(self.network)
        return ComposedReference(self.model, self.network) if own else super()._choice()
