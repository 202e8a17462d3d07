"""The reference every run of a .tflite file is compared with.

Invariant: it is of a file that Vela has not made.
"""

from __future__ import annotations

from npu_memplan.models.folding import with_static_shapes

from .base import tflite_source
from .kernels import KernelsReference


class TFLiteReference(KernelsReference):
    """The reference of a .tflite file."""

    def __init__(self, model: bytes, name: str = "reference") -> None:
        tflite_source(model, name)  # what is no such file is refused first
        static = with_static_shapes(model, name)  # the interpreters take a file's shapes unchanged
        super().__init__(static, tflite_source(static, name))
