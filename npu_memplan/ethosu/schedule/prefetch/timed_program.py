"""A program on the estimate's clock, with its constants read where they are or from copies made while it runs.

Invariant: time passes as `ethosu.time` says for the stream that is encoded of the same program and copies; nothing here
knows a rate. A kernel's cached best blocks are a function of its registers but for addresses, of the NPU and of the
memories. `port_cycles` and `least_work` are lower bounds of that clock. `in_context` changes nothing but blocks, and no
constant is read more often.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from ...arch import Architecture
from ...program.hazards import largest_blockdep, stream_of
from ...program.program import NpuOperation, NpuProgram, chain_bounds
from ...stream.decode import Command, Operation, Wait
from ...stream.fields import kind_of
from ...stream.isa import Op, Register
from ...time import ALONE, MemoryMap, ResourceUseCache, TimingModel, in_a_row
from ...time.cost import ResourceUse
from ...time.timeline import count_words, prepare_steps
from ..blocks import BESIDE, BlockError, Blocks
from ..constants import REGIONS, ConstantBlock

Changes = Mapping[Register, int]


class DemandCache:
    """Kernels of one NPU among one set of memories. `like`: under another model of time, whose needs are the same."""

    def __init__(self, accelerator: Architecture, memory_map: MemoryMap, like: DemandCache | None = None) -> None:
        self.memory_map = memory_map
        self.resource_uses: ResourceUseCache = like.resource_uses if like else ResourceUseCache(accelerator, memory_map)
        self._blocks: Blocks = Blocks(accelerator, memory_map, BESIDE, like._blocks if like else None)
        self._known: dict[Hashable, tuple[Changes | None, ResourceUse]] = {}

    def best(self, kernel: Operation) -> tuple[Changes | None, ResourceUse]:
        """Registers that say better blocks than the kernel's own, None where there are none, and its needs in them."""
        key = kind_of(kernel)
        if key not in self._known:
            self._known[key] = self._best(kernel)
        return self._known[key]

    def _best(self, kernel: Operation) -> tuple[Changes | None, ResourceUse]:
        own = self.resource_uses(kernel)
        try:
            choice = self._blocks.choose(kernel, encoded=True)
        except BlockError:
            return None, own
        changes = choice.registers(kernel)
        if changes[Register.ACC_FORMAT] == kernel.get(Register.ACC_FORMAT):
            needs = self.resource_uses(kernel.with_registers(changes))
            cycles = in_a_row(own, self.resource_uses.accelerator, self.memory_map)
            if self._blocks.weighted_cycles(choice.cycles, needs) < self._blocks.weighted_cycles(cycles, own):
                return changes, needs
        return None, own

    def alternatives(self, kernel: Operation) -> Iterator[tuple[Changes, ResourceUse]]:
        """Registers that say other blocks than the kernel's own, of those that could be the best, and its needs."""
        for choice in self._blocks.looked_at(kernel, encoded=kernel.op in (Op.CONV, Op.DEPTHWISE)):
            changes = choice.registers(kernel)
            if changes[Register.ACC_FORMAT] == kernel.get(Register.ACC_FORMAT) and any(
                kernel.get(register) != value for register, value in changes.items()
            ):
                yield changes, self.resource_uses(kernel.with_registers(changes))


COPY_WORDS = 8  # of the stream: two addresses, the length, sometimes a region, the start
Place = Callable[[str], tuple[int, int]]  # buffer -> region and address


@dataclass(frozen=True, slots=True)
class TimedOp:
    """One operation."""

    words: int
    slow: ResourceUse  # with its constants read in place
    fast: ResourceUse  # with a copy of them
    kernels: tuple[int, ...]  # waits for kernels: how many may be unfinished
    transfers: frozenset[int]  # operations whose transfer must be over


