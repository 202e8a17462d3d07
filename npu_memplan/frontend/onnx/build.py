"""An ONNX file to one IRModule: checked, through TVM's frontend, and lowered or for the host alone.

Invariant: what is wrong with a file is said before TVM sees it. Quantised models are QDQ exports.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import said_by
from ...models.onnx import read_onnx
from ...options import NO_NPU
from ..errors import TvmFrontendError

if TYPE_CHECKING:
    from ...ethosu.lower.lower import Aim

T = TypeVar("T")


def import_onnx(proto: Any, name: str, importer: Callable[[Any], T]) -> T:
    """What `importer` makes of a checked model, quietly. Raises `TvmFrontendError` for whatever it raises."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return importer(proto)
    except Exception as error:  # the frontend raises whatever comes first
        raise TvmFrontendError(f"TVM's ONNX frontend cannot import {name}: {said_by(error)}") from error


def build_onnx_module(
    model: bytes | Path,
    accelerator: str = NO_NPU,
    host_ops: Sequence[str] = (),
    name: str = "",
    aim: Aim | None = None,
) -> Any:
    """Import `model` and lower it; see `build_qdq_module`. Raises `OnnxError` and `TvmFrontendError` too."""
    from ..graph.build import build_qdq_module
    from .nodes import import_nodes

    name = name or ("model" if isinstance(model, bytes) else model.name)
    imported = import_onnx(read_onnx(model, name), name, import_nodes)
    return build_qdq_module(imported, name, accelerator, host_ops, aim)
