"""The estimate of one command stream: its cycles, shared out to its operations, and what bounds each of them.

Invariant: the operations' cycles add up to the total, beats and bytes to what crossed the ports; the same stream on
the same memories gives the same estimate, whatever made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from ..arch import Architecture
from ..stream.decode import Command, Operation
from ..stream.isa import Op
from .cost import ResourceUse, resource_use
from .memory import MemoryMap
from .timeline import Slot, in_a_row, timeline


class Cause(Enum):
    """The work that an operation spends most of its time with."""

    MULTIPLY = "multiplying"
    OUTPUT = "making outputs"
    READ = "reading"
    WRITE = "writing"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Bound:
    """A cause, and the memory where it is one."""

    cause: Cause
    memory: str = ""

    def __str__(self) -> str:
        """`multiplying`, `reading flash`, `latency of sram`."""
        between = " of " if self.cause is Cause.LATENCY else " "
        return f"{self.cause.value}{between}{self.memory}" if self.memory else self.cause.value


@dataclass(frozen=True, slots=True)
class Share:
    """One operation of the stream."""

    operation: Operation
    start: int  # cycles from the start of the stream
    stop: int
    cycles: int  # by which it makes the stream longer: the sum over all operations is the total
    bound: Bound
    macs: int
    compute_cycles: int  # of the multipliers or the output unit alone, whichever is slower
    traffic: Mapping[tuple[str, bool], tuple[int, int, float]]  # (memory, writes) -> (bytes, beats, memory's cycles)

    @property
    def is_transfer(self) -> bool:
        return self.operation.op is Op.DMA_START


@dataclass(frozen=True, slots=True)
class Estimate:
    """One launch of the NPU."""

    total: int  # cycles
    shares: tuple[Share, ...]  # in the order of the stream
    stream_bytes: int
    ports: Mapping[str, int]  # memory -> AXI port
    stream_memory: str
    port_bytes: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all convolutions."""
        return sum(share.macs for share in self.shares)

    def bounds(self) -> dict[Bound, int]:
        """Cycles by what bounds them, the most first; their sum is the total."""
        found: dict[Bound, int] = {}
        for share in self.shares:
            found[share.bound] = found.get(share.bound, 0) + share.cycles
        return dict(sorted(found.items(), key=lambda item: (-item[1], str(item[0]))))

    def beats(self, port: int, writes: bool) -> int:
        """Beats that cross an AXI port in one direction, the command stream's included."""
        moved = sum(
            beats
            for share in self.shares
            for (name, written), (_, beats, _) in share.traffic.items()
            if written is writes and self.ports[name] == port
        )
        fetched = not writes and self.ports[self.stream_memory] == port
        return moved + (-(-self.stream_bytes // self.port_bytes) if fetched else 0)


def estimate(commands: Iterable[Command], accelerator: Architecture, memory_map: MemoryMap) -> Estimate:
    """Estimate a stream: `decode`'s commands, or a schedule's."""
    line = timeline(commands, accelerator, memory_map)
    shares, end = [], 0
    for slot in line.slots:
        stop = max(end, line.total if slot is line.slots[-1] else round(slot.stop))
        shares.append(_share(slot, stop - end))
        end = stop
    return Estimate(
        total=line.total,
        shares=tuple(shares),
        stream_bytes=4 * line.words,
        ports={memory.name: memory.port for memory in (*memory_map.regions.values(), memory_map.stream)},
        stream_memory=memory_map.stream.name,
        port_bytes=accelerator.port_bytes,
    )


def cycles_in_a_row(operation: Operation, accelerator: Architecture, memory_map: MemoryMap) -> int:
    """The cycles by which a kernel makes a stream longer in which others run before it that it need not wait for."""
    return in_a_row(resource_use(operation, accelerator, memory_map), accelerator, memory_map)


def sum_bounds(estimates: Iterable[Estimate]) -> dict[str, int]:
    """Cycles of all `estimates` by cause, the most first."""
    found: Counter[str] = Counter()
    for time in estimates:
        found.update({str(bound): cycles for bound, cycles in time.bounds().items()})
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _share(slot: Slot, cycles: int) -> Share:
    needs = slot.resource_use
    traffic: dict[tuple[str, bool], tuple[int, int, float]] = {}
    for load in needs.loads:
        key = (load.memory.name, load.writes)
        size, beats, busy = traffic.get(key, (0, 0, 0.0))
        traffic[key] = (size + load.traffic.bytes, beats + load.traffic.beats, busy + load.cycles)
    start, stop, compute = round(slot.start), round(slot.stop), max(needs.multipliers, needs.output)
    parts = {Bound(Cause.MULTIPLY): float(needs.multipliers), Bound(Cause.OUTPUT): float(needs.output)}
    for (memory, writes), (_, _, busy) in traffic.items():
        parts[Bound(Cause.WRITE if writes else Cause.READ, memory)] = busy
    bound = _bound(needs, slot, parts)
    return Share(needs.operation, start, stop, cycles, bound, needs.macs, compute, traffic)


def _bound(needs: ResourceUse, slot: Slot, parts: Mapping[Bound, float]) -> Bound:
    bound, most = max(parts.items(), key=lambda item: item[1])
    slowest = max(needs.loads, key=lambda load: load.latency, default=None)
    if slowest is not None and 2 * most < slot.stop - slot.start and most < slowest.latency:
        return Bound(Cause.LATENCY, slowest.memory.name)
    return bound
