"""The best copies of a small program, found by looking at all schedules of them.

Invariant: exact in time and in the sum of the bytes, for constants that are sent whole, those that are read first
before others between the same operations. Left out are only schedules that cannot be better than what is known, by a
bound of the port and the kernels, and those that another with the same copies is never behind of: a transfer that
starts later may spare a kernel that shares its memory some cycles, which is not waited for. Places are found
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from npu_memplan.ethosu.arch import Channel
from npu_memplan.ethosu.schedule.prefetch.copies import Copy, DmaSchedule, FreeCapacity
from npu_memplan.ethosu.schedule.prefetch.timed_program import TimedProgram, TimedRun, least_work, port_cycles
from npu_memplan.ethosu.time import TimingModel
from npu_memplan.ethosu.time.sharing import SharedMemory
from tests.support.prefetch_oracle import Room, forked


@dataclass(frozen=True, slots=True)
class _State:
    """A moment of a schedule."""

    run: TimedRun
    space: Room
    sent: frozenset[int]  # constants
    copies: tuple[Copy, ...]

    def sending(self, timed: TimedProgram, copy: Copy) -> _State:
        constant = timed.constants[copy.constant]
        run, space = forked(self.run), Room(self.space)
        space.take(constant.size_bytes, copy.before - copy.unfinished, constant.readers[-1], 0)
        run.copy(copy.constant, copy.unfinished)
        return _State(run, space, self.sent | {copy.constant}, (*self.copies, copy))


class Exhaustive:
    """All schedules of `timed` within the free bytes of `volume` that are faster than `known`."""

    def __init__(self, timed: TimedProgram, volume: FreeCapacity, known: DmaSchedule, most_steps: int) -> None:
        self.timed, self.known, self.left = timed, known, most_steps
        self._start = _State(TimedRun(timed), Room(volume), frozenset(), ())
        self._order = sorted(range(len(timed.constants)), key=lambda k: (timed.constants[k].readers[0], k))
        self._behind = least_work(timed)

    def best(self) -> DmaSchedule | None:
        """The best of all, `known` where none is better; None where there are too many to be looked at."""
        states = [self._start]
        for index in range(len(self.timed)):
            found: dict[object, list[tuple[tuple[float, ...], _State]]] = {}
            for state in states:
                for before in self._sendings(state, index, 0):
                    self.left -= 1
                    if self.left < 0:
                        return None
                    run = forked(before.run)
                    run.step(index, self.timed.reads.get(index) in before.sent)
                    after = replace(before, run=run)
                    if not self._late(after, index):
                        found.setdefault(self._same(after, index), []).append((_moment(run), after))
            states = [state for same in found.values() for state in _ahead(same)]
        ended = [DmaSchedule(state.run.cycles, state.copies) for state in states]
        return min([self.known, *ended], key=lambda one: one.cycles)

    def _sendings(self, state: _State, index: int, begin: int) -> Iterator[_State]:
        """The state, and with constants sent before operation `index`."""
        yield state
        for place in range(begin, len(self._order)):
            k = self._order[place]
            constant = self.timed.constants[k]
            if constant.readers[0] < index or k in state.sent:
                continue
            for unfinished in range(min(index, 2) + 1):
                if state.space.full_at(constant.size_bytes, index - unfinished, constant.readers[-1]) < 0:
                    yield from self._sendings(
                        state.sending(self.timed, Copy(k, index, 0, unfinished)), index, place + 1
                    )

    def _late(self, state: _State, index: int) -> bool:
        """No way on from here, after operation `index`, is better than what is known."""
        timed, clock = self.timed, state.run.clock
        waiting = sum(
            p.size_bytes for k, p in enumerate(timed.constants) if p.readers[0] > index and k not in state.sent
        )
        port = port_cycles(waiting, timed.program.accelerator, timed.memory_map) + _busy(
            clock, timed.memory_map.regions[0].name
        )
        return max(clock.engines.output + self._behind[index + 1], port) >= self.known.cycles

    def _same(self, state: _State, index: int) -> object:
        alive = frozenset(k for k in state.sent if self.timed.constants[k].readers[-1] > index)
        return (
            alive,
            tuple(state.run.started[-self.timed.program.accelerator.max_outstanding_dma :]),
            tuple(state.space.free_at(i) for i in range(max(0, index - 1), len(self.timed))),
        )


def _ahead(states: list[tuple[tuple[float, ...], _State]]) -> Iterator[_State]:
    """Those that no other is ahead of in everything."""
    kept: list[tuple[float, ...]] = []
    for moment, state in sorted(states, key=lambda one: one[0]):
        if not any(all(a <= b for a, b in zip(other, moment, strict=True)) for other in kept):
            kept.append(moment)
            yield state


def _moment(run: TimedRun) -> tuple[float, ...]:
    """Everything that the future of a run follows from; nothing gets sooner by any of it being later."""
    clock = run.clock
    engines, accelerator = clock.engines, clock.accelerator
    kernels = [0.0] * accelerator.max_outstanding_kernels + clock.kernels
    transfers = [0.0] * accelerator.max_outstanding_dma + clock.transfers
    return (
        engines.end,
        clock.now,
        engines.fetch,
        engines.multipliers,
        engines.output,
        engines.write,
        -engines.block,
        -engines.writing,
        *kernels[-accelerator.max_outstanding_kernels :],
        *transfers[-accelerator.max_outstanding_dma :],
        engines.start,
        *clock.answers,
        *(
            time
            for name in sorted({m.name for m in run.timed.memory_map.regions.values()})
            for time in _left(clock, name)
        ),
        *(clock.asking.get(channel, 0.0) for channel in Channel),
    )


def _busy(clock: TimingModel, memory: str) -> float:
    """Until when all that was placed keeps a memory in use."""
    return clock.memories[memory].busy if memory in clock.memories else 0.0


def _left(clock: TimingModel, memory: str) -> list[float]:
    """Times that follow from what a memory must still serve; nothing gets sooner by any of them being later."""
    found: list[float] = []
    for queue in clock.memories.get(memory, SharedMemory()).clients:
        served = queue.end <= clock.now
        found += (
            [0.0, 0.0, 0.0, -inf, 0.0]
            if served
            else [queue.settled, queue.end, queue.begin, -queue.begin, queue.latency]
        )
    return found
