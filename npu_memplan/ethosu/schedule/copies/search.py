"""Better copies than the greedy ones: some pieces stay where they are, some are sent later.

Invariant: deterministic; the work is bounded by a number of operations that are run on the clock, and the result is
never slower than the program without copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .course import Course, Run
from .greedy import Itinerary, greedy
from .room import Room

WORK = 30_000  # operations on the clock: about a CPU second
_SOONER = (1, 2, 3, 4, 6, 9)  # operations before its first reader that a copy starts at most


def without_copies(line: Course) -> Itinerary:
    """Everything read in place."""
    run = Run(line)
    for index in range(len(line)):
        run.step(index, False)
    return Itinerary(run.cycles)


def best_copies(line: Course, room: Room, work: int = WORK) -> Itinerary:
    """The fastest schedule that is found."""
    best = without_copies(line)
    if not line.pieces:
        return best
    return _Search(line, room, best, work).made()


_Choice = tuple[frozenset[int], Mapping[int, int]]  # pieces that stay, and how early others are sent


class _Search:
    def __init__(self, line: Course, room: Room, best: Itinerary, work: int) -> None:
        self.line, self.room, self.best, self.left = line, room, best, work
        self.choice: _Choice = (frozenset(), {})

    def made(self) -> Itinerary:
        everyone = range(len(self.line.pieces))
        self._better((frozenset(), {}))
        for sooner in _SOONER:
            if self.left <= 0:
                return self.best
            self._better((frozenset(), dict.fromkeys(everyone, sooner)))
        largest = sorted(everyone, key=lambda k: (-self.line.pieces[k].size_bytes, k))
        improved = True
        while improved:
            improved = False
            for piece in largest:
                for choice in self._moves(piece):
                    if self.left <= 0:
                        return self.best
                    improved |= self._better(choice)
        return self.best

    def _moves(self, piece: int) -> Iterator[_Choice]:
        kept, sooner = self.choice
        if piece not in kept:
            yield kept | {piece}, sooner
        for ahead in _SOONER:
            if piece in kept or sooner.get(piece) != ahead:
                yield kept - {piece}, {**sooner, piece: ahead}
        if piece in kept or piece in sooner:
            yield kept - {piece}, {k: v for k, v in sooner.items() if k != piece}

    def _better(self, choice: _Choice) -> bool:
        self.left -= len(self.line)
        found = greedy(self.line, self.room, *choice)
        if found.cycles >= self.best.cycles:
            return False
        self.best, self.choice = found, choice
        return True
