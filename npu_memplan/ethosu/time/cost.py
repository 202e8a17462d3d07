"""What one operation needs of each part of the NPU and of each memory, on its own.

Invariant: a `ResourceUse` is a sum over the operation's blocks; `timeline` decides when they are used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from ..arch import Architecture, Channel
from ..program.access import Role
from ..stream.decode import Operation
from ..stream.fields import kind_of
from ..stream.isa import Op, Register
from .compute import cycles_by_depth, output_cycles
from .memory import Memory, MemoryMap, Traffic
from .traffic import Flow, dma_flows, flows, read_shares
from .work import Work, work_of

_INPUTS = (Role.IFM, Role.IFM2)
_WEIGHTS = (Role.WEIGHTS, Role.SCALES)
_AHEAD = 2  # blocks whose input is read before they are written
_BLOCK = (Register.OFM_BLK_HEIGHT_M1, Register.OFM_BLK_WIDTH_M1, Register.OFM_BLK_DEPTH_M1)
_LAYOUT = (*_BLOCK, Register.ACC_FORMAT, Register.AB_START, Register.IFM_IB_END)


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic of one role on one memory, and the cycles that the memory needs for it alone."""

    role: Role
    memory: Memory
    writes: bool
    traffic: Traffic
    cycles: float
    channel: Channel | None  # the reader that requests it
    asking: float  # cycles that the reader needs, were the memory free: what it has requested must fit its buffer
    late: float = 0.0  # cycles of `asking` after multiplying has begun: of what is not fetched ahead
    rest: float = 0.0  # cycles from the memory's last beat for the kernel to the kernel's end, at least
    paused: float = 1.0  # how much longer multiplying takes because an adapter pauses meanwhile

    @property
    def latency(self) -> float:
        """Cycles before the first beat (reading), or after the last (writing)."""
        return self.memory.latency(self.writes)

    def with_waits(self, rest: float, late: float = 0.0, paused: float = 1.0) -> Load:
        """The same with what the kernel does after it, and while it waits for it."""
        known = (self.role, self.memory, self.writes, self.traffic, self.cycles, self.channel, self.asking)
        return Load(*known, late, rest, paused)


@dataclass(frozen=True, slots=True)
class MemoryTraffic:
    """Loads added up as the timing model needs them: an operation is timed many times while schedules are compared."""

    inputs: tuple[tuple[float, float], ...]  # (latency, cycles of asking) of each
    weights: tuple[tuple[float, float], ...]
    memories: tuple[tuple[str, float, float], ...]  # (name, cycles in use, latency of the first read and the rest)
    requested: tuple[tuple[Channel, float, float], ...]  # (reader, latency, cycles) where the memory is faster
    input_latency: float  # the longest
    input_asking: float
    output_latency: float
    output_cycles: float
    late: float  # cycles that multiplying takes at least, since weights are fetched meanwhile
    paused: float  # how much longer multiplying takes because an adapter pauses meanwhile

    @classmethod
    def from_loads(cls, loads: tuple[Load, ...], carried: tuple[float, float] = (0.0, 0.0)) -> MemoryTraffic:
        """The traffic of `loads`, summed by what kernels wait for; `carried`: cycles between ports and cores."""
        inputs: list[tuple[float, float]] = []
        weights: list[tuple[float, float]] = []
        requested: list[tuple[Channel, float, float]] = []
        by_memory: dict[str, _Shared] = {}
        output_latency, output_cycles, late, paused = 0.0, 0.0, 0.0, 1.0
        for load in loads:  # this is where the time goes: one pass, and no calls for most
            latency = load.latency
            if load.role in _INPUTS:
                inputs.append((latency, load.asking))
            elif load.role in _WEIGHTS:
                weights.append((latency, load.asking))
            if load.writes:
                output_latency, output_cycles = max(output_latency, latency), output_cycles + load.cycles
            if load.channel and load.asking > load.cycles:
                requested.append((load.channel, latency, load.asking))
            late, paused = max(late, load.late), max(paused, load.paused)
            if load.memory.name not in by_memory:
                by_memory[load.memory.name] = _Shared(load.memory.duplex)
            by_memory[load.memory.name].add(load, latency)
        if carried[0]:
            requested.append((Channel.READS, max(latency for latency, _ in (*inputs, *weights)), carried[0]))
        if carried[1]:
            requested.append((Channel.WRITES, 0.0, carried[1]))
        return cls(
            tuple(inputs),
            tuple(weights),
            tuple((name, shared.busy_cycles, shared.latency + shared.rest) for name, shared in by_memory.items()),
            tuple(requested),
            max((latency for latency, _ in inputs), default=0),
            sum(asking for _, asking in inputs),
            output_latency,
            output_cycles,
            late,
            paused,
        )

    def cycles_of(self, memory: str) -> float:
        """The cycles in which a memory is in use."""
        return sum(cycles for name, cycles, _ in self.memories if name == memory)


