"""Operations in time: two queues, block pipelines, waits, block dependencies and shared memories.

Invariant: an operation never ends before each of its loads could have passed its memory, in no window of time do the
operations inside it need more of a memory than the window's length, kernels run in the order of the stream, and a wait
is never shorter than what it waits for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace

from ..arch import Architecture, Channel
from ..program.hazards import MAX_BLOCKDEP
from ..stream.decode import Command, Operation, Wait
from ..stream.encode import RegisterState
from ..stream.isa import Op, Register
from .assumptions import NOMINAL, Assumptions
from .cost import MemoryTraffic, ResourceUse, ResourceUseCache
from .memory import Memory, MemoryMap
from .sharing import Client, SharedMemory
from .traffic import run

Step = tuple[int, ResourceUse | Wait | None]  # words of the stream, and what is done then
_KNOWN = 8  # the last kernels and transfers, for which something may wait
_WORDS = {register: 1 + register.has_payload for register in Register}  # of the stream that set one


@dataclass(slots=True)
class Slot:
    """When an operation runs, in cycles; kernels one after the other."""

    resource_use: ResourceUse
    start: float
    stop: float
    requested: float  # when it begins to read, which a kernel does while the one before still works


@dataclass(slots=True)
class _Engines:
    """When the parts of the NPU are free again."""

    fetch: float = 0
    multipliers: float = 0
    output: float = 0
    write: float = 0
    end: float = 0  # of the last kernel, for what depends on it
    block: float = 0  # cycles of one of its blocks
    writing: float = 0  # cycles in which a block is written
    start: float = 0  # of the last kernel
    blocks: int = 1
    putting: float = 0  # cycles in which a block is put out
    layout: Hashable = None  # of SHRAM


@dataclass(slots=True)
class TimingModel:
    """The NPU's time while a stream runs: give it the stream's parts in order."""

    accelerator: Architecture
    stream: Memory  # where commands are
    now: float = 0  # when the next command is read
    launch: float = 0  # cycles before a kernel's first request
    command_latency: float = 0  # of a request for commands behind a wait for a transfer; before that, they are there
    engines: _Engines = field(default_factory=_Engines)
    kernels: list[float] = field(default_factory=list)  # ends
    transfers: list[float] = field(default_factory=list)
    memories: dict[str, SharedMemory] = field(default_factory=dict)
    answers: list[float] = field(default_factory=lambda: [0.0, 0.0])  # latency of the last kernel's and transfer's
    asking: dict[Channel, float] = field(default_factory=dict)  # reader -> until when it asks
    fetches: dict[int, float] = field(default_factory=dict)  # words -> cycles of the memory
    assumptions: Assumptions = NOMINAL

    @classmethod
    def at_start(cls, accelerator: Architecture, memory_map: MemoryMap) -> TimingModel:
        """The model at the time when the first command has arrived."""
        stream = memory_map.stream
        late = stream.latency(False) + accelerator.command_fetch_bytes / accelerator.port_bytes
        begin, later = (stream.pause, late) if accelerator.command_fetch_bytes else (late, 0.0)
        launch = accelerator.launch_cycles + memory_map.assumptions.kernel_start
        return cls(accelerator, stream, begin, launch, later, assumptions=memory_map.assumptions)

    @property
    def total(self) -> float:
        """Cycles until everything has ended."""
        busy = (shared.busy for shared in self.memories.values())
        return max([self.now, *busy, *self.kernels[-2:], *self.transfers[-2:]])

    def wait(self, kind: Op, outstanding: int) -> None:
        done = self.transfers if kind is Op.DMA_WAIT else self.kernels
        if len(done) > outstanding and done[len(done) - 1 - outstanding] > self.now:
            self.now = done[len(done) - 1 - outstanding] + (self.command_latency if kind is Op.DMA_WAIT else 0.0)

    def copy_moment(self) -> TimingModel:
        """A copy of the state, from which time may go on in another way."""
        memories = {
            name: SharedMemory((copy(shared.clients[0]), copy(shared.clients[1])))
            for name, shared in self.memories.items()
        }
        return replace(
            self, kernels=self.kernels[-_KNOWN:], transfers=self.transfers[-_KNOWN:], memories=memories,
            answers=[*self.answers], asking=dict(self.asking),
        )  # fmt: skip

    def run(self, step: Step) -> Slot | None:
        """Run the next step of the stream; returns when it runs where it is an operation."""
        words, done = step
        if isinstance(done, ResourceUse):
            self.fetch(words)
            return self.transfer(done) if done.is_transfer else self.kernel(done)
        if done is not None:
            self.wait(done.op, done.outstanding)
        return None

    def take(self, needs: MemoryTraffic, start: float, client: Client) -> float:
        """When loads, requested from `start` on, have passed. The last operation of the other client is as late as
        sharing its memories makes it.
        """
        stop = start
        for memory, occupied, latency in needs.memories:
            shared = self._memory_state(memory)
            before = shared.end_of(client.other)
            stop = max(stop, shared.take(client, start, occupied, latency, self.assumptions))
            if shared.end_of(client.other) > before:
                self._delay(client.other, shared)
        for channel, latency, asking in needs.requested:
            begun = max(start, self.asking.get(channel, 0.0))
            self.asking[channel] = begun + asking
            stop = max(stop, begun + latency + asking)
        return stop

    def _memory_state(self, memory: str) -> SharedMemory:
        """The state of a memory, which is new where nothing has used it."""
        if memory not in self.memories:
            self.memories[memory] = SharedMemory()
        return self.memories[memory]

    def _delay(self, client: Client, shared: SharedMemory) -> None:
        """The last operation of `client` ends no sooner than its loads have passed this memory."""
        passed = shared.end_of(client)
        if client is Client.TRANSFERS:
            self.transfers[-1] = max(self.transfers[-1], passed + self.answers[client])
        elif passed > self.engines.write:
            stop, late = passed + self.answers[client], self.engines
            end = stop if self.accelerator.awaits_response else passed
            made, block = max(late.output, passed - late.writing), (passed - late.start) / late.blocks
            self.engines = replace(late, output=made, write=passed, end=end, block=block)
            self.kernels[-1] = stop

    def fetch(self, words: int) -> None:
        """Fetch `words` of the stream while the engines work: they only take time of their memory. The first operation
        waits for its own.
        """
        memory = self.stream
        shared = self._memory_state(memory.name)
        client = None if self.assumptions.alone else shared.interrupt(self.now, self.fetching(words))
        if client is not None:
            self._delay(client, shared)
        if self.command_latency and not self.kernels and not self.transfers:
            self.now += -(-4 * words // self.accelerator.command_fetch_bytes) * self.command_latency

    def fetching(self, words: int) -> float:
        """Cycles of the stream's memory for so many words."""
        if words not in self.fetches:
            traffic = run(4 * words, 1, self.accelerator)
            self.fetches[words] = self.stream.cycles(traffic, False, self.accelerator.requester_count)
        return self.fetches[words]

    def transfer(self, needs: ResourceUse) -> Slot:
        limit = self.accelerator.max_outstanding_dma
        if len(self.transfers) >= limit:
            self.now = max(self.now, self.transfers[-limit])
        traffic = needs.traffic
        start = self._free(self.now + self.assumptions.transfer_start, traffic)
        self._settle(Client.TRANSFERS, traffic)
        stop = self.take(traffic, start, Client.TRANSFERS) + traffic.output_latency
        self.transfers.append(max(stop, self.transfers[-1] if self.transfers else 0))
        self._hold(Client.TRANSFERS, traffic, self.transfers[-1])
        return Slot(needs, start, self.transfers[-1], start)

    def _settle(self, client: Client, needs: MemoryTraffic) -> None:
        """Another operation of `client` begins: nothing makes those before it later any more."""
        for shared in self.memories.values():
            shared.settle(client)
        self.answers[client] = needs.output_latency

    def _free(self, start: float, needs: MemoryTraffic) -> float:
        """When an operation requests its loads: where it has its memories alone, when all before it have ended."""
        if not self.assumptions.alone:
            return start
        return max([start, *(self._memory_state(memory).busy for memory, _, _ in needs.memories)])

    def _hold(self, client: Client, needs: MemoryTraffic, end: float) -> None:
        """An operation that has its memories alone keeps them until `end`."""
        for memory, _, _ in needs.memories if self.assumptions.alone else ():
            queue = self.memories[memory].clients[client]
            queue.end, queue.latency = end, 0.0

    def _pause(self, before: _Engines) -> float:
        """Cycles by which an adapter delays a kernel's commands on average, requested when the one before starts."""
        pulse = self.stream.pulse
        if pulse is None or not self.command_latency or not self.kernels:
            return 0.0
        return pulse.wait(self.kernels[-1] - before.start)

    def kernel(self, needs: ResourceUse, depends: int | None = None) -> Slot:
        """Run a kernel; `depends`: its BLOCKDEP, if not that of its registers."""
        limit = self.accelerator.max_outstanding_kernels
        if len(self.kernels) >= limit:
            self.now = max(self.now, self.kernels[-limit])
        n, jobs, traffic = needs.blocks, needs.jobs, needs.traffic
        self._settle(Client.KERNELS, traffic)
        before = self.engines
        # What registers lay out for this kernel must be free: its input's room when the one before has multiplied, and
        # its accumulators when that has put out; in the same layout, one block's while the other's are put out.
        free = before.multipliers if self.accelerator.shares_ram else before.fetch
        start = max(self.now, free, before.end - (needs.depends if depends is None else depends) * before.block)
        start = self._free(start + self.launch + self._pause(before), traffic)
        multiplying = needs.multiplying_alone if self.assumptions.alone else needs.multiplying
        first = start + traffic.input_latency + traffic.input_asking / jobs
        ready = before.write if self.accelerator.awaits_response else before.output
        if needs.layout == before.layout and not self.accelerator.awaits_response:
            ready = max(before.multipliers, ready - before.putting)
        multiply = max(first, ready)
        fetched = max(first, _alone(traffic.inputs, start))
        weighed = _alone(traffic.weights, max(self.now, before.multipliers))
        multiplied = max(multiply + multiplying, fetched + multiplying / jobs, weighed)
        output = max(multiply + multiplying / n, before.output)
        writing, passed = traffic.output_cycles, self.take(traffic, start, Client.KERNELS)
        made = max(output + needs.output, multiplied + needs.output / n, passed - writing / n)
        write = max(output + needs.output / n, before.write)
        written = max(made + writing / n, write + writing, passed)
        stop = written + traffic.output_latency
        end = stop if self.accelerator.awaits_response else written
        block = ((written - start) / n, writing / n, start, n, needs.output / n, needs.layout)
        self.engines = _Engines(fetched, multiplied, made, written, end, *block)
        self._hold(Client.KERNELS, traffic, written)
        shown = max(start, self.kernels[-1] if self.kernels else 0.0)  # before it only reads ahead
        self.kernels.append(stop)
        return Slot(needs, shown, stop, start)


