"""A program on the estimate's clock, with its constants read where they are or from copies made under way.

Invariant: time passes as `ethosu.time` says for the stream that is encoded of the same program and copies; nothing
here knows a rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...program.hazards import stream_of
from ...program.program import NpuProgram
from ...stream.decode import Command, Operation, Wait
from ...stream.isa import Op, Register
from ...time import ResourceUse, TimingModel, stream_words
from .demand_cache import Changes, DemandCache
from .reads import REGIONS, ConstantBlock

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
        before: dict[Register, int] = {}
        started: list[int] = []  # operations that are transfers
        waits: list[Wait] = []
        for command in commands:
            if isinstance(command, Wait):
                waits.append(command)
            elif isinstance(command, Operation):
                index = len(steps)
                if index in self.reads:
                    slow, fast = self._needs(index, command, False), self._needs(index, self._copied(command), True)
                else:
                    slow = fast = self._demand_caches.resource_uses(command)
                words = stream_words(command.registers, before) + len(waits)
                before.update(command.registers)
                kernels = tuple(w.outstanding for w in waits if w.op is Op.KERNEL_WAIT)
                awaited = frozenset(started[-1 - w.outstanding] for w in waits if w.op is Op.DMA_WAIT)
                steps.append(TimedOp(words, slow, fast, kernels, awaited))
                if command.op is Op.DMA_START:
                    started.append(index)
                waits = []
        return steps

    def _needs(self, index: int, kernel: Operation, copied: bool) -> ResourceUse:
        """What a kernel needs in the best blocks for where its constants are."""
        changes, needs = self._demand_caches.best(kernel)
        if changes is not None:
            self.blocks[index, copied] = changes
        return needs.of(kernel)

    def _copied(self, kernel: Operation) -> Operation:
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
    """The clock on its way through a line."""

    def __init__(self, timed: TimedProgram) -> None:
        self.timed, self.clock = timed, TimingModel.of(timed.program.accelerator, timed.memory_map)
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
        """Until everything has ended."""
        return round(self.clock.total)
