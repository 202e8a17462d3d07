"""Schedules of copies, and the parameters of the rule that makes one.

The rule (`greedy.c`): each constant is sent as soon as the port is idle and its bytes are free, the one that is read
first before the others. Invariant: a copy holds its bytes from the kernel before its transfer to its last reader; a
constant whose turn has come is read in place where that ends sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Copy:
    """A constant (by its index) is copied before operation `before` to byte `at` of the pool."""

    constant: int
    before: int
    at: int
    unfinished: int = 2  # its bytes are free once so many kernels before it, at most, have not ended


@dataclass(frozen=True, slots=True)
class DmaSchedule:
    """Copies in the order of the stream, and what they make of its time."""

    cycles: int
    copies: tuple[Copy, ...] = ()
    others: tuple[int, ...] = ()  # cycles under other models of time than that which made it


@dataclass(frozen=True, slots=True)
class Choice:
    """Parameters of the greedy rule: constants that stay, and how many operations early others are sent at most."""

    kept: frozenset[int] = frozenset()
    max_lead: Mapping[int, int] = field(default_factory=dict)
    fifo: bool = False  # none is sent while one that is read before has no room
    from_top: bool = False  # copies lie as high in the pool as they can


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search stands: at a choice that costs so much; `best` is the best it met."""

    choice: Choice
    cost: float
    best: DmaSchedule
