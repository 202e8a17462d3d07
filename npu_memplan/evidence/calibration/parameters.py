"""The figures of a memory system that can be fitted, by name.

Invariant: a parameter is positive and reads and writes one figure of the facts; what it writes, the estimate uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ethosu.arch import Architecture
from ...ethosu.time import Direction, Memory, MemoryMap

_SOME = 8.0  # requests that may be unfinished where no limit is known: where a fit begins


@dataclass(frozen=True, slots=True)
class Facts:
    """What a stream's cycles are estimated from."""

    accelerator: Architecture
    memory_map: MemoryMap

    def memory(self, name: str) -> Memory:
        every = (*self.memory_map.regions.values(), self.memory_map.stream)
        return next(memory for memory in every if memory.name == name)

    def with_memory(self, name: str, **changes: Any) -> Facts:
        """With figures of one memory changed; a timing adapter's pulse becomes the rate that it leaves."""
        made = replace(_without_pulse(self.memory(name)), **changes)
        where = self.memory_map
        regions = {region: made if m.name == name else m for region, m in where.regions.items()}
        stream = made if where.stream.name == name else where.stream
        return replace(self, memory_map=replace(where, regions=regions, stream=stream))


@dataclass(frozen=True, slots=True)
class Parameter:
    """One figure; `memory` is empty where it is the accelerator's."""

    name: str
    unit: str
    memory: str = ""
    whole: bool = False  # a count

    def read(self, facts: Facts) -> float:
        if not self.memory:
            return float(facts.accelerator.launch_cycles)
        memory, figure = _without_pulse(facts.memory(self.memory)), self.name.split(".")[1]
        if figure == "bytes_per_cycle":
            return memory.clock_scale * facts.accelerator.port_bytes
        side = memory.read if "read" in figure else memory.write
        return float(side.latency) if "latency" in figure else float(side.outstanding or _SOME)

    def write(self, facts: Facts, value: float) -> Facts:
        if not self.memory:
            return replace(facts, accelerator=replace(facts.accelerator, launch_cycles=_number(value)))
        memory, figure = facts.memory(self.memory), self.name.split(".")[1]
        if figure == "bytes_per_cycle":
            return facts.with_memory(self.memory, clock_scale=value / facts.accelerator.port_bytes)
        side = "read" if "read" in figure else "write"
        of = "latency" if "latency" in figure else "outstanding"
        direction: Direction = replace(getattr(memory, side), **{of: _number(value)})
        return facts.with_memory(self.memory, **{side: direction})


def _number(value: float) -> Any:
    """A figure on its way to be whole: fits move it in steps that are not."""
    return value


def _without_pulse(memory: Memory) -> Memory:
    if memory.pulse is None:
        return memory
    rate = memory.pulse.words / (memory.pulse.on + memory.pulse.off) if memory.pulse.words else 1.0
    return replace(memory, clock_scale=min(memory.clock_scale, rate), pulse=None)


_FIGURES: Mapping[str, tuple[str, bool]] = {
    "bytes_per_cycle": ("bytes a cycle", False),
    "read_latency": ("cycles", True),
    "write_latency": ("cycles", True),
    "max_reads": ("unfinished requests", True),
    "max_writes": ("unfinished requests", True),
}
KERNEL_START = Parameter("kernel_start", "cycles", whole=True)


def parameters_of(facts: Facts, read_only: frozenset[str]) -> tuple[Parameter, ...]:
    """All there are for these memories; of those that are only read, none of writes."""
    found = []
    names = dict.fromkeys(m.name for m in (*facts.memory_map.regions.values(), facts.memory_map.stream))
    for memory in names:
        for figure, (unit, whole) in _FIGURES.items():
            if not (memory in read_only and "write" in figure):
                found.append(Parameter(f"{memory}.{figure}", unit, memory, whole))
    return (*found, KERNEL_START)
