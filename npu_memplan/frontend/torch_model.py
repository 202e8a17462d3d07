"""A file of torch.export with a PT2E-quantised program to one IRModule.

Invariant: PyTorch is imported here and only when such a file is read; what is wrong with it is one typed error.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError
from ..options import NO_NPU
from .checks import read_file, said_by
from .torch_quantised import TorchImportError, import_program
from .tvm_npu import TvmFrontendError

SUFFIX = ".pt2"


class TorchFileError(NpuMemplanError):
    """A file of torch.export is damaged, or PyTorch is not installed."""


def is_torch(path: Path) -> bool:
    """Whether a model file is taken as one of torch.export: by its name."""
    return path.suffix.lower() == SUFFIX


def read_program(path: Path) -> Any:
    """The `ExportedProgram` in a file. Raises `TorchFileError`."""
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the quantised operators
    except ImportError as error:
        raise TorchFileError(f"reading {path.name} needs PyTorch: pip install 'npu_memplan[torch]'") from error
    read_file(path)  # complaints about the file itself
    logger = logging.getLogger("torch.export")
    before = logger.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logger.setLevel(logging.CRITICAL)  # it prints every way that it tried
            return torch.export.load(path)
    except Exception as error:  # zip, pickle, JSON and PyTorch's own
        raise TorchFileError(f"{path.name} is no file of torch.export.save: {said_by(error, 0)}") from error
    finally:
        logger.setLevel(before)


def build_torch_module(
    path: Path, accelerator: str = NO_NPU, host_ops: Sequence[str] = (), fast_region: int = -1
) -> Any:
    """Import the program in `path` and lower it; see `build_qdq_module`.

    Raises `TorchFileError`, `TorchImportError` and `TvmFrontendError` too.
    """
    from .qdq_module import build_qdq_module

    program = read_program(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            imported = import_program(program)
    except TorchImportError:
        raise
    except Exception as error:  # the frontend raises whatever comes first
        raise TvmFrontendError(f"TVM's PyTorch frontend cannot import {path.name}: {said_by(error, 0)}") from error
    return build_qdq_module(imported, path.name, accelerator, host_ops, fast_region)
