"""Blocks of kernels for where they stand in a stream: what they wait for, and what waits for them.

Invariant: the program differs in blocks alone, and reads no constants more often. Each kernel in turn has, of the
blocks that were looked at for it, those with which it and the kernels behind it end first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...program.hazards import largest_blockdep, stream_of
from ...program.program import NpuOperation, NpuProgram, chain_bounds
from ...stream.decode import Command, Operation
from ...stream.isa import Op, Register
from ...time import ResourceUse, TimingModel
from ...time.timeline import prepared
from .demand_cache import Changes, DemandCache
from .timed_program import Place

_BEHIND = 2  # kernels after the one whose blocks are chosen, until the last of which ends


def in_context(program: NpuProgram, place: Place, demand_cache: DemandCache) -> NpuProgram:
    """`program` with blocks that suit its stream, where its buffers lie as `place` says."""
    stream = _Stream(program, stream_of(program, place), demand_cache)
    changes = dict(stream.changes())
    operations = [_with(operation, changes.get(index)) for index, operation in enumerate(program.operations)]
    return replace(program, operations=tuple(operations)) if changes else program


def _with(operation: NpuOperation, changes: Changes | None) -> NpuOperation:
    return operation if changes is None else replace(operation, registers={**operation.registers, **changes})


class _Stream:
    """A stream in time, from its start to the operation that is looked at."""

    def __init__(self, program: NpuProgram, commands: tuple[Command, ...], demand_cache: DemandCache) -> None:
        self._target, self._demand_cache = program.accelerator, demand_cache
        self._clock = TimingModel.of(program.accelerator, demand_cache.memory_map)
        self._steps = prepared(commands, demand_cache.resource_uses)
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
        _, at = self._kernels[number]
        own, kept = self._use(at), self._steps[:]
        _, last = self._kernels[min(number + _BEHIND, len(self._kernels) - 1)]
        found: Changes | None = None
        least, steps = self._end(at, last), kept
        for changes, needs in self._demand_cache.alternatives(own.operation):
            if self._far(needs) <= self._far(own):
                self._steps = kept[:]
                self._put(number, needs)
                end = self._end(at, last)
                if end < least:
                    least, found, steps = end, changes, self._steps
        self._steps = steps
        return found

    def _far(self, needs: ResourceUse) -> float:
        """Cycles of the constants' memory."""
        return needs.traffic.cycles_of(self._demand_cache.memory_map.regions[0].name)

    def _use(self, at: int) -> ResourceUse:
        found = self._steps[at][1]
        assert isinstance(found, ResourceUse)
        return found

    def _put(self, number: int, needs: ResourceUse) -> None:
        """Kernel `number` with other needs, on which and on the kernel behind it those before depend otherwise."""
        _, at = self._kernels[number]
        own = self._use(at)
        before = [self._use(place) for _, place in self._kernels[max(0, number - 1) : number]]
        behind = [place for _, place in self._kernels[number + 1 : number + 2]]
        self._set(at, needs, self._distance(own, [(one, one) for one in before], needs))
        for place in behind:
            use = self._use(place)
            self._set(place, use, self._distance(use, [(own, needs)], use))

    def _distance(self, own: ResourceUse, before: Sequence[tuple[ResourceUse, ResourceUse]], new: ResourceUse) -> int:
        """BLOCKDEP of a kernel whose needs change, or those of the kernel `before` it: each as it was and as it is."""
        for was, now in before:
            if own.depends == largest_blockdep(
                was.operation, own.operation, self._target
            ):  # else a table keeps them apart
                return largest_blockdep(now.operation, new.operation, self._target)
        return own.depends

    def _set(self, at: int, needs: ResourceUse, distance: int) -> None:
        operation = needs.operation.with_registers({Register.BLOCKDEP: distance})
        self._steps[at] = self._steps[at][0], needs.of(operation)

    def _end(self, at: int, last: int) -> float:
        """When the kernel at `last` ends."""
        clock = self._clock.copied()
        self._run(clock, at, last + 1)
        return clock.kernels[-1]

    def _run(self, clock: TimingModel, start: int, stop: int) -> None:
        for step in self._steps[start:stop]:
            clock.run(step)
