"""Bytes around a pool that no right program touches, so that writing past a pool is noticed.

Invariant: the guards touch the pool: the first byte before it and the first byte after it are guards, wherever the
memory has room for them. They are looked at after every run; the first one that has changed is named.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npu_memplan.artifact import Artifact
from npu_memplan.problem import POISON as POISON  # runners take it from here

from .base import RunCheckError

GUARD = 0xC3  # not the poison: a copy of bytes that were never written shows too
GUARD_BYTES = 4096  # on either side, where there is room


class GuardError(RunCheckError):
    """The program wrote outside a pool."""

    def __init__(self, artifact: Artifact, index: int, offset_bytes: int, count: int) -> None:
        pool = artifact.run_pools[index]
        super().__init__(
            f"{artifact.name} wrote outside pool {pool.name!r}, which has bytes [0, {artifact.pool_bytes(pool.name)}): "
            f"the first is byte {offset_bytes}, {count} of the guard bytes around it have changed. The C in src/ and "
            "plan.json do not belong together, or one of them was edited; compile the model again"
        )


class GuardedPool:
    """A pool in this process's memory with guards on both sides."""

    def __init__(self, size_bytes: int, alignment: int) -> None:
        size = max(size_bytes, 1)  # so that every pool has an address of its own
        room = np.empty(GUARD_BYTES + alignment + size + GUARD_BYTES, np.uint8)
        start = GUARD_BYTES + -(room.ctypes.data + GUARD_BYTES) % alignment
        self.pool: npt.NDArray[np.uint8] = room[start : start + size]
        self._before = room[start - GUARD_BYTES : start]
        self._after = room[start + size : start + size + GUARD_BYTES]

    def fill_guards(self) -> None:
        self._before[:] = GUARD
        self._after[:] = GUARD

    def check_guards(self, artifact: Artifact, index: int) -> None:
        """`GuardError` when a guard of pool `index` has changed."""
        before, after = np.flatnonzero(self._before != GUARD), np.flatnonzero(self._after != GUARD)
        offsets = [*(before - GUARD_BYTES), *(after + self.pool.size)]
        if offsets:
            raise GuardError(artifact, index, int(offsets[0]), len(offsets))