class TimedProgram:
    """A program whose buffers have places. `constants` by first readers; `fast_region`: where copies would be;
    `commands`: its stream, where that is known.
    """

    arrays: Any = None  # as C sees it, once a search has made them

    def __init__(
        self,
        program: NpuProgram,
        constants: Sequence[ConstantBlock],
        place: Place,
        demand_cache: DemandCache,
        fast_region: int,
        commands: Sequence[Command] | None = None,
    ):
        self.program, self.constants, self.memory_map = program, constants, demand_cache.memory_map
        self.reads: dict[int, int] = {i: k for k, constant in enumerate(constants) for i in constant.readers}
        self._fast_region = fast_region
        self._demand_caches = demand_cache
        self.blocks: dict[tuple[int, bool], Changes] = {}  # (operation, copied) -> better blocks
        self._steps = self._read(stream_of(program, place) if commands is None else commands)
        self._transfers: dict[int, ResourceUse] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def _read(self, commands: Sequence[Command]) -> list[TimedOp]:
        steps: list[TimedOp] = []
        started: list[int] = []  # operations that are transfers
        waits: list[Wait] = []
        for own_words, command in count_words(commands):
            if isinstance(command, Wait):
                waits.append(command)
            elif isinstance(command, Operation):
                index = len(steps)
                if index in self.reads:
                    slow, fast = (
                        self._needs(index, command, False),
                        self._needs(index, self._read_from_copy(command), True),
                    )
                else:
                    slow = fast = self._demand_caches.resource_uses(command)
                words = own_words + len(waits)
                kernels = tuple(w.outstanding for w in waits if w.op is Op.KERNEL_WAIT)
                awaited = frozenset(started[-1 - w.outstanding] for w in waits if w.op is Op.DMA_WAIT)
                steps.append(TimedOp(words, slow, fast, kernels, awaited))
                if command.op is Op.DMA_START:
                    started.append(index)
                waits = []
        return steps

    def _needs(self, index: int, kernel: Operation, copied: bool) -> ResourceUse:
        """The needs of a kernel in the best blocks for where its constants are."""
        changes, needs = self._demand_caches.best(kernel)
        if changes is not None:
            self.blocks[index, copied] = changes
        return needs.for_operation(kernel)

    def _read_from_copy(self, kernel: Operation) -> Operation:
        """The kernel as it reads its constants in the fast region."""
        return kernel.with_registers(dict.fromkeys(REGIONS & kernel.registers.keys(), self._fast_region))

    def step(self, index: int) -> TimedOp:
        return self._steps[index]

    def transfer(self, size_bytes: int) -> ResourceUse:
        """A copy of so many bytes."""
        if size_bytes not in self._transfers:
            r = Register
            registers = {r.DMA0_SRC_REGION: 0, r.DMA0_DST_REGION: self._fast_region}
            registers |= {r.DMA0_SRC: 0, r.DMA0_DST: 0, r.DMA0_LEN: size_bytes}
            copy = Operation(Op.DMA_START, 0, registers)
            self._transfers[size_bytes] = self._demand_caches.resource_uses(copy)
        return self._transfers[size_bytes]


class TimedRun:
    """One run of a timed program on the clock."""

    def __init__(self, timed: TimedProgram) -> None:
        self.timed, self.clock = timed, TimingModel.at_start(timed.program.accelerator, timed.memory_map)
        self.started: list[int] = []  # transfers: operations, or -1 - constant

    def copy(self, constant: int, unfinished: int) -> None:
        """Start the transfers of a constant, when no more than so many kernels before it are unfinished."""
        timed, clock = self.timed, self.clock
        clock.wait(Op.KERNEL_WAIT, unfinished)
        for start, stop in timed.constants[constant].spans:
            clock.fetch(COPY_WORDS)
            clock.transfer(timed.transfer(stop - start))
            self.started.append(-1 - constant)

    def step(self, index: int, copied: bool) -> None:
        """Run operation `index`, with its constants from the copy if there is one."""
        timed, clock = self.timed, self.clock
        step = timed.step(index)
        for unfinished in step.kernels:
            clock.wait(Op.KERNEL_WAIT, unfinished)
        clock.fetch(step.words)
        needs = step.fast if copied else step.slow
        if copied or step.transfers:
            mine = -1 - timed.reads[index] if copied else None
            under_way = self.started[-timed.program.accelerator.max_outstanding_dma :]  # that may be unfinished
            for younger, tag in enumerate(reversed(under_way)):
                if tag == mine or tag in step.transfers:
                    clock.wait(Op.DMA_WAIT, younger)
                    break
        if needs.is_transfer:
            clock.transfer(needs)
            self.started.append(index)
        else:
            clock.kernel(needs)

    @property
    def cycles(self) -> int:
        """The cycles until everything has ended."""
        return round(self.clock.total)


