"""Better copies than the greedy ones: some pieces stay where they are, some are sent later.

Invariant: deterministic; the work is bounded by a number of operations that are run on the clock, and the result is
never slower than the program without copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .course import Course, Run
from .exhaustive import Exhaustive
from .greedy import Choice, Greedy, Itinerary
from .room import Volume

WORK = 30_000  # operations on the clock: about a CPU second
_MANNERS = (Choice(in_turn=True), Choice(from_top=True), Choice(in_turn=True, from_top=True))
_FEW, _ALL = 14, 3_000  # pieces of which all schedules are looked at, and operations run for that
_LEAST = 8  # operations that a choice counts for at least
_SOONER = (1, 2, 3, 4, 6, 9)  # operations before its first reader that a copy starts at most


def without_copies(line: Course) -> Itinerary:
    run = Run(line)
    for index in range(len(line)):
        run.step(index, False)
    return Itinerary(run.cycles)


def best_copies(line: Course, room: Volume, work: int = WORK) -> Itinerary:
    best = without_copies(line)
    if not line.pieces:
        return best
    best = _Search(line, room, best, work).made()
    if work >= WORK and not room.placed and len(line.pieces) <= _FEW:
        return Exhaustive(line, room, best, _ALL).best() or best
    return best


class _Search:
    def __init__(self, line: Course, room: Volume, best: Itinerary, work: int) -> None:
        self.line, self.room, self.best, self.left = line, room, best, work
        self.schedule = self._first(Choice())
        for manner in _MANNERS:
            if room.placed or not manner.from_top:
                self._first(manner)

    def made(self) -> Itinerary:
        everyone = range(len(self.line.pieces))
        manner = self.schedule.choice
        for sooner in _SOONER:
            if self.left <= 0:
                return self.best
            self._first(replace(manner, sooner=dict.fromkeys(everyone, sooner)))
        largest = sorted(everyone, key=lambda k: (-self.line.pieces[k].size_bytes, k))
        improved = True
        while improved:
            improved = False
            for piece in largest:
                for choice in self._moves(piece):
                    if self.left <= 0:
                        return self.best
                    improved |= self._better(choice, piece)
        return self.best

    def _moves(self, piece: int) -> Iterator[Choice]:
        choice = self.schedule.choice
        kept, sooner = choice.kept, choice.sooner
        if piece not in kept:
            yield replace(choice, kept=kept | {piece})
        for ahead in _SOONER:
            if piece in kept or sooner.get(piece) != ahead:
                yield replace(choice, kept=kept - {piece}, sooner={**sooner, piece: ahead})
        if piece in kept or piece in sooner:
            without = {k: v for k, v in sooner.items() if k != piece}
            yield replace(choice, kept=kept - {piece}, sooner=without)

    def _first(self, choice: Choice) -> Greedy:
        made = Greedy(self.line, self.room, choice)
        self._taken(made)
        return made

    def _better(self, choice: Choice, piece: int) -> bool:
        return self._taken(self.schedule.otherwise(choice, piece))

    def _taken(self, made: Greedy | None) -> bool:
        self.left -= _LEAST if made is None else max(_LEAST, made.steps)
        if made is None or made.made.cycles >= self.best.cycles:
            return False
        self.best, self.schedule = made.made, made
        return True
