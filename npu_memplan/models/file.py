"""The bytes of a model file, and what every reader says of one that it cannot read.

Invariant: a model that cannot be used is a `NetworkError` (the file) or an `UnsupportedModelError` (what it needs).
"""

from __future__ import annotations

from pathlib import Path

from ..errors import NpuMemplanError, RefusalError
from ..files.paths import read_bytes


class NetworkError(NpuMemplanError):
    """A file is not a readable TFLite or Vela raw network."""


class UnsupportedModelError(RefusalError):
    """A model has operators that neither the NPU nor the host can run."""


def read_file(path: Path) -> bytes:
    """The bytes of a model file; `NetworkError` when it cannot be read."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise NetworkError(f"cannot read {path}: {error.strerror or error}") from None
