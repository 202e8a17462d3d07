"""What the front doors of the formats share: how a file is refused that only TVM's frontend has seen.

Invariant: whatever TVM's frontends raise leaves `frontend` as one typed error.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import TypeVar

from ..errors import NpuMemplanError, RefusalError, said_by

T = TypeVar("T")


class TvmFrontendError(RefusalError):
    """TVM's frontend cannot import a model."""


def imported(framework: str, name: str, importer: Callable[[], T], **said: int) -> T:
    """What `importer` makes of a file, quietly; `TvmFrontendError` (see `said_by`) for what is no error of our own."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return importer()
    except NpuMemplanError:
        raise
    except Exception as error:  # the frontend raises whatever comes first
        reason = said_by(error, **said)
        raise TvmFrontendError(f"TVM's {framework} frontend cannot import {name}: {reason}") from error
