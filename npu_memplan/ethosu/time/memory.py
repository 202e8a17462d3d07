"""Memories as the NPU sees them through its ports: how long a number of requests takes.

Invariant: a memory is never faster than its port, its own rate, or what its latency leaves of the requests that may be
unfinished at once; every figure is data of `targets/systems.toml` or of the user's vela.ini.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that move in one direction, and the requests and beats on the port that carry them."""

    bytes: int = 0
    beats: int = 0
    requests: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.bytes + other.bytes, self.beats + other.beats, self.requests + other.requests)

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.bytes * times, self.beats * times, self.requests * times)


@dataclass(frozen=True, slots=True)
class Pulse:
    """A timing adapter: requests pass for `on` cycles, at most `words` beats of them, then wait for `off`."""

    on: int
    off: int
    words: int  # 0: no limit


@dataclass(frozen=True, slots=True)
class Direction:
    """Reading, or writing."""

    latency: int  # cycles from a request to its first beat, or from the last beat to the answer
    outstanding: int = 0  # requests of one requester that may be unfinished at once; 0: no limit


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory behind one AXI port. What is read and what is written share its rate."""

    name: str
    port: int
    clock_scale: float  # of a port's bytes a cycle
    read: Direction
    write: Direction
    pulse: Pulse | None = None

    def cycles(self, traffic: Traffic, writes: bool, requesters: int) -> float:
        """Cycles of the memory's time that `traffic` takes; the first latency is not among them.

        Requests of one kind share what may be unfinished, so this time is lost for all others too.
        """
        if not traffic.requests:
            return 0.0
        side, beats = (self.write if writes else self.read), traffic.beats / traffic.requests
        busy = traffic.beats / self.clock_scale
        turn, most = side.latency + beats, side.outstanding * requesters
        if self.pulse is None:
            return max(busy, traffic.requests * turn / most) if most else busy
        period, passing = self.pulse.on + self.pulse.off, inf
        if self.pulse.words:
            passing = ceil(self.pulse.words / beats)  # the request that reaches the limit still passes
        if most:
            passing = min(passing, ceil(self.pulse.on / turn) * most)
        return max(busy, traffic.requests / passing * period)


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Which memory each region of the base pointers lies in, and the command stream."""

    regions: Mapping[int, Memory]
    stream: Memory
    clock_hz: float = 0.0  # of the NPU; 0: unknown

    def with_constants_near(self) -> MemoryMap:
        """The same with constants in the NPU's own memory, that of the last region: for who is going to copy them."""
        return replace(self, regions={**self.regions, 0: self.regions[max(self.regions)]})
