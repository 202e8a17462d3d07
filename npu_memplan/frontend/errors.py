"""What the front doors of the formats share: how a file is refused that only TVM's frontend has seen.

Invariant: whatever TVM's frontends raise leaves `frontend` as one typed error.
"""

from __future__ import annotations

from ..errors import NpuMemplanError


class TvmFrontendError(NpuMemplanError):
    """TVM's frontend cannot import a model."""
