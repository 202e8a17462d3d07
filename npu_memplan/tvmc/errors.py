"""Errors of the tvmc front door."""

from __future__ import annotations

from ..errors import NpuMemplanError


class TvmcError(NpuMemplanError):
    """An option of tvmc is wrong, or has no meaning here; the message says what to use instead."""