class _Shared:
    """The loads of one memory, reads and writes apart."""

    def __init__(self, duplex: bool) -> None:
        self._duplex = duplex
        self._beats, self._sides = [0.0, 0.0], [0.0, 0.0]
        self.latency, self.rest = 0.0, 0.0  # the longest of a read; cycles of the kernel after a load

    def add(self, load: Load, latency: float) -> None:
        self._beats[load.writes] += load.memory.busy(load.traffic)
        self._sides[load.writes] += load.cycles
        self.rest = max(self.rest, load.rest)
        if not load.writes:
            self.latency = max(self.latency, latency)

    @property
    def busy_cycles(self) -> float:
        """Cycles for its loads: beats share its rate; unfinished requests are limited apart by direction."""
        return max(*(self._beats if self._duplex else [sum(self._beats)]), *self._sides)


@dataclass(frozen=True)
class ResourceUse:
    """An operation's needs."""

    operation: Operation
    multipliers: int  # cycles
    output: int  # cycles
    loads: tuple[Load, ...]
    macs: int
    blocks: int  # pieces in which its output is made
    jobs: int  # blocks times slices of input channels: steps of reading the input
    carried: tuple[float, float] = (0.0, 0.0)  # cycles between ports and cores: of what it reads, and of what it writes
    by_depth: float = 0.0  # cycles that multiplying takes at least, since each depth of blocks waits for what it reads

    @cached_property
    def floor(self) -> float:
        """No operation with these needs takes fewer cycles: what the busiest of all parts and memories works."""
        busy: dict[str, float] = {}
        for load in self.loads:
            busy[load.memory.name] = busy.get(load.memory.name, 0.0) + load.cycles
        return max(self.multipliers, self.output, *busy.values(), *self.carried)

    @cached_property
    def traffic(self) -> MemoryTraffic:
        return MemoryTraffic.from_loads(self.loads, self.carried)

    @cached_property
    def layout(self) -> Hashable:
        """What is equal for kernels that have their blocks in the same places of SHRAM."""
        return (self.operation.op, *map(self.operation.get, _LAYOUT))

    @property
    def multiplying(self) -> float:
        """Cycles from the first multiplication to the last, were the inputs there."""
        return max(self.multipliers * self.traffic.paused, self.traffic.late, self.by_depth)

    @property
    def multiplying_alone(self) -> float:
        """The same where nothing is read ahead: each block waits for its first bytes."""
        latency = max((latency for latency, _ in self.traffic.weights), default=0.0)
        return self.multiplying + (self.blocks - 1) * max(self.traffic.input_latency, latency)

    @property
    def is_transfer(self) -> bool:
        return self.operation.op is Op.DMA_START

    @property
    def depends(self) -> int:
        """BLOCKDEP: by how many blocks the kernel before may be unfinished when this one starts."""
        return self.operation.registers.get(Register.BLOCKDEP, 0)

    def for_operation(self, operation: Operation) -> ResourceUse:
        """The same needs of another operation: one that differs in addresses or in BLOCKDEP only."""
        other = object.__new__(ResourceUse)
        other.__dict__.update(self.__dict__, operation=operation, traffic=self.traffic, layout=self.layout)
        return other


