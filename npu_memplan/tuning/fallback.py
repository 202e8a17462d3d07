"""The backend of a compile that neither names one nor tunes: Vela, or else native lowering.

Invariant: a network that either backend accepts is compiled; a note says when it is not the first choice, and the
artifact's options name the one taken.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RefusalError
from ..frontend.load import read
from ..models.flatbuffer import UnsupportedModelError
from ..models.frameworks import is_onnx, is_torch
from ..options import AUTO, NO_NPU, CompileOptions
from ..process.incidents import Fallback, fall_back
from ..request import Loaded, request
from ..vela.lift import LiftError
from ..vela.worker import VelaError

if TYPE_CHECKING:
    from ..frontend.tflite.lowered import Partitioned


def read_by_one(
    model: Path, options: CompileOptions, beyond: str = "", known: dict[object, Partitioned] | None = None
) -> Loaded:
    """The module of the file `model`; pool `beyond` may become larger than it is. `known` as for `read`.

    Raises the first choice's error where no choice takes the model.
    """
    if options.npu_compiler != AUTO or options.is_cut or options.accelerator == NO_NPU:
        return read(model, request(options, beyond), known)
    vela, ours = (request(replace(options, npu_compiler=name), beyond) for name in ("vela", "tvm"))
    if is_onnx(model) or is_torch(model):
        return read(model, ours, known)
    try:
        return read(model, vela, known)
    except (UnsupportedModelError, VelaError, LiftError) as refused:
        try:
            loaded = read(model, ours, known)
        except RefusalError:
            raise refused from None
        fall_back(Fallback.BACKEND, f"native lowering was taken: --npu-compiler vela says: {refused}")
        return loaded
