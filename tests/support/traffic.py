"""What an estimate says that an operation moves."""

from __future__ import annotations

from npu_memplan.ethosu.time import Share


def bytes_of(share: Share, memory: str) -> int:
    """Bytes read from and written to `memory`."""
    return sum(size for (name, _), (size, _, _) in share.traffic.items() if name == memory)
