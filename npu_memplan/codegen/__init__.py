"""From a planned module to the C sources of an artifact. See `sources.write_sources`."""

from ..errors import NpuMemplanError


class CodegenError(NpuMemplanError):
    """A module is not in the planned form that C can be printed from."""
