"""The reference of a model file, by its kind.

Invariant: what a reference needs is imported when the first of its kind is opened.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from npu_memplan.models.edits import read_source
from npu_memplan.models.frameworks import is_onnx, is_torch
from npu_memplan.models.tosa import is_tosa
from npu_memplan.process.programs import ending_signal

from .base import ReferenceRunError

if TYPE_CHECKING:
    from .base import FrameworkReference
    from .kernels import TFLiteReference


def open_reference(path: Path, io: str = "file", apart: bool = True) -> TFLiteReference | FrameworkReference:
    """The reference of the model at `path`, with the inputs and outputs that `compile --io` asks for.

    Raises `ReferenceRunError` when it is not there or cannot be read; `apart`: also where it would end this process.
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
    return open_tflite(data, path.name, apart)


def open_tflite(data: bytes, name: str, apart: bool = True) -> TFLiteReference:
    """The reference of a .tflite file. Kernels may end their process for what they do not take, so it is opened in
    another one first, where small files and those with branches or loops run once; not where `apart` is False, in a
    process that may end."""
    from .kernels import TFLiteReference

    if apart and (number := ending_signal(partial(_try_reference, data, name))):
        raise ReferenceRunError(
            f"no reference can run {name}: its kernels end their process with signal {number}; an operator has options "
            "or scales that they do not take"
        )
    return TFLiteReference(data, name)


_SMALL_BYTES = 1 << 16  # whose inference takes no time that anyone notices


def _try_reference(data: bytes, name: str) -> None:
    from .kernels import TFLiteReference

    reference = TFLiteReference(data, name)
    network = reference.network
    if len(data) <= _SMALL_BYTES or len(network.subgraphs) > 1:
        given = [network.tensors[i] for i in network.inputs]
        for value in (0, 1):  # either branch of what an input of bool decides
            reference.run([np.full(tensor.shape, value, tensor.dtype) for tensor in given])
