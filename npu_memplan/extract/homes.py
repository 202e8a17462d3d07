"""The pools of a problem, and which of them each storage may lie in.

Invariant: constants may lie in the constant pools of their device, everything else in its other pools;
a pool given for both is one pool.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..problem import BufferKind, Pool
from .devices import labels, pools_by_device
from .liveness import Storage
from .program import ExtractionError, Program, RelaxTensor


class Homes:
    """Candidates of the storages of one program."""

    def __init__(
        self, pools: Sequence[Pool], constant_pools: Sequence[Pool], program: Program, storages: Sequence[Storage]
    ) -> None:
        devices = labels(program.vdevices)
        constants = {s.device for s in storages if s.kind is BufferKind.CONSTANT}
        others = {s.device for s in storages if s.kind is not BufferKind.CONSTANT}
        self.workspace = pools_by_device(pools, devices, others, program.name)
        self.constant = pools_by_device(constant_pools, devices, constants, program.name) if constant_pools else {}
        self.filled = {p.name for pools in self.constant.values() for p in pools}

    def pools(self) -> tuple[Pool, ...]:
        """All pools, those of constants alone last."""
        found = [p for pools in self.workspace.values() for p in pools]
        known = {p.name: p for p in found}
        for pool in (p for pools in self.constant.values() for p in pools):
            if pool.name not in known:
                found.append(pool)
            elif known[pool.name] != pool:
                raise ExtractionError(
                    f"pool {pool.name!r} is given twice and differently: for constants as {pool}, for other buffers as"
                    f" {known[pool.name]}; give the same pool, or two names"
                )
        return tuple(found)

    def of(self, storage: Storage) -> tuple[str, ...]:
        """Pools in order of preference; empty for all of the problem, in its order.

        Where the stream that a buffer was lifted from has one, that one first: region i + 1 of a
        stream is pool i; the compiler that made it chose with bandwidth in mind.
        """
        if storage.kind is BufferKind.CONSTANT:
            return tuple(p.name for p in self.constant[storage.device])
        names = tuple(p.name for p in self.workspace[storage.device])
        if storage.size_bytes is None:  # depends on shape symbols
            own = self.workspace[storage.device]
            return tuple(p.name for p in own if p.size_bytes is None and p.name not in self.filled)
        region = storage.region if isinstance(storage, RelaxTensor) else (storage.original or (-1, 0))[0]
        if len(names) >= 2 and 1 <= region <= len(names):
            favourite = names[region - 1]
            return (favourite, *(name for name in names if name != favourite))
        return names if self.constant or len(self.workspace) > 1 else ()
