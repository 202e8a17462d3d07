"""A file of torch.export as its `ExportedProgram`.

Invariant: PyTorch is imported here and only when such a file is read; what is wrong with it is one typed error.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError, describe_error
from ..process.ending import raise_outside_cause
from .flatbuffer import read_file

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
        raise_outside_cause(error)
        raise TorchFileError(f"{path.name} is no file of torch.export.save: {describe_error(error, 0)}") from error
    finally:
        logger.setLevel(before)
