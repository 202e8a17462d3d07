"""A local search for copies: a few constants at a time are sent otherwise, and it goes on from what is not slower.

Invariant: deterministic, and the same as `search.c` does: chance, trials and acceptance are one rule in two languages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....compiled import chances
from .free_space import FreeCapacity
from .greedy import Choice, DmaSchedule, Greedy
from .timed_program import TimedProgram

_LEAST = 8  # operations that a trial counts for at least
_AHEAD = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 24, 32)  # operations before its first reader that a copy starts at most
_TOGETHER, _NEAR, _NEARBY = 4, 3, 0.7  # how many change at once, how far apart, and how often no farther
_STAY, _SENT = 0.25, 0.85  # shares: read where they are; these, and sent at a time that is drawn


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search stands: at a choice that takes so many cycles; `best` is the best it met."""

    choice: Choice
    cycles: int
    best: DmaSchedule


class LocalSearch:
    """The schedules of a course in free bytes, in Python."""

    speed = 1  # operations that are run for one requested

    def __init__(self, timed: TimedProgram, space: FreeCapacity, seed: int = 0) -> None:
        self.timed, self._space, self._chance = timed, space, chances(seed)

    def schedule(self, choice: Choice) -> DmaSchedule:
        """What the greedy rule makes of a choice."""
        return Greedy(self.timed, self._space, choice).made

    def further(self, found: Found, operations: int) -> Found:
        """Look on until so many operations were run on the clock."""
        while operations > 0 and self.timed.constants:
            choice = self._changed(found.choice)
            made = self.schedule(choice)
            if made.cycles <= found.cycles:
                found = Found(choice, made.cycles, made if made.cycles < found.best.cycles else found.best)
            operations -= max(_LEAST, len(self.timed))
        return found

    def _changed(self, choice: Choice) -> Choice:
        """Some constants, read near one another or any, stay where they are or are sent when they can be, most so many
        operations early.
        """
        kept, max_lead, count = set(choice.kept), dict(choice.max_lead), len(self.timed.constants)
        near = self._draw(count)
        for _ in range(1 + self._draw(_TOGETHER)):
            nearby = self._random() < _NEARBY
            constant = (near + self._draw(2 * _NEAR + 1) - _NEAR) % count if nearby else self._draw(count)
            kept.discard(constant)
            max_lead.pop(constant, None)
            what = self._random()
            if what < _STAY:
                kept.add(constant)
            elif what < _SENT:
                max_lead[constant] = _AHEAD[self._draw(len(_AHEAD))]
        return replace(choice, kept=frozenset(kept), max_lead=max_lead)

    def _draw(self, count: int) -> int:
        return int(self._random() * count)

    def _random(self) -> float:
        """`chance` of common.h: in [0, 1)."""
        x = self._chance[0]
        x ^= x << 13 & _MASK
        x ^= x >> 7
        x ^= x << 17 & _MASK
        self._chance[0] = x
        return (x >> 11) / (1 << 53)


_MASK = (1 << 64) - 1
