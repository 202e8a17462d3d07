"""What the estimate says of a stream under facts that no measurement decides: a name for each set of facts.

Invariant: a model changes the facts, never the arithmetic: each is the estimate of the same stream with other figures
of the accelerator or of its memories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...ethosu.arch import Architecture
from ...ethosu.stream.commands import Command
from ...ethosu.time import Memory, MemoryMap, estimate

_SHARED = 1.25  # how much more of a port's time published cells allow where several use it
_LAUNCH = 60  # cycles before a kernel's first request
Facts = tuple[Architecture, MemoryMap]


def _nominal(accelerator: Architecture, memory_map: MemoryMap) -> Facts:
    return accelerator, memory_map


def _slow_ports(accelerator: Architecture, memory_map: MemoryMap) -> Facts:
    return accelerator, with_memories(memory_map, lambda m: replace(m, clock_scale=m.clock_scale / _SHARED))


def _slow_starts(accelerator: Architecture, memory_map: MemoryMap) -> Facts:
    return replace(accelerator, launch_cycles=accelerator.launch_cycles + _LAUNCH), memory_map


MODELS: Mapping[str, Callable[[Architecture, MemoryMap], Facts]] = {
    "nominal": _nominal,
    "ports x1.25": _slow_ports,
    "slow starts": _slow_starts,
}


def predict(commands: Sequence[Command], accelerator: Architecture, memory_map: MemoryMap) -> dict[str, int]:
    """Estimated cycles of a stream by each model."""
    return {name: estimate(commands, *facts(accelerator, memory_map)).total for name, facts in MODELS.items()}


def with_memories(memory_map: MemoryMap, changed: Callable[[Memory], Memory]) -> MemoryMap:
    """The map with each of its memories changed."""
    regions = {region: changed(memory) for region, memory in memory_map.regions.items()}
    return replace(memory_map, regions=regions, stream=changed(memory_map.stream))