def _alone(loads: Iterable[tuple[float, float]], start: float) -> float:
    """When loads that do not share their memories have passed."""
    stop = 0.0
    for latency, asking in loads:
        stop = max(stop, start + latency + asking)
    return stop


@dataclass(frozen=True, slots=True)
class Timeline:
    """All operations of a stream in time, in its order."""

    slots: tuple[Slot, ...]
    total: int  # cycles from the start of the stream to its end
    words: int  # of the stream, waits and its end included


def timeline(
    commands: Iterable[Command], accelerator: Architecture, memory_map: MemoryMap, known: ResourceUseCache | None = None
) -> Timeline:
    """Place all operations. `known`: needs in these memories that were worked out before."""
    return play_steps(
        prepare_steps(commands, known or ResourceUseCache(accelerator, memory_map)), accelerator, memory_map
    )


def prepare_steps(commands: Iterable[Command], known: ResourceUseCache) -> list[Step]:
    """A stream as `play_steps` takes it, which is the same for all models of time."""
    return [
        (words, known(command) if isinstance(command, Operation) else command if isinstance(command, Wait) else None)
        for words, command in count_words(commands)
    ]


def count_words(commands: Iterable[Command]) -> Iterator[tuple[int, Command]]:
    """The commands of a stream, each with the words that it takes there."""
    state = RegisterState()
    for command in commands:
        if isinstance(command, Operation):
            yield 1 + sum([_WORDS[register] for register in state.changes(command)]), command
        else:
            yield 1, command


