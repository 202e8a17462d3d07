"""A program on the estimate's clock, with its constants read where they are or from copies made under way.

Invariant: time passes as `ethosu.time` says for the stream that is encoded of the same program and copies; nothing
here knows a rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...hazards.waits import schedule
from ...program.program import NpuProgram
from ...stream.commands import Operation, Wait
from ...stream.isa import Op, Register
from ...time import Clock, Demand, stream_words
from .fitted import Changes, Fitted
from .reads import REGIONS, Parcel

COPY_WORDS = 8  # of the stream: two addresses, the length, sometimes a region, the start
Place = Callable[[str], tuple[int, int]]  # buffer -> region and address


@dataclass(frozen=True, slots=True)
class CourseStep:
    """One operation."""

    words: int
    slow: Demand  # with its constants read in place
    fast: Demand  # with a copy of them
    kernels: tuple[int, ...]  # waits for kernels: how many may be unfinished
    transfers: frozenset[int]  # operations whose transfer must be over


class Course:
    """A program whose buffers have places. `pieces` by first readers; `fast_region`: where copies would lie."""

    def __init__(self, program: NpuProgram, pieces: Sequence[Parcel], place: Place, fitted: Fitted, fast_region: int):
        self.program, self.pieces, self.where = program, pieces, fitted.where
        self.reads: dict[int, int] = {i: k for k, piece in enumerate(pieces) for i in piece.readers}
        self._fast_region = fast_region
        self._fitted = fitted
        self.blocks: dict[tuple[int, bool], Changes] = {}  # (operation, copied) -> better blocks
        self._steps = self._read(place)
        self._transfers: dict[int, Demand] = {}
        self._forms: dict[int, tuple[tuple[Demand, ...], tuple[Demand, ...]]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def _read(self, place: Place) -> list[CourseStep]:
        accelerator = self.program.accelerator
        operations = [self.program.place(i, place) for i in range(len(self.program.operations))]
        steps: list[CourseStep] = []
        before: Mapping[Register, int] = {}
        started: list[int] = []  # operations that are transfers
        waits: list[Wait] = []
        for command in schedule(operations, accelerator):
            if isinstance(command, Wait):
                waits.append(command)
            elif isinstance(command, Operation):
                index = len(steps)
                if index in self.reads:
                    slow, fast = self._needs(index, command, False), self._needs(index, self._copied(command), True)
                else:
                    slow = fast = self._fitted.demands(command)
                words = stream_words(command.registers, before) + len(waits)
                before = {**before, **command.registers}
                kernels = tuple(w.outstanding for w in waits if w.op is Op.KERNEL_WAIT)
                behind = frozenset(started[-1 - w.outstanding] for w in waits if w.op is Op.DMA_WAIT)
                steps.append(CourseStep(words, slow, fast, kernels, behind))
                if command.op is Op.DMA_START:
                    started.append(index)
                waits = []
        return steps

    def _needs(self, index: int, kernel: Operation, copied: bool) -> Demand:
        """What a kernel needs in the best blocks for where its constants are."""
        changes, needs = self._fitted.best(kernel)
        if changes is not None:
            self.blocks[index, copied] = changes
        return needs.of(kernel)

    def _copied(self, kernel: Operation) -> Operation:
        return kernel.with_registers(dict.fromkeys(REGIONS & kernel.registers.keys(), self._fast_region))

    def step(self, index: int) -> CourseStep:
        return self._steps[index]

    def otherwise(self, steps: Sequence[CourseStep]) -> Course:
        """The same with other needs."""
        other = object.__new__(Course)
        other.__dict__.update(self.__dict__, _steps=list(steps), _forms={})
        return other

    def forms(self, index: int) -> tuple[tuple[Demand, ...], tuple[Demand, ...]]:
        """What an operation needs with its constants in place, and with a copy: in the best blocks, and in its own."""
        if index not in self._forms:
            self._forms[index] = self._found(index)
        return self._forms[index]

    def _found(self, index: int) -> tuple[tuple[Demand, ...], tuple[Demand, ...]]:
        step = self._steps[index]
        if not any((index, copied) in self.blocks for copied in (False, True)):
            return (step.slow,), (step.fast,)
        slow, fast = (
            needs.of(needs.operation.with_registers(self.blocks.get((index, copied), {})))
            for copied, needs in ((False, step.slow), (True, step.fast))
        )
        own = [self._fitted.demands(needs.operation) for needs in (step.slow, step.fast)]
        return (slow, own[0]), (fast, own[1])

    def transfer(self, size_bytes: int) -> Demand:
        """A copy of so many bytes."""
        if size_bytes not in self._transfers:
            r = Register
            registers = {r.DMA0_SRC_REGION: 0, r.DMA0_DST_REGION: self._fast_region}
            registers |= {r.DMA0_SRC: 0, r.DMA0_DST: 0, r.DMA0_LEN: size_bytes}
            copy = Operation(Op.DMA_START, 0, registers)
            self._transfers[size_bytes] = self._fitted.demands(copy)
        return self._transfers[size_bytes]


class Run:
    """The clock on its way through a line."""

    def __init__(self, line: Course) -> None:
        self.line = line
        self.clock = Clock.of(line.program.accelerator, line.where)
        self._started: list[int] = []  # transfers: operations, or -1 - piece

    def fork(self) -> Run:
        """The same moment, to go on otherwise."""
        other = object.__new__(Run)
        other.line, other.clock = self.line, self.clock.fork()
        other._started = self._started[-self.line.program.accelerator.max_outstanding_dma :]
        return other

    def copy(self, piece: int, unfinished: int) -> None:
        """Start the transfers of a piece, when no more than so many kernels before it are unfinished."""
        line, clock = self.line, self.clock
        clock.wait(Op.KERNEL_WAIT, unfinished)
        for start, stop in line.pieces[piece].spans:
            clock.fetch(COPY_WORDS)
            clock.transfer(line.transfer(stop - start))
            self._started.append(-1 - piece)

    def step(self, index: int, copied: bool) -> None:
        """Run operation `index`, with its constants from the copy if there is one."""
        step, clock = self.line.step(index), self.clock
        for unfinished in step.kernels:
            clock.wait(Op.KERNEL_WAIT, unfinished)
        clock.fetch(step.words)
        needs = step.fast if copied else step.slow
        if copied or step.transfers:
            mine = -1 - self.line.reads[index] if copied else None
            for younger, tag in enumerate(reversed(self.under_way)):
                if tag == mine or tag in step.transfers:
                    clock.wait(Op.DMA_WAIT, younger)
                    break
        if needs.is_transfer:
            clock.transfer(needs)
            self._started.append(index)
        else:
            clock.kernel(needs)

    @property
    def under_way(self) -> tuple[int, ...]:
        """The transfers that may be unfinished: operations, or -1 - piece."""
        return tuple(self._started[-self.line.program.accelerator.max_outstanding_dma :])

    @property
    def cycles(self) -> int:
        """Until everything has ended."""
        return round(self.clock.total)
