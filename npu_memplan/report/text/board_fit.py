"""What is said when a plan fits its pools, but not all of its board.

Invariant: a plan's pools are as large as the board's memories, so what is left to lack is room for constants.
"""

from __future__ import annotations

from ...artifact import Artifact
from ...errors import NpuMemplanError
from ..facts.fit import fit_of
from ..facts.memory import both


class BoardFitError(NpuMemplanError):
    """A compiled model does not fit the memories of its board."""


def check_fit(artifact: Artifact) -> None:
    """`BoardFitError` when a memory of the board has to hold more than it has."""
    fit = fit_of(artifact)
    short = None if fit is None else fit.short
    if fit is None or short is None:
        return
    board = fit.board
    raise BoardFitError(
        f"{artifact.name} does not fit {short.memory.name} of board {board.name}: {', '.join(short.holds)} need "
        f"{both(short.used_bytes)}, it has {both(short.memory.size_bytes)}, {both(-short.headroom_bytes)} "
        "too few; choose another --memory-mode, or name another memory with --constant-pool; "
        "npu-memplan compile --all-boards says where it fits"
    )
