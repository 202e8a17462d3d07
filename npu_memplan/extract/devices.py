"""Which pools serve which device of a Relax module.

Invariant: a device's memory is its own. A pool that serves several devices of a module is one pool on
each of them, with a name of its own and the whole capacity. A module without virtual devices has one
nameless device, which every pool serves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..names import Names
from ..problem import Pool
from .program import ExtractionError


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
