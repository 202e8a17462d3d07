"""Better copies than the greedy ones: some pieces stay where they are, some are sent later.

Invariant: deterministic; the work is bounded by a number of operations that are run on the clock, and the result is
never slower than the program without copies, nor than what was known before more work.
"""

from __future__ import annotations

from dataclasses import replace

from .course import Course, Run
from .exhaustive import Exhaustive
from .flat import Flat
from .greedy import Choice, Itinerary
from .room import Volume
from .trials import Found, Trials

WORK = 60_000  # operations on the clock, times the `speed` of the trials: about a CPU second in Python, less in C
_MANNERS = (Choice(in_turn=True), Choice(from_top=True), Choice(in_turn=True, from_top=True))
_FEW, _ALL = 14, 1_600  # pieces of which all schedules are looked at, and operations run for that
_SOONER = (1, 2, 3, 4, 6, 9)  # operations before its first reader that a copy starts at most, of all pieces


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
        self.line, self.room, self.spent = line, room, 0
        self._trials = Flat(line, room) if Flat.usable(line) else Trials(line, room)
        first = self._trials.schedule(Choice())
        self._found = Found(Choice(), first.cycles, _faster(without_copies(line), first))
        for manner in _MANNERS:
            if room.placed or not manner.from_top:
                self.try_out(manner)
        self._begun = self._ended = not line.pieces

    @property
    def best(self) -> Itinerary:
        """The fastest so far."""
        return self._found.best

    @property
    def choice(self) -> Choice:
        """Where it stands."""
        return self._found.choice

    def further(self, work: int) -> None:
        """Look on until `work` operations were run on the clock since the beginning."""
        if not self._begun and self.spent < work:
            self._begun = True
            everyone, manner = range(len(self.line.pieces)), self._found.choice
            for sooner in _SOONER:
                self.try_out(replace(manner, sooner=dict.fromkeys(everyone, sooner)))
        if not self._ended:
            self._found = self._trials.further(self._found, (work - self.spent) * self._trials.speed)
            self.spent = max(self.spent, work)
        if work >= WORK and not self.room.placed and not self._ended and len(self.line.pieces) <= _FEW:
            found = Exhaustive(self.line, self.room, self.best, _ALL).best()
            self._ended = found is not None
            self._found = replace(self._found, best=found or self.best)

    def try_out(self, choice: Choice) -> None:
        """Go on from what is not slower."""
        made = self._trials.schedule(choice)
        self.spent += len(self.line)
        if made.cycles <= self._found.cycles:
            self._found = Found(choice, made.cycles, _faster(self.best, made))


def _faster(one: Itinerary, other: Itinerary) -> Itinerary:
    """`one` where they are alike."""
    return other if other.cycles < one.cycles else one
