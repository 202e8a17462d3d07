"""Memories as the NPU sees them through its ports: how long a number of requests takes.

Invariant: a memory is never faster than its port, its own rate, or what its latency leaves of the requests that may be
unfinished at once; every figure is data of `targets/systems.toml` or of the user's vela.ini. One that several NPUs use
at the same time serves them in turn, equally many bytes of each, and the others always want some; it is as fast as the
fastest of them sees it. That bounds any number of runs of the others, but not an arbiter that prefers one NPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from ..arch import Architecture
from .assumptions import NOMINAL, Assumptions

_BEATS = 8  # of a whole request of Ethos-U55 and U85


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

    @property
    def period(self) -> int:
        return self.on + self.off

    def slower(self, latency: float) -> float:
        """The factor by which requests that wait for each other take longer: one of them covers the start of a pause,
        by half of its time on average, and may cover all of one that is shorter than it.
        """
        one = latency + (_BEATS * self.period / self.words if self.words else _BEATS)
        lost = self.off - one / 2 if one < self.off else self.off**2 / (2 * one)
        return self.period / (self.period - lost)

    def stretch(self, covered: float) -> float:
        """The factor by which work takes longer that covers `covered` cycles of a pause and then waits for its end."""
        return self.period / (self.period - max(0.0, self.off - covered))

    def wait(self, latency: float) -> float:
        """Cycles by which a pause delays the answer to one request on average, at whatever moment it is made."""
        return max(0.0, self.off - latency) ** 2 / (2 * self.period)


@dataclass(frozen=True, slots=True)
class Direction:
    """Reading, or writing."""

    latency: int  # cycles from a request to its first beat, or from the last beat to the answer
    outstanding: int = 0  # requests of one requester that may be unfinished at once; 0: no limit


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory behind one AXI port. What is read and what is written share its rate, unless it is `duplex`."""

    name: str
    port: int
    clock_scale: float  # of a port's bytes a cycle
    read: Direction
    write: Direction
    pulse: Pulse | None = None
    burst_bytes: int = 0  # most that one of its requests moves; 0: what the NPU's do
    duplex: bool = False  # reads and writes have the rate each

    def busy(self, traffic: Traffic, whole_requests: bool = True) -> float:
        """Cycles in which its beats pass, reads and writes shared; `whole_requests`: the last one passes whole."""
        passed = traffic.beats / self.clock_scale
        if self.pulse is None or not traffic.requests:
            return passed
        if not self.pulse.words:
            return passed * self.pulse.period / self.pulse.on
        requests, words = self._requests(traffic), self.pulse.words
        if not whole_requests:
            return max(passed, traffic.beats / words * self.pulse.period)
        return max(passed, requests / ceil(words * requests / traffic.beats) * self.pulse.period)

    def cycles(self, traffic: Traffic, writes: bool, requesters: int, whole_requests: bool = True) -> float:
        """Cycles of the memory's time that `traffic` takes; the first latency is not among them.

        Reads share what may be unfinished, so this time is lost for all others of them too; so do writes.
        """
        side, requests = (self.write if writes else self.read), self._requests(traffic)
        busy = self.busy(traffic, whole_requests)
        most = side.outstanding * requesters
        if not requests or not most:
            return busy
        turn = side.latency + traffic.beats / requests
        if self.pulse is None:
            return max(busy, requests * turn / most)
        return max(busy, requests / (ceil(self.pulse.on / turn) * most) * self.pulse.period)

    def latency(self, writes: bool) -> float:
        """The cycles from a request to its first beat, or from the last beat to the answer, with pauses on average."""
        side = self.write if writes else self.read
        return side.latency * (self.pulse.slower(side.latency) if self.pulse else 1.0)

    @property
    def pause(self) -> float:
        """Cycles by which an adapter's pauses delay one read on average, at whatever moment it is requested."""
        return self.pulse.wait(self.read.latency) if self.pulse else 0.0

    def _requests(self, traffic: Traffic) -> float:
        return max(traffic.requests, traffic.bytes / self.burst_bytes if self.burst_bytes else 0)


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """The memory of each region of the base pointers, and of the command stream."""

    regions: Mapping[int, Memory]
    stream: Memory
    clock_hz: float = 0.0  # of the NPU; 0: unknown
    assumptions: Assumptions = NOMINAL

    def with_constants_near(self) -> MemoryMap:
        """The same with constants in the NPU's own memory, the last region: for programs that will copy them."""
        return replace(self, regions={**self.regions, 0: self.regions[max(self.regions)]})


@dataclass(frozen=True, slots=True)
class Requester:
    """An NPU, and a memory as it sees it."""

    accelerator: Architecture
    clock_hz: float
    memory: Memory

    @property
    def bytes_per_second(self) -> float:
        """The rate that it gets where it is alone."""
        return self.accelerator.port_bytes * self.memory.clock_scale * self.clock_hz

    @property
    def request_bytes(self) -> int:
        """The most that one of its requests moves."""
        return self.memory.burst_bytes or self.accelerator.burst_bytes


def served_in_turn(own: Requester, others: Sequence[Requester]) -> Memory:
    """The memory of `own` where `others` use it too: slower, and later by one request of each of them."""
    fastest = max(one.bytes_per_second for one in (own, *others))
    times = 1 + len(others) * own.bytes_per_second / fastest
    wait = sum(other.request_bytes for other in others) / fastest * own.clock_hz

    def later(side: Direction) -> Direction:
        return replace(side, latency=ceil(side.latency + wait))

    memory, pulse = own.memory, own.memory.pulse
    if pulse is not None and pulse.words:  # the others' words have windows of their own
        pulse = replace(pulse, off=pulse.off + ceil((times - 1) * pulse.period))
    return replace(
        memory, clock_scale=memory.clock_scale / times, pulse=pulse, read=later(memory.read), write=later(memory.write)
    )
