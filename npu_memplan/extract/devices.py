"""Which pools serve which device of a Relax module, and which of them each storage may lie in.

Invariant: a device's memory is its own. A pool that serves several devices of a module is one pool on
each of them, with a name of its own and the whole capacity. A module without virtual devices has one
nameless device, which every pool serves. Constants may lie in the constant pools of their device, everything
else in its other pools; a pool given for both is one pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..names import Names
from ..problem import BufferKind, Pool
from .liveness import Storage
from .program import ExtractionError, Program, RelaxTensor


def labels(virtual: Sequence[Any]) -> tuple[str, ...]:
    """Names of a module's virtual devices, e.g. `llvm:1`; with its scope where that is not global."""
    names = Names()
    found = []
    for device in virtual:
        scope = str(device.memory_scope)
        name = f"{device.target.kind.name}:{int(device.vdevice_id)}"
        found.append(names.unique(name if scope == "global" else f"{name}:{scope}"))
    return tuple(found)


def serves(pool: Pool, label: str) -> bool:
    """Whether `pool` is for the device called `label`; its targets are kinds (`llvm`) or labels (`llvm:1`)."""
    return not pool.targets or label in pool.targets or label.split(":")[0] in pool.targets


def pools_by_device(
    pools: Sequence[Pool], devices: Sequence[str], needed: Iterable[int], program: str
) -> Mapping[int, tuple[Pool, ...]]:
    """Device (index into `devices`) -> its pools in order, for each that is `needed`.

    On a module with devices their targets are the one device that they are on. Raises
    `ExtractionError` for a device that no pool serves.
    """
    if not devices:
        return {0: tuple(pools)}
    found = {}
    for device in sorted(needed):
        label = devices[device]
        own = [p for p in pools if serves(p, label)]
        if not own:
            known = ", ".join(f"{p.name!r} serves {', '.join(p.targets)}" for p in pools) or "there is no pool"
            raise ExtractionError(
                f"buffers of {program!r} lie on device {label}, which no pool serves ({known}); give"
                f' Pool(..., targets=("{label}",)), or a pool without targets, which serves every device'
            )
        found[device] = tuple(replace(p, name=_name(p, label, devices), targets=(label,)) for p in own)
    return found


def device_of(pool: Pool, devices: Sequence[str]) -> int:
    """The device that a pool of `pools_by_device` is on."""
    return devices.index(pool.targets[0]) if devices else 0


def _name(pool: Pool, label: str, devices: Sequence[str]) -> str:
    several = sum(serves(pool, other) for other in devices) > 1
    return f"{pool.name}_{re.sub(r'[^A-Za-z0-9]', '_', label)}" if several else pool.name


class PoolAssignment:
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
        own = self.workspace[storage.device]
        if storage.size_bytes is None:  # depends on shape symbols
            return tuple(p.name for p in own if p.size_bytes is None and p.name not in self.filled)
        names = tuple(p.name for p in own)
        region = storage.region if isinstance(storage, RelaxTensor) else (storage.original or (-1, 0))[0]
        if len(names) >= 2 and 1 <= region <= len(names):
            favourite = names[region - 1]
            if storage.kind is BufferKind.RESIDENT:  # anywhere else it is of no use
                return (favourite,)
            return (favourite, *(name for name in names if name != favourite))
        return names if self.constant or len(self.workspace) > 1 else ()
