"""Better copies than those of one rule: some constants stay where they are, some are sent later.

Invariant: deterministic; the work is bounded by a number of operations that are run on the clock, and the result is
never slower than the program without copies, nor than what was known before more work. Without a C compiler no copies
are searched.
"""

from __future__ import annotations

from dataclasses import replace

from .free_space import FreeCapacity
from .native_search import FEWEST_CYCLES, Goal, NativeSearch
from .schedules import Choice, DmaSchedule, Found
from .timed_program import TimedProgram, TimedRun

WORK = 60_000  # units of work of a long search
_OPERATIONS = 36  # on the clock, for a unit of work: WORK units take some tenths of a CPU second
_CHANGES = 500  # of each constant that a search of WORK units makes at most
_POLICIES = (Choice(fifo=True), Choice(from_top=True), Choice(fifo=True, from_top=True))
_MAX_LEADS = (1, 2, 3, 4, 6, 9)  # operations before its first reader that a copy starts at most, of all constants


def without_copies(timed: TimedProgram) -> DmaSchedule:
    run = TimedRun(timed)
    for index in range(len(timed)):
        run.step(index, False)
    return DmaSchedule(run.cycles)


class CopySearch:
    """The copies of a program in free bytes, looked for as long as one likes: a few at a time are sent otherwise."""

    def __init__(self, timed: TimedProgram, space: FreeCapacity, goal: Goal = FEWEST_CYCLES) -> None:
        self.timed, self.spent, self._goal = timed, 0, goal
        self._native = NativeSearch(timed, space, goal=goal) if timed.constants and NativeSearch.usable(timed) else None
        plain = without_copies(timed) if self._native is None else self._native.without_copies()
        self._found = Found(Choice(), goal.cost(plain), plain)
        self._begun = False
        if self._native is not None:
            first = self._native.schedule(Choice())
            self._found = Found(Choice(), goal.cost(first), self._cheaper(plain, first))
        for policy in _POLICIES:
            if space.placed or not policy.from_top:
                self.try_out(policy)

    @property
    def best(self) -> DmaSchedule:
        """The fastest so far."""
        return self._found.best

    @property
    def cost(self) -> float:
        """Of the best, by the goal."""
        return self._goal.cost(self.best)

    @property
    def choice(self) -> Choice:
        """Where it stands."""
        return self._found.choice

    def further(self, work: int) -> None:
        """Look on until so many units of `work` were spent since the beginning; fewer where there are few choices."""
        choices = _CHANGES * len(self.timed.constants) * len(self.timed) // _OPERATIONS  # units that try each so often
        work = work * min(WORK, choices) // WORK
        if not self._begun and self.spent < work:
            self._begun = True
            everyone, policy = range(len(self.timed.constants)), self._found.choice
            for max_lead in _MAX_LEADS:
                self.try_out(replace(policy, max_lead=dict.fromkeys(everyone, max_lead)))
        if self._native is not None:
            self._found = self._native.further(self._found, (work - self.spent) * _OPERATIONS)
            self.spent = max(self.spent, work)

    def try_out(self, choice: Choice) -> None:
        """Go on from what is not slower."""
        if self._native is None:
            return
        made = self._native.schedule(choice)
        self.spent += len(self.timed)
        cost = self._goal.cost(made)
        if cost <= self._found.cost:
            self._found = Found(choice, cost, self._cheaper(self.best, made))

    def _cheaper(self, one: DmaSchedule, other: DmaSchedule) -> DmaSchedule:
        """`one` where they are alike."""
        return other if self._goal.cost(other) < self._goal.cost(one) else one
