"""How kernels and transfers share one memory.

Invariant: a memory serves one beat at a time at its own rate. Kernels are served one after the other, and so are
transfers; while one of each waits, each gets half of the rate, so the one that was placed first is as late as the
other makes it. Only the last operation of a client can still be made later: those before it are settled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from .assumptions import NOMINAL, Assumptions


class Client(IntEnum):
    """Who uses a memory."""

    KERNELS = 0
    TRANSFERS = 1

    @property
    def other(self) -> Client:
        return _OTHERS[self]


_OTHERS = (Client.TRANSFERS, Client.KERNELS)


@dataclass(slots=True)
class _Queue:
    """One client of a memory; where only one is served, it is at the memory's full rate."""

    settled: float = 0.0  # all operations before the last one are served until then
    begin: float = 0.0  # of the service of the last operation
    end: float = 0.0
    latency: float = 0.0


@dataclass(slots=True)
class SharedMemory:
    """One memory."""

    clients: tuple[_Queue, _Queue] = field(default_factory=lambda: (_Queue(), _Queue()))

    @property
    def busy(self) -> float:
        """The time until which the memory is in use."""
        return max(queue.end for queue in self.clients)

    def end_of(self, client: Client) -> float:
        """When all of the client's beats have passed."""
        return self.clients[client].end + self.clients[client].latency

    def settle(self, client: Client) -> None:
        """Another operation of `client` begins."""
        queue = self.clients[client]
        queue.settled = queue.begin = queue.end

    def take(
        self, client: Client, start: float, occupied: float, latency: float, assumptions: Assumptions = NOMINAL
    ) -> float:
        """Serve `occupied` cycles requested from `start` on; returns when they and `latency` have passed."""
        mine, other = self.clients[client], self.clients[client.other]
        begin = max(start, mine.settled, other.end if assumptions.in_turn else other.settled)
        alone = min(occupied, max(0.0, other.begin - begin))
        shared = min(occupied - alone, max(0.0, other.end - max(begin, other.begin)))
        shared *= 2 * assumptions.contention - 1
        mine.begin, mine.end, mine.latency = begin, begin + occupied + shared, latency
        other.end += shared
        return mine.end + latency

    def interrupt(self, now: float, cycles: float) -> Client | None:
        """Take so many cycles for no operation; the client that is made later by them, if one is."""
        kernels, transfers = self.clients
        last = Client.TRANSFERS if transfers.end > kernels.end else Client.KERNELS
        queue = self.clients[last]
        if queue.end > max(now, queue.begin):
            queue.end += cycles
            return last
        queue.settled = queue.begin = queue.end = max(now, queue.end) + cycles
        return None
