"""Refusal of files that TVM's frontends cannot import, for all formats that they read.

Invariant: whatever TVM's frontends raise leaves `frontend` as one typed error; an exception that a line of this package
raises is a fault and stays one.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import TypeVar

from ..errors import InternalError, RefusalError, describe_error
from ..process.ending import raise_lack_of_memory
from ..process.incidents import NOT_OURS, is_ours

T = TypeVar("T")


class TvmFrontendError(RefusalError):
    """TVM's frontend cannot import a model."""


class FormatError(RefusalError):
    """The chosen compiler does not read this kind of file."""


def run_importer(framework: str, name: str, importer: Callable[[], T], line: int = -1) -> T:
    """Run `importer` quietly and return its result; `TvmFrontendError` with one line of what a library raises there."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return importer()
    except (*NOT_OURS, InternalError):
        raise
    except Exception as error:  # the frontend raises whatever comes first
        raise_lack_of_memory(error)
        if is_ours(error):
            raise
        reason = describe_error(error, line)
        raise TvmFrontendError(f"TVM's {framework} frontend cannot import {name}: {reason}") from error
