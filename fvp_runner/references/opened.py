"""Which reference a model file has, by its kind.

Invariant: what a reference needs is imported when the first of its kind is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npu_memplan.models.float_ends import read_source
from npu_memplan.models.frameworks import is_onnx, is_torch
from npu_memplan.models.tosa import is_tosa

if TYPE_CHECKING:
    from .base import FrameworkReference
    from .kernels import TFLiteReference


def open_reference(path: Path, io: str = "file") -> TFLiteReference | FrameworkReference:
    """The reference of the model at `path`, with the inputs and outputs that `compile --io` asks for.

    Raises `ReferenceRunError` when it is not there or cannot be read.
    """
    if is_onnx(path):
        from .other_formats import OnnxReference

        return OnnxReference(path, path.name)
    if is_torch(path):
        from .other_formats import TorchReference

        return TorchReference(path)
    data = read_source(path, io)
    if is_tosa(data):
        from .other_formats import TosaReference

        return TosaReference(data, path.name)
    from .kernels import TFLiteReference

    return TFLiteReference(data, path.name)
