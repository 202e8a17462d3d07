"""A TFLite flatbuffer as Relax, for tests of what comes behind the import."""

from __future__ import annotations

from typing import Any

from npu_memplan.frontend.tflite.lowered import import_operators
from npu_memplan.models.tflite import read_network


def import_relax(model: bytes) -> Any:
    """The IRModule of a TFLite flatbuffer, on the host only what TVM's frontend cannot import."""
    return import_operators(model, read_network(model), {}).module