def play_steps(steps: Iterable[Step], accelerator: Architecture, memory_map: MemoryMap) -> Timeline:
    """All operations of a prepared stream in time."""
    clock = TimingModel.at_start(accelerator, memory_map)
    slots: list[Slot] = []
    total = 0
    for step in steps:
        if (slot := clock.run(step)) is not None:
            slots.append(slot)
        total += step[0]
    _put_off(slots, clock)
    return Timeline(tuple(slots), round(max([clock.total, *(slot.stop for slot in slots)])), total)


def _put_off(slots: Iterable[Slot], clock: TimingModel) -> None:
    """Move the end of each operation to its final time: operations after it may have delayed it."""
    kernels, transfers = iter(clock.kernels), iter(clock.transfers)
    for slot in slots:
        slot.stop = next(transfers if slot.resource_use.is_transfer else kernels)


def in_a_row(needs: ResourceUse, accelerator: Architecture, memory_map: MemoryMap) -> int:
    """The cycles by which a kernel makes a stream longer in which another runs before that is like it but for its
    layout, and for which it need not wait; its commands are not counted.
    """
    clock = TimingModel.at_start(accelerator, memory_map)
    once = clock.kernel(needs, MAX_BLOCKDEP).stop
    clock.engines = replace(clock.engines, layout=None)
    return round(clock.kernel(needs, MAX_BLOCKDEP).stop - once)
