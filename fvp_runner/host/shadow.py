"""Which bytes of the pools have been written: what makes an uninitialised read visible.

Invariant: a byte is defined only once somebody wrote it. The NPU model marks what it writes;
what host operators write is marked from the artifact's call list and, in case a list leaves
something out, wherever a byte has changed between two NPU calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.parts import Call, TensorSlot
from npu_memplan.problem import Agent

from ..base import RunCheckError


class UnwrittenInputError(RunCheckError):
    """A host operator was to read bytes that nobody wrote."""


class SkippedCallError(RunCheckError):
    """The C did not make an NPU call that main makes."""


class PoolShadows:
    """One flag for each byte of each pool."""

    def __init__(self, artifact: Artifact, pools: Sequence[npt.NDArray[np.uint8]]) -> None:
        self.defined = tuple(np.zeros(pool.size, np.bool_) for pool in pools)
        self._artifact = artifact
        self._pools = pools
        self._before = tuple(pool.copy() for pool in pools)
        self._index = {pool.name: i for i, pool in enumerate(artifact.run_pools)}
        sizes = {b.name: b.size_bytes for b in artifact.problem.buffers}
        self._where = {
            p.buffer: (self._index[p.pool], p.offset_bytes, p.offset_bytes + sizes[p.buffer])
            for p in artifact.plan.placements
            if p.pool in self._index  # constants are always defined
        }
        self._next = 0  # call of main that comes next

    def reset(self) -> None:
        for flags in self.defined:
            flags[:] = False

    def begin(self) -> None:
        self._next = 0
        self._remember()

    def define(self, slot: TensorSlot) -> None:
        """The caller has written a graph input or a state."""
        self.defined[self._index[slot.pool]][slot.offset_bytes : slot.offset_bytes + slot.size_bytes] = True

    def before_launch(self, checks: bool) -> None:
        """Account for the host operators that ran since the last NPU call."""
        calls = self._artifact.calls
        ran_on_host = False
        while self._next < len(calls) and calls[self._next].agent is Agent.HOST:
            self._host_call(calls[self._next], checks)
            ran_on_host = True
            self._next += 1
        self._next += 1
        if ran_on_host or not calls:
            for flags, pool, before in zip(self.defined, self._pools, self._before, strict=True):
                flags |= pool != before

    def after_launch(self) -> None:
        """The NPU is done; from here on a changed byte is the host's doing."""
        calls = self._artifact.calls
        if not calls or (self._next < len(calls) and calls[self._next].agent is Agent.HOST):
            self._remember()

    def finish(self) -> None:
        """Account for the host operators after the last NPU call."""
        while self._next < len(self._artifact.calls):
            call = self._artifact.calls[self._next]
            if call.agent is Agent.NPU:
                raise SkippedCallError(f"the run ended without the NPU call {call.function}, which plan.json lists")
            self._host_call(call, True)
            self._next += 1

    def _host_call(self, call: Call, checks: bool) -> None:
        if checks and not call.conditional:  # in a branch it may not have run
            for name in call.reads:
                # What a call also writes (scratch, states) it may write before it reads.
                if name not in call.writes and name in self._where:
                    self._check_read(call, name)
        for name in call.writes:
            if name in self._where:
                pool, start, stop = self._where[name]
                self.defined[pool][start:stop] = True

    def _check_read(self, call: Call, name: str) -> None:
        pool, start, stop = self._where[name]
        unknown = np.flatnonzero(~self.defined[pool][start:stop])
        if unknown.size:
            raise UnwrittenInputError(
                f"host operator {call.function} reads {unknown.size} of {stop - start} bytes of buffer {name} "
                f"that nobody wrote; the first is byte {start + int(unknown[0])} of pool "
                f"{self._artifact.run_pools[pool].name}"
            )

    def _remember(self) -> None:
        for before, pool in zip(self._before, self._pools, strict=True):
            before[:] = pool