def resource_use(operation: Operation, accelerator: Architecture, memory_map: MemoryMap) -> ResourceUse:
    """Needs of one operation; regions that `memory_map` does not know count as region 1's memory."""
    if operation.op is Op.DMA_START:
        loads = _loads(dma_flows(operation, accelerator), accelerator, memory_map)
        return ResourceUse(operation, 0, 0, loads, 0, 1, 1)
    return kernel_resource_use(operation, work_of(operation, accelerator), accelerator, memory_map)


class ResourceUseCache:
    """Needs of operations of one NPU among one set of memories, each kind worked out once: streams repeat them."""

    def __init__(self, accelerator: Architecture, memory_map: MemoryMap) -> None:
        self.accelerator, self.memory_map = accelerator, memory_map
        self._known: dict[Hashable, ResourceUse] = {}

    def __call__(self, operation: Operation) -> ResourceUse:
        kind = kind_of(operation)
        if kind not in self._known:
            self._known[kind] = resource_use(operation, self.accelerator, self.memory_map)
        return self._known[kind].for_operation(operation)


def kernel_resource_use(
    operation: Operation, work: Work, accelerator: Architecture, memory_map: MemoryMap
) -> ResourceUse:
    """Needs of a kernel that was read already."""
    return add_waits(unordered_resource_use(operation, work, accelerator, memory_map), accelerator)


def unordered_resource_use(
    operation: Operation, work: Work, accelerator: Architecture, memory_map: MemoryMap
) -> ResourceUse:
    """The same before its loads wait for one another: what they need of their memories, which gives its `floor`."""
    loads = _loads(flows(operation, work, accelerator), accelerator, memory_map, work)
    multiplied = cycles_by_depth(work, accelerator)
    return ResourceUse(
        operation,
        sum(multiplied.values()),
        ceil(output_cycles(work, accelerator)),
        loads,
        work.macs,
        work.steps,
        work.blocks * work.slices,
        _transport_cycles(loads, accelerator, work.traits.cores),
        _cycles_by_depth(work, loads, multiplied, accelerator),
    )


def _cycles_by_depth(
    work: Work, loads: Iterable[Load], multiplied: Mapping[int, int], accelerator: Architecture
) -> float:
    """Cycles of a convolution's blocks where input stays for several depths: while one depth is made, its weights and
    the next one's input are read, and a depth of few channels may take less than that.
    """
    if not accelerator.input_bytes or work.depth_blocks < 2 or not work.sums_channels:
        return 0.0
    inputs: dict[str, float] = {}
    weights: dict[str, float] = {}
    asking = 0.0  # for weights
    for load in loads:
        if not load.writes:
            of_role = inputs if load.role in _INPUTS else weights
            of_role[load.memory.name] = of_role.get(load.memory.name, 0.0) + load.cycles
            asking = max(asking, load.asking if load.role is Role.WEIGHTS else 0.0)
    last, other = read_shares(work, accelerator)
    total, (final, _) = 0.0, work.depths[-1]
    for depth, count in work.depths:
        share, busy = depth / work.made.depth, multiplied[depth] / count
        for read, times in ((last, depth == final), (other, count - (depth == final))):
            needed = (inputs.get(name, 0.0) * read + weights.get(name, 0.0) * share for name in {*inputs, *weights})
            total += times * max(busy, asking * share, *needed)
    return total


def _transport_cycles(loads: Iterable[Load], accelerator: Architecture, cores: int) -> tuple[float, float]:
    """Cycles between ports and cores for all loads of a kernel: what it reads, and what it writes. All cores get the
    input at once, and each its own weights.
    """
    if not accelerator.core_bytes:
        return 0.0, 0.0
    inputs = weights = written = 0
    for load in loads:
        moved = load.traffic.beats * accelerator.port_bytes
        if load.writes:
            written += moved
        elif load.role in _INPUTS:
            inputs += moved
        else:
            weights += moved
    rate = accelerator.core_bytes
    return max(inputs / rate, (inputs + weights) / (rate * cores)), written / (rate * cores)


