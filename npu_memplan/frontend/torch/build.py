"""A file of torch.export with a PT2E-quantised program to one IRModule.

Invariant: whatever TVM's frontend raises is one typed error.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import said_by
from ...models.torch import read_program
from ...options import NO_NPU
from ..errors import TvmFrontendError
from .program import TorchImportError, import_program

if TYPE_CHECKING:
    from ...ethosu.lower.lower import Aim


def build_torch_module(
    path: Path,
    accelerator: str = NO_NPU,
    host_ops: Sequence[str] = (),
    aim: Aim | None = None,
) -> Any:
    """Import the program in `path` and lower it; see `build_qdq_module`.

    Raises `TorchFileError`, `TorchImportError` and `TvmFrontendError` too.
    """
    from ..graph.build import build_qdq_module

    program = read_program(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            imported = import_program(program)
    except TorchImportError:
        raise
    except Exception as error:  # the frontend raises whatever comes first
        raise TvmFrontendError(f"TVM's PyTorch frontend cannot import {path.name}: {said_by(error, 0)}") from error
    return build_qdq_module(imported, path.name, accelerator, host_ops, aim)
