"""What programs are compared by: their estimated cycles, then their bytes.

Invariant: the stream and the cycles of a program are worked out once, however often it is compared, and what a kernel
needs once for all programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..ethosu.arch import Architecture
from ..ethosu.program.hazards import stream_of
from ..ethosu.schedule.prefetch.demand_cache import DemandCache
from ..ethosu.stream.decode import Command
from ..ethosu.time import Assumptions, MemoryMap, timeline
from ..stages import Planned
from .placed import PlacedCall, npu_calls

Rank = tuple[int, int]  # cycles, bytes
Streams = tuple[tuple[PlacedCall, Sequence[Command]], ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Called with a planned program: (cycles, bytes), the smaller the better."""

    memory_map: MemoryMap
    _known: dict[Planned, Rank] = field(default_factory=dict)
    _streams: dict[Planned, Streams] = field(default_factory=dict)
    _demand_caches: dict[tuple[str, str], DemandCache] = field(default_factory=dict)

    def __call__(self, planned: Planned) -> Rank:
        """Cycles, then bytes."""
        if planned not in self._known:
            cycles = 0
            for call, commands in self.streams(planned):
                accelerator = call.program.accelerator
                known = self.demand_cache(accelerator).resource_uses
                cycles += timeline(commands, accelerator, self.memory_map, known).total
            self.note(planned, (cycles, sum(usage.used_bytes for usage in planned.plan.usage)))
        return self._known[planned]

    def streams(self, planned: Planned) -> Streams:
        """The NPU's calls, and the stream of each, which depends on no model of time."""
        if planned not in self._streams:
            problem, plan = planned.extracted.problem, planned.plan
            self._streams[planned] = tuple(
                (call, stream_of(call.program, call.places(problem, plan).__getitem__))
                for call in npu_calls(planned.extracted.program)
            )
        return self._streams[planned]

    def under(self, assumptions: Assumptions) -> Ranking:
        """By cycles under another model of time."""
        memory_map = replace(self.memory_map, assumptions=assumptions)
        return Ranking(memory_map, _streams=self._streams, _demand_caches=self._demand_caches)

    def note(self, planned: Planned, rank: Rank) -> None:
        """Remember what is known of a program."""
        self._known[planned] = rank

    def demand_cache(self, accelerator: Architecture, assumptions: Assumptions | None = None) -> DemandCache:
        """What kernels need on this NPU; under other `assumptions` than the ranking's, if given."""
        assumptions = assumptions or self.memory_map.assumptions
        key = accelerator.name, assumptions.name
        if key not in self._demand_caches:
            shared = (
                cache
                for (name, _), cache in self._demand_caches.items()
                if name == accelerator.name
                and cache.memory_map.assumptions.in_flight_share == assumptions.in_flight_share
            )
            like = next(shared, None)  # nothing else of a model changes what kernels need
            memory_map = replace(self.memory_map, assumptions=assumptions)
            self._demand_caches[key] = DemandCache(accelerator, memory_map, like)
        return self._demand_caches[key]
