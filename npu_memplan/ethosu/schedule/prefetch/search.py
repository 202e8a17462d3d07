"""Better copies than the greedy ones: some constants stay where they are, some are sent later.

Invariant: deterministic; the work is bounded by a number of operations that are run on the clock, and the result is
never slower than the program without copies, nor than what was known before more work.
"""

from __future__ import annotations

from dataclasses import replace

from .exhaustive import Exhaustive
from .free_space import FreeCapacity
from .greedy import Choice, DmaSchedule
from .local_search import Found, LocalSearch
from .native_search import NativeLocalSearch
from .timed_program import TimedProgram, TimedRun

WORK = 60_000  # operations on the clock, times the `speed` of the trials: about a CPU second in Python, less in C
_POLICIES = (Choice(fifo=True), Choice(from_top=True), Choice(fifo=True, from_top=True))
_FEW, _ALL = 14, 1_600  # constants of which all schedules are looked at, and operations run for that
_MAX_LEADS = (1, 2, 3, 4, 6, 9)  # operations before its first reader that a copy starts at most, of all constants


def without_copies(timed: TimedProgram) -> DmaSchedule:
    run = TimedRun(timed)
    for index in range(len(timed)):
        run.step(index, False)
    return DmaSchedule(run.cycles)


def best_copies(timed: TimedProgram, space: FreeCapacity, work: int = WORK) -> DmaSchedule:
    """What is found within so many operations on the clock."""
    search = CopySearch(timed, space)
    search.further(work)
    return search.best


class CopySearch:
    """The copies of a program in free bytes, looked for as long as one likes: a few at a time are sent otherwise."""

    def __init__(self, timed: TimedProgram, space: FreeCapacity) -> None:
        self.timed, self.space, self.spent = timed, space, 0
        self._trials = NativeLocalSearch(timed, space) if NativeLocalSearch.usable(timed) else LocalSearch(timed, space)
        first = self._trials.schedule(Choice())
        self._found = Found(Choice(), first.cycles, _faster(without_copies(timed), first))
        for policy in _POLICIES:
            if space.placed or not policy.from_top:
                self.try_out(policy)
        self._begun = self._ended = not timed.constants

    @property
    def best(self) -> DmaSchedule:
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
            everyone, policy = range(len(self.timed.constants)), self._found.choice
            for max_lead in _MAX_LEADS:
                self.try_out(replace(policy, max_lead=dict.fromkeys(everyone, max_lead)))
        if not self._ended:
            self._found = self._trials.further(self._found, (work - self.spent) * self._trials.speed)
            self.spent = max(self.spent, work)
        if work >= WORK and not self.space.placed and not self._ended and len(self.timed.constants) <= _FEW:
            found = Exhaustive(self.timed, self.space, self.best, _ALL).best()
            self._ended = found is not None
            self._found = replace(self._found, best=found or self.best)

    def try_out(self, choice: Choice) -> None:
        """Go on from what is not slower."""
        made = self._trials.schedule(choice)
        self.spent += len(self.timed)
        if made.cycles <= self._found.cycles:
            self._found = Found(choice, made.cycles, _faster(self.best, made))


def _faster(one: DmaSchedule, other: DmaSchedule) -> DmaSchedule:
    """`one` where they are alike."""
    return other if other.cycles < one.cycles else one
