"""What extraction says when it cannot go on.

Invariant: the message names the function and the value, and what to do about it.
"""

from __future__ import annotations

from ..errors import NpuMemplanError


class ExtractionError(NpuMemplanError):
    """A module cannot be planned: what is missing or not understood, and where."""
