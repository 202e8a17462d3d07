"""The tvmc command line of the microNPU flow, on today's TVM."""

from ..errors import NpuMemplanError


class TvmcError(NpuMemplanError):
    """An option of tvmc is wrong, or has no meaning here; the message says what to use instead."""