def cycles_alone(timed: TimedProgram) -> tuple[float, list[float]]:
    """The cycles of a program without copies where one operation runs at a time, and by about how many the copy of each
    constant changes them: nothing hides a transfer there, nor what a kernel that waits for it does before its first
    request, of which each copy has an equal part.
    """
    accelerator, memory_map = timed.program.accelerator, replace(timed.memory_map, assumptions=ALONE)
    plain, copied = TimedRun(timed), TimedRun(timed)
    plain.clock, copied.clock = (TimingModel.at_start(accelerator, memory_map) for _ in range(2))
    for index in range(len(timed)):
        plain.step(index, False)
        constant = timed.reads.get(index)
        if constant is not None and timed.constants[constant].readers[0] == index:
            copied.copy(constant, 1)
        copied.step(index, constant is not None)
    known: dict[int, float] = {}

    def cycles(needs: ResourceUse) -> float:
        """The cycles of one operation."""
        if id(needs.traffic) not in known:
            clock = TimingModel.at_start(accelerator, memory_map)
            slot = clock.transfer(needs) if needs.is_transfer else clock.kernel(needs)
            known[id(needs.traffic)] = slot.stop - slot.start
        return known[id(needs.traffic)]

    more = []
    for one in timed.constants:
        steps = [timed.step(index) for index in one.readers]
        sent = sum(cycles(timed.transfer(stop - start)) for start, stop in one.spans)
        more.append(sent + sum(cycles(step.fast) - cycles(step.slow) for step in steps))
    waiting = (copied.clock.total - plain.clock.total - sum(more)) / max(1, len(more))
    return plain.clock.total, [waiting + cycles for cycles in more]


def port_cycles(size_bytes: float, accelerator: Architecture, memory_map: MemoryMap) -> float:
    """Cycles of the constants' memory for so many bytes."""
    return size_bytes / accelerator.port_bytes / memory_map.regions[0].clock_scale


def unit_cycles(needs: ResourceUse) -> float:
    """The fewest cycles from the last output block of one kernel to the last of the next, whose multiplications begin
    then and whose blocks are put out one after the other.
    """
    if needs.is_transfer:
        return 0.0
    work = (needs.multipliers, needs.output)
    return max(work) + min(work) / needs.blocks


def least_work(timed: TimedProgram) -> list[float]:
    """The fewest cycles from each operation to the end, the fewer of constants in place and of a copy: `unit_cycles` of
    the kernels. One in the layout of the kernel before begins while that puts out its last block.
    """
    overlaps = not timed.program.accelerator.awaits_response
    least, before = [], tuple[ResourceUse, ...]()
    for step in (timed.step(index) for index in range(len(timed))):
        uses = (step.slow, step.fast) if step.slow is not step.fast else (step.slow,)
        found = [unit_cycles(use) for use in uses]
        if not step.slow.is_transfer:
            for use in uses if overlaps else ():
                early = max((one.output / one.blocks for one in before if one.layout == use.layout), default=0.0)
                found.append(max(use.output, unit_cycles(use) - early))
            before = uses
        least.append(min(found))
    return [*accumulate(reversed(least), initial=0.0)][::-1]


_BEHIND = 2  # kernels after the one whose blocks are chosen, until the last of which ends


def in_context(program: NpuProgram, place: Place, demand_cache: DemandCache) -> NpuProgram:
    """`program` with blocks chosen by what its whole stream takes, where its buffers lie as `place` says."""
    stream = _Stream(program, stream_of(program, place), demand_cache)
    changes = dict(stream.changes())
    operations = [_with_registers(operation, changes.get(index)) for index, operation in enumerate(program.operations)]
    return replace(program, operations=tuple(operations)) if changes else program


