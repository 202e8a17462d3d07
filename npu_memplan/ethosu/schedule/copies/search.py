"""Better copies than the greedy ones: some pieces stay where they are, some are sent later.

Invariant: deterministic; the work is bounded by a number of operations that are run on the clock, and the result is
never slower than the program without copies, nor than what was known before more work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from .course import Course, Run
from .exhaustive import Exhaustive
from .greedy import Choice, Greedy, Itinerary
from .room import Volume

WORK = 60_000  # operations on the clock: about a CPU second
_MANNERS = (Choice(in_turn=True), Choice(from_top=True), Choice(in_turn=True, from_top=True))
_FEW, _ALL = 14, 3_000  # pieces of which all schedules are looked at, and operations run for that
_LEAST = 8  # operations that a choice counts for at least
_SOONER = (1, 2, 3, 4, 6, 9)  # operations before its first reader that a copy starts at most, of all pieces
_AHEAD = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 24, 32)  # the same, of one
_TOGETHER, _NEAR, _NEARBY = 2, 3, 0.7  # how many change at once, how far apart, and how often no farther
_STAY, _SENT = 0.25, 0.85  # shares: read where they are; these, and sent at a time that is drawn


def without_copies(line: Course) -> Itinerary:
    run = Run(line)
    for index in range(len(line)):
        run.step(index, False)
    return Itinerary(run.cycles)


def best_copies(line: Course, room: Volume, work: int = WORK) -> Itinerary:
    """What is found within so many operations on the clock."""
    search = CopySearch(line, room)
    search.further(work)
    return search.best


class CopySearch:
    """The copies of a program in free bytes, looked for as long as one likes: a few at a time are sent otherwise."""

    def __init__(self, line: Course, room: Volume) -> None:
        self.line, self.room, self.best, self.spent = line, room, without_copies(line), 0
        self._draw = Random(0)
        self._schedule = Greedy(line, room)
        self._taken(self._schedule)
        for manner in _MANNERS:
            if room.placed or not manner.from_top:
                self._taken(Greedy(line, room, manner))
        self._begun = self._ended = not line.pieces

    def further(self, work: int) -> None:
        """Look on until `work` operations were run on the clock since the beginning."""
        if not self._begun and self.spent < work:
            self._begun = True
            everyone, manner = range(len(self.line.pieces)), self._schedule.choice
            for sooner in _SOONER:
                choice = replace(manner, sooner=dict.fromkeys(everyone, sooner))
                self._taken(Greedy(self.line, self.room, choice))
        while self.spent < work and not self._ended:
            pieces = self._drawn()
            self._taken(self._schedule.otherwise(self._changed(pieces), pieces))
        if work >= WORK and not self.room.placed and not self._ended and len(self.line.pieces) <= _FEW:
            found = Exhaustive(self.line, self.room, self.best, _ALL).best()
            self._ended, self.best = found is not None, found or self.best

    def _drawn(self) -> set[int]:
        """Pieces that are read near one another, as they are sorted by who reads them, and sometimes any."""
        draw, count = self._draw, len(self.line.pieces)
        near = draw.randrange(count)
        return {
            (near + draw.randint(-_NEAR, _NEAR)) % count if draw.random() < _NEARBY else draw.randrange(count)
            for _ in range(draw.randint(1, _TOGETHER))
        }

    def _changed(self, pieces: Iterable[int]) -> Choice:
        """Some of `pieces` stay where they are, some are sent when they can be, most so many operations early."""
        choice, draw = self._schedule.choice, self._draw
        kept, sooner = set(choice.kept), dict(choice.sooner)
        for piece in sorted(pieces):
            kept.discard(piece)
            sooner.pop(piece, None)
            what = draw.random()
            if what < _STAY:
                kept.add(piece)
            elif what < _SENT:
                sooner[piece] = draw.choice(_AHEAD)
        return replace(choice, kept=frozenset(kept), sooner=sooner)

    def _taken(self, made: Greedy | None) -> None:
        """Go on from what is not slower."""
        self.spent += _LEAST if made is None else max(_LEAST, made.steps)
        if made is not None and made.made.cycles <= self._schedule.made.cycles:
            self._schedule = made
            self.best = min(self.best, made.made, key=lambda one: one.cycles)