def add_waits(needs: ResourceUse, accelerator: Architecture) -> ResourceUse:
    """Unordered needs with what each load waits for."""
    ahead_bytes, written = accelerator.weights_ahead_bytes, _written(needs.loads) / needs.blocks
    loads = tuple(_in_order(needs, load, written, ahead_bytes) for load in needs.loads)
    known = (needs.operation, needs.multipliers, needs.output, loads, needs.macs, needs.blocks, needs.jobs)
    return ResourceUse(*known, needs.carried, needs.by_depth)


def _written(loads: Iterable[Load]) -> float:
    """Cycles in which loads are written."""
    return sum(load.cycles for load in loads if load.writes)


def _in_order(needs: ResourceUse, load: Load, written: float, ahead_bytes: int) -> Load:
    """The load with what a kernel does before and after it. A kernel writes block by block, and reads no further ahead
    of what it writes than two blocks, so of a memory that it reads and writes the last block's output comes last.
    `written`: cycles of all memories for a block's output.
    """
    if load.role not in (*_INPUTS, *_WEIGHTS):
        return load
    group = [other for other in needs.loads if other.memory.name == load.memory.name]
    here, rest = _written(group) / needs.blocks, needs.output / needs.blocks + written
    if load.role in _WEIGHTS:
        late = load.asking * max(0.0, 1 - ahead_bytes / load.traffic.bytes)
        return load.with_waits(max(0.0, rest - here), late, _pause_stretch(needs, load, ahead_bytes))
    weights = sum(other.cycles for other in group if other.role in _WEIGHTS)
    rest += max(0.0, needs.multipliers - weights) / needs.jobs - here * min(needs.blocks, _AHEAD)
    return load.with_waits(max(0.0, rest))


def _pause_stretch(needs: ResourceUse, load: Load, ahead_bytes: int) -> float:
    """How much longer multiplying takes because the weights' memory pauses: it goes on with those fetched ahead."""
    if load.memory.pulse is None or load.traffic.bytes <= ahead_bytes:
        return 1.0
    return load.memory.pulse.stretch(needs.multipliers * ahead_bytes / load.traffic.bytes)


def _loads(
    moved: Iterable[Flow], accelerator: Architecture, memory_map: MemoryMap, work: Work | None = None
) -> tuple[Load, ...]:
    """The loads of the kernel `work`, or of the DMA."""
    cores = work.traits.cores if work else 0
    found, requesters = [], accelerator.requester_count if cores else accelerator.transfer_requesters
    regions = memory_map.regions
    share = memory_map.assumptions.in_flight_share or accelerator.in_flight_share
    for flow in moved:
        role, traffic, writes = flow.role, flow.traffic, flow.writes
        if flow.region >= 0 and traffic.requests:
            memory = regions[flow.region] if flow.region in regions else regions[1]
            cycles = memory.cycles(traffic, writes, requesters, role is not Role.DMA_SRC)
            asking = max(cycles, _asking(flow, memory, accelerator, share, work))
            if cores and accelerator.core_bytes:
                lines = 1 if role in _INPUTS else cores
                asking = max(asking, traffic.beats * accelerator.port_bytes / (accelerator.core_bytes * lines))
            found.append(Load(role, memory, writes, traffic, cycles, flow.channel, asking))
    return tuple(found)


def _asking(flow: Flow, memory: Memory, accelerator: Architecture, share: float, work: Work | None) -> float:
    """Each byte's room in its reader's buffer is taken from the request on until it has come; the first bufferful is
    requested at once. The buffer of scales has those of one block alone.
    """
    room = accelerator.in_flight_bytes.get(flow.channel, 0) if flow.channel else 0
    if not room or flow.writes:
        return 0.0
    if flow.channel is Channel.SCALES and work:
        of_channel = flow.traffic.bytes / work.plane_blocks / work.made.depth
        rounds = sum(count * max(1.0, of_channel * depth / (room * share)) for depth, count in work.depths)
        return (work.plane_blocks * rounds - 1) * memory.latency(False)
    return max(0, flow.traffic.beats * accelerator.port_bytes - room) * memory.latency(False) / (room * share)