def _with_registers(operation: NpuOperation, changes: Changes | None) -> NpuOperation:
    """The operation with other values of some registers; itself without changes."""
    return operation if changes is None else replace(operation, registers={**operation.registers, **changes})


class _Stream:
    """A stream in time, from its start to the operation that is looked at."""

    def __init__(self, program: NpuProgram, commands: tuple[Command, ...], demand_cache: DemandCache) -> None:
        self._target, self._demand_cache = program.accelerator, demand_cache
        self._clock = TimingModel.at_start(program.accelerator, demand_cache.memory_map)
        self._steps = prepare_steps(commands, demand_cache.resource_uses)
        bounds = chain_bounds(program.operations)
        operations = [at for at, command in enumerate(commands) if isinstance(command, Operation)]
        is_kernel = [operation.op is not Op.DMA_START for operation in program.operations]
        self._kernels = [pair for pair, is_one in zip(enumerate(operations), is_kernel, strict=True) if is_one]
        self._alone = [bounds[index] == (index, index) for index, _ in self._kernels]

    def changes(self) -> Iterator[tuple[int, Changes]]:
        """Other blocks, by operation of the program."""
        done = 0
        for number, (index, at) in enumerate(self._kernels):
            self._run(self._clock, done, at)
            done = at
            if all(self._alone[number : number + 2]):
                found = self._best(number)
                if found is not None:
                    yield index, found

    def _best(self, number: int) -> Changes | None:
        """The blocks of a kernel with which those behind it end first; None: its own. The stream has them from now."""
        (_, at), (_, last) = self._kernels[number], self._kernels[min(number + _BEHIND, len(self._kernels) - 1)]
        own, alternatives = self._use(at), self._demand_cache.alternatives(self._use(at).operation)
        others = [(changes, needs) for changes, needs in alternatives if self._far(needs) <= self._far(own)]
        if not others:
            return None
        before = [self._use(place) for _, place in self._kernels[max(0, number - 1) : number]]
        behind = [(place, self._use(place)) for _, place in self._kernels[number + 1 : number + 2]]
        bound = any(self._binds(one, own) for one in before), any(self._binds(own, use) for _, use in behind)
        changed = (at, *(place for place, _ in behind))
        found: Changes | None = None
        best, least = [self._steps[place] for place in changed], self._end(at, last)
        for changes, needs in others:
            self._set(at, needs, self._distance(before[0], needs) if bound[0] else own.depends)
            for place, use in behind:
                self._set(place, use, self._distance(needs, use) if bound[1] else use.depends)
            end = self._end(at, last)
            if end < least:
                least, found, best = end, changes, [self._steps[place] for place in changed]
        for place, step in zip(changed, best, strict=True):
            self._steps[place] = step
        return found

    def _far(self, needs: ResourceUse) -> float:
        """Cycles of the constants' memory."""
        return needs.traffic.cycles_of(self._demand_cache.memory_map.regions[0].name)

    def _use(self, at: int) -> ResourceUse:
        found = self._steps[at][1]
        assert isinstance(found, ResourceUse)
        return found

    def _binds(self, before: ResourceUse, own: ResourceUse) -> bool:
        """Whether the kernel before alone decides the BLOCKDEP of one: else a table keeps them apart."""
        return own.depends == self._distance(before, own)

    def _distance(self, before: ResourceUse, own: ResourceUse) -> int:
        return largest_blockdep(before.operation, own.operation, self._target)

    def _set(self, at: int, needs: ResourceUse, distance: int) -> None:
        operation = needs.operation.with_registers({Register.BLOCKDEP: distance})
        self._steps[at] = self._steps[at][0], needs.for_operation(operation)

    def _end(self, at: int, last: int) -> float:
        """When the kernel at `last` ends."""
        clock = self._clock.copy_moment()
        self._run(clock, at, last + 1)
        return clock.kernels[-1]

    def _run(self, clock: TimingModel, start: int, stop: int) -> None:
        for step in self._steps[start:stop]:
            clock.run(step)
