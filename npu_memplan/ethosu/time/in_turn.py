"""A memory that several NPUs use at the same time, as one of them sees it at worst.

Invariant: the memory serves the NPUs in turn, equally many bytes of each, and the others always want some; it is as
fast as the fastest of them sees it. So this bounds any number of runs of the others, but not an arbiter that prefers
one NPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from ..arch import Architecture
from .memory import Direction, Memory


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
