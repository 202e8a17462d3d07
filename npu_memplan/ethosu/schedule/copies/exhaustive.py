"""The best copies of a small program, found by looking at all schedules of them.

Invariant: exact in time and in the sum of the bytes, for pieces that are sent whole, those that are read first before
others between the same operations. Left out are only schedules that cannot be better than what is known, by a bound of
the port and the kernels, and those that another with the same copies is never behind of: a transfer that starts later
may spare a kernel that shares its memory some cycles, which is not waited for. Places are found afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...arch import Channel
from .bounds import least_work, port_cycles
from .course import Course, Run
from .greedy import Copy, Itinerary
from .room import Volume


@dataclass(frozen=True, slots=True)
class _State:
    """A moment of a schedule."""

    run: Run
    room: Volume
    sent: frozenset[int]  # pieces
    copies: tuple[Copy, ...]

    def sending(self, line: Course, copy: Copy) -> _State:
        piece = line.pieces[copy.piece]
        run, room = self.run.fork(), self.room.copy()
        room.take(piece.size_bytes, copy.before - copy.unfinished, piece.readers[-1], 0)
        run.copy(copy.piece, copy.unfinished)
        return _State(run, room, self.sent | {copy.piece}, (*self.copies, copy))


class Exhaustive:
    """All schedules of `line` within the free bytes of `volume` that are faster than `known`."""

    def __init__(self, line: Course, volume: Volume, known: Itinerary, most_steps: int) -> None:
        self.line, self.known, self.left = line, known, most_steps
        self._start = _State(Run(line), volume, frozenset(), ())
        self._order = sorted(range(len(line.pieces)), key=lambda k: (line.pieces[k].readers[0], k))
        self._behind = least_work(line)

    def best(self) -> Itinerary | None:
        """The best of all, `known` where none is better; None where there are too many to be looked at."""
        states = [self._start]
        for index in range(len(self.line)):
            found: dict[object, list[tuple[tuple[float, ...], _State]]] = {}
            for state in states:
                for before in self._sendings(state, index, 0):
                    self.left -= 1
                    if self.left < 0:
                        return None
                    run = before.run.fork()
                    run.step(index, self.line.reads.get(index) in before.sent)
                    after = replace(before, run=run)
                    if not self._late(after, index):
                        found.setdefault(self._same(after, index), []).append((_moment(run), after))
            states = [state for same in found.values() for state in _ahead(same)]
        ended = [Itinerary(state.run.cycles, state.copies) for state in states]
        return min([self.known, *ended], key=lambda one: one.cycles)

    def _sendings(self, state: _State, index: int, begin: int) -> Iterator[_State]:
        """The state, and with pieces sent before operation `index`."""
        yield state
        for place in range(begin, len(self._order)):
            k = self._order[place]
            piece = self.line.pieces[k]
            if piece.readers[0] < index or k in state.sent:
                continue
            for unfinished in range(min(index, 2) + 1):
                if state.room.full_at(piece.size_bytes, index - unfinished, piece.readers[-1]) < 0:
                    yield from self._sendings(state.sending(self.line, Copy(k, index, 0, unfinished)), index, place + 1)

    def _late(self, state: _State, index: int) -> bool:
        """No way on from here, after operation `index`, is better than what is known."""
        line, clock = self.line, state.run.clock
        waiting = sum(p.size_bytes for k, p in enumerate(line.pieces) if p.readers[0] > index and k not in state.sent)
        port = port_cycles(waiting, line.program.accelerator, line.where) + clock.busy(line.where.regions[0].name)
        return max(clock.engines.write + self._behind[index + 1], port) >= self.known.cycles

    def _same(self, state: _State, index: int) -> object:
        """What states must share to be compared: the pieces there, the transfers that may be waited for, free bytes."""
        alive = frozenset(k for k in state.sent if self.line.pieces[k].readers[-1] > index)
        return (
            alive,
            state.run.under_way,
            tuple(state.room.free_at(i) for i in range(max(0, index - 1), len(self.line))),
        )


def _ahead(states: list[tuple[tuple[float, ...], _State]]) -> Iterator[_State]:
    """Those that no other is ahead of in everything."""
    kept: list[tuple[float, ...]] = []
    for moment, state in sorted(states, key=lambda one: one[0]):
        if not any(all(a <= b for a, b in zip(other, moment, strict=True)) for other in kept):
            kept.append(moment)
            yield state


def _moment(run: Run) -> tuple[float, ...]:
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
        *kernels[-accelerator.max_outstanding_kernels :],
        *transfers[-accelerator.max_outstanding_dma :],
        engines.start,
        *clock.answers,
        *(time for name in sorted({m.name for m in run.line.where.regions.values()}) for time in clock.left(name)),
        *(clock.asking.get(channel, 0.0) for channel in Channel),
    )
