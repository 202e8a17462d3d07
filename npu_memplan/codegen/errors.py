"""Errors of printing C."""

from __future__ import annotations

from ..errors import NpuMemplanError


class CodegenError(NpuMemplanError):
    """A module is not in the planned form that C can be printed from."""
